// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Cases of kFoldInOrder and kLoadWide that every backend has to get right. What is expected is
/// what a ring would give: the reference folds each rank's members and what came from the rank
/// before, and rounds, rank by rank. For tests alone; allocates.
#pragma once

#include <array>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cases.h"

namespace gradwire::test {

struct OrderCase {
  DataType type;
  RedOp redop;
  std::size_t ranks;
  std::size_t members;  ///< of each rank
  bool wide;            ///< contributions travel by kLoadWide, also if there is one member
  std::size_t count;
  std::size_t misalignment;
  bool finalize;
  std::size_t outputs;  ///< 0: the packet alone
  bool packet;
  bool in_place;  ///< the first output is the last source; of cases that are not wide
};

inline std::string describe(const OrderCase& c, const char* backend) {
  return std::string(backend) + " " + std::string(name_of(c.type)) + " " +
         std::string(name_of(c.redop)) + " in order: ranks " + std::to_string(c.ranks) +
         " members " + std::to_string(c.members) + " wide " + std::to_string(c.wide) + " count " +
         std::to_string(c.count) + " misalignment " + std::to_string(c.misalignment) +
         " finalize " + std::to_string(c.finalize) + " outputs " + std::to_string(c.outputs) +
         " packet " + std::to_string(c.packet) + " in place " + std::to_string(c.in_place);
}

inline std::string submit_and_wait(Backend& backend, const Entry& entry, const Reach& reach) {
  Completion done;
  if (backend.submit({&entry, 1}) != 1) return "not taken";
  while (backend.poll({&done, 1}) == 0) {
    if (!reach.asynchronous()) return "not completed";
    std::this_thread::yield();
  }
  backend.make_visible();
  return done.ok ? "" : "failed";
}

/// @return what is wrong, or an empty string.
inline std::string run(const OrderCase& c, Backend& backend, std::mt19937_64& random,
                       Reach& reach) {
  const std::uint32_t width = element_bytes(c.type);
  const bool wide = c.wide && has_wide_form(c.type);
  const std::uint32_t source_width = wide ? 4 : width;
  std::deque<Array> arrays;  // their addresses stay
  const auto make = [&](std::uint32_t bytes_each, std::size_t shift) -> Array& {
    arrays.emplace_back(c.count * bytes_each, (c.misalignment * shift) % 64);
    return arrays.back();
  };
  std::vector<std::vector<Array*>> inputs(c.ranks);
  std::vector<Array*> sources;
  for (std::size_t r = 0; r < c.ranks; ++r) {
    for (std::size_t m = 0; m < c.members; ++m) {
      Array& input = make(width, r + m + 1);
      for (std::size_t i = 0; i < c.count; ++i) {
        store_element(input.data(), i, width, awkward_element(c.type, random));
      }
      inputs[r].push_back(&input);
    }
    const bool is_input = c.members == 1 && !c.wide && c.redop != RedOp::kPremulSum;
    sources.push_back(is_input ? inputs[r][0] : &make(source_width, r + 2));
  }
  std::vector<Array*> outputs;
  for (std::size_t m = 0; m < c.outputs; ++m) {
    const bool in_place = m == 0 && c.in_place && !wide;
    outputs.push_back(in_place ? sources.back() : &make(width, m + 3));
  }
  Array& packet = make(width, 1);

  // Expected: hop by hop.
  std::vector<std::uint64_t> expected(c.count);
  const auto divisor = static_cast<std::uint32_t>(c.ranks * c.members);
  for (std::size_t i = 0; i < c.count; ++i) {
    for (std::size_t r = 0; r < c.ranks; ++r) {
      std::vector<std::uint64_t> values;
      for (Array* input : inputs[r]) values.push_back(load_element(input->data(), i, width));
      if (r > 0) values.push_back(expected[i]);
      const bool last = r + 1 == c.ranks && c.finalize;
      expected[i] = expected_fold(c.type, c.redop, values, last ? divisor : 1,
                                  factors_of(c.redop, r * c.members, c.members));
    }
  }

  std::string wrong;
  for (Array& array : arrays) reach.add(array);
  for (std::size_t r = 0; r < c.ranks && wrong.empty(); ++r) {
    if (sources[r] == inputs[r][0]) continue;
    std::vector<const std::byte*> bases;
    for (Array* input : inputs[r]) bases.push_back(input->data());
    Entry load;
    load.kind = Kind::kLoadWide;
    if (!c.wide) load.kind = Kind::kLoad;
    load.datatype = c.type;
    load.redop = c.redop;
    load.member_count = static_cast<std::uint16_t>(c.members);
    load.count = static_cast<std::uint32_t>(c.count);
    load.packet = sources[r]->data();
    load.inputs = bases.data();
    const std::vector<double> factors = factors_of(c.redop, r * c.members, c.members);
    load.factors = factors.data();
    wrong = submit_and_wait(backend, load, reach);
  }
  constexpr std::size_t kOffsetBytes = 32;
  constexpr std::ptrdiff_t kShiftBytes = -16;
  std::vector<const std::byte*> bases;
  std::vector<std::byte*> targets;
  for (Array* source : sources) bases.push_back(source->data() - kOffsetBytes);
  for (Array* output : outputs) targets.push_back(output->data() - kOffsetBytes - kShiftBytes);
  Entry entry;
  entry.kind = Kind::kFoldInOrder;
  entry.datatype = c.type;
  entry.redop = c.redop;
  entry.finalize = c.finalize;
  entry.wide = c.wide;
  entry.source_count = static_cast<std::uint16_t>(c.ranks);
  entry.output_count = static_cast<std::uint16_t>(c.outputs);
  entry.count = static_cast<std::uint32_t>(c.count);
  entry.divisor = divisor;
  entry.packet = c.packet ? packet.data() : nullptr;
  entry.inputs = bases.data();
  entry.outputs = c.outputs != 0 ? targets.data() : nullptr;
  entry.offset_bytes = kOffsetBytes;
  entry.output_shift_bytes = kShiftBytes;
  if (wrong.empty()) wrong = submit_and_wait(backend, entry, reach);
  for (Array& array : arrays) reach.remove(array);

  const auto check = [&](Array& array, const std::string& name) {
    for (std::size_t i = 0; i < c.count && wrong.empty(); ++i) {
      const std::uint64_t got = load_element(array.data(), i, width);
      if (got != expected[i]) {
        wrong = name + " element " + std::to_string(i) + ": got " + std::to_string(got) +
                ", want " + std::to_string(expected[i]);
      }
    }
  };
  if (c.packet) check(packet, "packet");
  for (std::size_t m = 0; m < c.outputs; ++m) check(*outputs[m], "output " + std::to_string(m));
  for (const Array& array : arrays) {
    const std::size_t end = array.start + array.bytes;
    for (std::size_t i = 0; i < array.storage.size() && wrong.empty(); ++i) {
      if ((i < array.start || i >= end) && array.storage[i] != static_cast<std::byte>(0xa5 ^ i)) {
        wrong = "guard byte " + std::to_string(i);
      }
    }
  }
  return wrong.empty() ? wrong : describe(c, backend.name()) + ": " + wrong;
}

/// Calls `check(case, random)` for n from 1 to 9 and 16, awkward counts, unaligned arrays.
template <class Check>
void for_each_order_case(DataType type, RedOp redop, Check&& check) {
  if (!fits(redop, type)) return;
  constexpr std::array<std::size_t, 9> kCounts = {1, 2, 7, 31, 64, 65, 513, 1000, 2049};
  constexpr std::array<std::size_t, 4> kMisalignments = {0, 1, 2, 10};
  std::mt19937_64 random(static_cast<std::uint64_t>(type) * 16 + static_cast<std::uint64_t>(redop) +
                         1000);
  std::size_t index = 0;
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u}) {
    for (const std::size_t members : {1u, 3u}) {
      for (const std::size_t count : kCounts) {
        ++index;
        OrderCase c;
        c.type = type;
        c.redop = redop;
        c.ranks = ranks;
        c.members = members;
        // A contribution of several members keeps its bits only if it is wide. One rank's copy of
        // bits is not a fold, so only the narrow one gives it.
        c.wide = members > 1 || (ranks > 1 && index % 2 == 0);
        // So does a product.
        if (redop == RedOp::kPremulSum) c.wide = true;
        c.count = count;
        c.misalignment = kMisalignments[(index / 2) % kMisalignments.size()];
        c.finalize = index % 5 != 0;
        c.outputs = index % 4;
        c.packet = c.outputs == 0 || index % 3 == 0;
        c.in_place = index % 7 < 3;
        check(c, random);
      }
    }
  }
}

}  // namespace gradwire::test
