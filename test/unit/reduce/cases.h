// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Cases of one entry that every backend has to get right, and the expectation of each, by the
/// reference's numbers. For tests alone; allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "reduce/backend.h"
#include "reference.h"

namespace gradwire::test {

using namespace gradwire::reduce;

/// One case in so many is run: GRADWIRE_CASES, which Meson sets for builds with sanitizers. What
/// they look for each case may show; that all have the reference's bits the other builds show.
[[nodiscard]] inline std::size_t one_case_in() {
  const char* const text = std::getenv("GRADWIRE_CASES");
  return text == nullptr ? 1 : std::max<std::size_t>(std::strtoull(text, nullptr, 10), 1);
}

inline constexpr std::size_t kGuardBytes = 96;
inline constexpr std::array kKinds = {
    Kind::kLoad,  Kind::kReduceInPacket, Kind::kReduceAndStore, Kind::kReduceToOutput,
    Kind::kStore, Kind::kLoadFromOutput, Kind::kLocal};
/// Of a premul-sum, by the place of an input; one of them overflows fp16.
[[nodiscard]] inline std::vector<double> factors_of(RedOp redop, std::size_t first,
                                                    std::size_t count) {
  constexpr std::array kFactors = {0.3333333333333333, -1.75, 1.0, 70000.1, -0.0, 1e-300};
  std::vector<double> factors;
  for (std::size_t i = first; redop == RedOp::kPremulSum && i < first + count; ++i) {
    factors.push_back(kFactors[i % kFactors.size()]);
  }
  return factors;
}

/// Whole pages, so that arrays that are registered with a GPU share none: memory that was
/// registered in two pieces is not one range to a copy engine.
template <class T>
struct WholePages {
  using value_type = T;
  static constexpr std::size_t kPageBytes = 4096;
  T* allocate(std::size_t count) {
    const std::size_t pages = (count * sizeof(T) + kPageBytes - 1) / kPageBytes;
    return static_cast<T*>(::operator new (pages* kPageBytes, std::align_val_t{kPageBytes}));
  }
  void deallocate(T* memory, std::size_t) noexcept {
    ::operator delete (memory, std::align_val_t{kPageBytes});
  }
  friend bool operator==(const WholePages&, const WholePages&) noexcept { return true; }
};

/// An array between guards, `misalignment` bytes past an aligned address.
struct Array {
  std::vector<std::byte, WholePages<std::byte>> storage;
  std::size_t start;
  std::size_t bytes;  ///< without the guards

  Array(std::size_t of_bytes, std::size_t misalignment)
      : storage(of_bytes + 2 * kGuardBytes + misalignment + 64), start(0), bytes(of_bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage.data()) + kGuardBytes;
    start = kGuardBytes + (64 - address % 64) % 64 + misalignment;
    for (std::size_t i = 0; i < storage.size(); ++i) {
      storage[i] = static_cast<std::byte>(0xa5 ^ i);
    }
  }
  std::byte* data() { return storage.data() + start; }
};

struct Case {
  DataType type;
  RedOp redop;
  Kind kind;
  std::size_t members;
  std::size_t count;
  std::size_t misalignment;
  bool finalize;
  bool in_place;
  bool streaming;
  std::uint32_t divisor;
};

/// The arrays of one entry. The test keeps two: one that the backend works on, one that the
/// expectation is written to; all bytes of both must agree, guards included.
struct World {
  Array packet;
  std::vector<Array> inputs;
  std::vector<Array> outputs;  ///< in place: empty, the inputs are the outputs

  World(const Case& c, std::mt19937_64& random)
      : packet(c.count * element_bytes(c.type), c.misalignment) {
    const std::uint32_t width = element_bytes(c.type);
    fill(packet, c, random);
    for (std::size_t m = 0; m < c.members; ++m) {
      inputs.emplace_back(c.count * width, (c.misalignment * (m + 3)) % 64);
      fill(inputs.back(), c, random);
      if (!c.in_place) {
        outputs.emplace_back(c.count * width, (c.misalignment * (m + 2)) % 64);
        fill(outputs.back(), c, random);
      }
    }
  }
  static void fill(Array& array, const Case& c, std::mt19937_64& random) {
    for (std::size_t i = 0; i < c.count; ++i) {
      store_element(array.data(), i, element_bytes(c.type), awkward_element(c.type, random));
    }
  }
  Array& output(std::size_t m) { return outputs.empty() ? inputs[m] : outputs[m]; }
};

/// What a device has to be told of memory before it can reach it: a CPU nothing.
struct Reach {
  virtual ~Reach() = default;
  virtual void add(Array& /*array*/) {}
  virtual void remove(Array& /*array*/) {}
  /// Completions come later than submit() returns.
  [[nodiscard]] virtual bool asynchronous() const { return false; }
};

/// Makes a world's arrays reachable while it lives.
class Reached {
 public:
  Reached(World& world, Reach& reach) : world_(world), reach_(reach) {
    each([this](Array& array) { reach_.add(array); });
  }
  ~Reached() {
    each([this](Array& array) { reach_.remove(array); });
  }
  Reached(const Reached&) = delete;
  Reached& operator=(const Reached&) = delete;

 private:
  template <class Function>
  void each(Function&& function) {
    function(world_.packet);
    for (Array& array : world_.inputs) function(array);
    for (Array& array : world_.outputs) function(array);
  }
  World& world_;
  Reach& reach_;
};

/// Writes to `world` what the header of backend.h says that the entry does.
inline void expect(const Case& c, World& world) {
  const std::uint32_t width = element_bytes(c.type);
  const bool last = c.finalize || c.kind == Kind::kReduceAndStore || c.kind == Kind::kLocal;
  const bool from_packet =
      c.kind != Kind::kLoad && c.kind != Kind::kLocal && c.kind != Kind::kLoadFromOutput;
  const bool from_inputs = c.kind != Kind::kStore && c.kind != Kind::kLoadFromOutput;
  std::vector<std::uint64_t> values;
  for (std::size_t i = 0; i < c.count; ++i) {
    values.clear();
    if (c.kind == Kind::kLoadFromOutput) {
      values.push_back(load_element(world.output(0).data(), i, width));
    }
    for (std::size_t m = 0; from_inputs && m < c.members; ++m) {
      values.push_back(load_element(world.inputs[m].data(), i, width));
    }
    if (from_packet) values.push_back(load_element(world.packet.data(), i, width));
    const std::uint64_t result =
        expected_fold(c.type, c.redop, values, last && from_inputs ? c.divisor : 1,
                      factors_of(c.redop, 0, from_inputs ? c.members : 0));
    switch (c.kind) {
      case Kind::kLoad:
      case Kind::kReduceInPacket:
      case Kind::kLoadFromOutput:
        store_element(world.packet.data(), i, width, result);
        break;
      case Kind::kReduceAndStore:
        store_element(world.packet.data(), i, width, result);
        [[fallthrough]];
      case Kind::kStore:
      case Kind::kLocal:
        for (std::size_t m = 0; m < c.members; ++m) {
          store_element(world.output(m).data(), i, width, result);
        }
        break;
      case Kind::kReduceToOutput:
        for (std::size_t m = 0; m < (c.finalize ? c.members : 1); ++m) {
          store_element(world.output(m).data(), i, width, result);
        }
        break;
      case Kind::kCheck:
      case Kind::kLoadWide:
      case Kind::kFoldInOrder:  // in_order_cases.h
        break;
    }
  }
}

inline std::string describe(const Case& c, const char* backend) {
  return std::string(backend) + " " + std::string(name_of(c.type)) + " " +
         std::string(name_of(c.redop)) + " kind " + std::to_string(static_cast<int>(c.kind)) +
         " members " + std::to_string(c.members) + " count " + std::to_string(c.count) +
         " misalignment " + std::to_string(c.misalignment) + " finalize " +
         std::to_string(c.finalize) + " in place " + std::to_string(c.in_place) + " streaming " +
         std::to_string(c.streaming) + " divisor " + std::to_string(c.divisor);
}

/// A case's entry on the arrays of a world, which has to outlive it.
struct Work {
  Entry entry;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::vector<double> factors;

  Work(const Case& c, World& world) {
    // A chunk somewhere in the middle of gradient memory: the bases lie before it.
    constexpr std::size_t kOffsetBytes = 32;
    for (std::size_t m = 0; m < c.members; ++m) {
      inputs.push_back(world.inputs[m].data() - kOffsetBytes);
      outputs.push_back(world.output(m).data() - kOffsetBytes);
    }
    entry.kind = c.kind;
    entry.datatype = c.type;
    entry.redop = c.redop;
    entry.finalize = c.finalize;
    entry.streaming = c.streaming;
    entry.member_count = static_cast<std::uint16_t>(c.members);
    entry.count = static_cast<std::uint32_t>(c.count);
    entry.divisor = c.divisor;
    entry.packet = c.kind == Kind::kLocal ? nullptr : world.packet.data();
    entry.inputs = inputs.data();
    entry.outputs = outputs.data();
    factors = factors_of(c.redop, 0, c.members);
    entry.factors = factors.data();
    entry.offset_bytes = kOffsetBytes;
    entry.cookie = 77;
  }
};

/// @return where the world is not as it should be, or an empty string. Not by assertions of Catch,
/// which would cost more than the rest.
inline std::string compare(const Case& c, const World& world, const World& expected) {
  const auto differs = [&](const Array& got, const Array& want, const std::string& what) {
    const std::uint32_t width = element_bytes(c.type);
    for (std::size_t i = 0; i < got.storage.size(); ++i) {
      // Both arrays lie alike from their start on; what is before and behind it are guards.
      const std::size_t other = i + want.start - got.start;
      if (other < want.storage.size() && got.storage[i] != want.storage[other] && i >= got.start &&
          i < got.start + c.count * width) {
        const std::size_t element = (i - got.start) / width;
        return what + " element " + std::to_string(element) + ": got " +
               std::to_string(load_element(got.storage.data() + got.start, element, width)) +
               ", want " +
               std::to_string(load_element(want.storage.data() + want.start, element, width));
      }
      const bool is_guard = i < got.start || i >= got.start + c.count * width;
      if (is_guard && got.storage[i] != static_cast<std::byte>(0xa5 ^ i)) {
        return what + " guard byte " + std::to_string(i);
      }
    }
    return std::string();
  };
  std::string wrong = differs(world.packet, expected.packet, "packet");
  for (std::size_t m = 0; wrong.empty() && m < c.members; ++m) {
    wrong = differs(world.inputs[m], expected.inputs[m], "input " + std::to_string(m));
    if (wrong.empty() && !world.outputs.empty()) {
      wrong = differs(world.outputs[m], expected.outputs[m], "output " + std::to_string(m));
    }
  }
  return wrong;
}

/// Runs the case on `backend`. @return what is wrong, or an empty string.
inline std::string run(const Case& c, Backend& backend, World world, const World& expected,
                       Reach& reach) {
  const Work work(c, world);
  const Reached reached(world, reach);
  Completion done;
  if (backend.submit({&work.entry, 1}) != 1) return describe(c, backend.name()) + ": not taken";
  while (backend.poll({&done, 1}) == 0) {
    if (!reach.asynchronous()) return describe(c, backend.name()) + ": not completed";
    std::this_thread::yield();
  }
  backend.make_visible();
  if (!done.ok || done.cookie != 77) return describe(c, backend.name()) + ": failed";
  const std::string wrong = compare(c, world, expected);
  return wrong.empty() ? wrong : describe(c, backend.name()) + ": " + wrong;
}

/// Calls `check(case, random)` for cases of all kinds, counts, alignments and member counts.
template <class Check>
void for_each_case(DataType type, RedOp redop, Check&& check) {
  if (!fits(redop, type)) return;
  constexpr std::array<std::size_t, 10> kCounts = {1, 2, 7, 31, 63, 64, 65, 1000, 2048, 4095};
  constexpr std::array<std::size_t, 4> kMembers = {1, 2, 3, 64};
  constexpr std::array<std::size_t, 4> kMisalignments = {0, 1, 2, 10};
  std::mt19937_64 random(static_cast<std::uint64_t>(type) * 16 + static_cast<std::uint64_t>(redop));
  std::size_t index = 0;
  for (const Kind kind : kKinds) {
    for (const std::size_t members : kMembers) {
      for (const std::size_t count : kCounts) {
        if (members == 64 && count > 65 && count != 1000) {
          continue;  // 64 arrays of thousands of elements would take most of the test's time.
        }
        ++index;
        Case c;
        c.type = type;
        c.redop = redop;
        c.kind = kind;
        c.members = members;
        c.count = count;
        c.misalignment = kMisalignments[index % kMisalignments.size()];
        c.in_place = index % 3 == 0;
        c.streaming = index % 5 < 2;
        // From one rank (divisor 1 with one member: a copy) to the most.
        constexpr std::array<std::uint32_t, 5> kRanks = {1, 2, 3, 7, 1023};
        c.divisor = static_cast<std::uint32_t>(members) * kRanks[index % kRanks.size()];
        c.finalize = index % 2 == 0;
        check(c, random);
        if (count <= 65) {
          c.finalize = !c.finalize;
          c.in_place = !c.in_place;
          c.streaming = !c.streaming;
          c.divisor = static_cast<std::uint32_t>(members) * kRanks[(index + 1) % kRanks.size()];
          c.misalignment = kMisalignments[(index + 1) % kMisalignments.size()];
          check(c, random);
        }
      }
    }
  }
}

}  // namespace gradwire::test
