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

/// The arrays of one case, the entries that point to them, and what these come to.
class OrderWork {
 public:
  OrderWork(const OrderCase& of, std::mt19937_64& random);
  OrderWork(const OrderWork&) = delete;
  OrderWork& operator=(const OrderWork&) = delete;

  /// Each rank's contribution, unless it is the input itself. They end before `fold` begins.
  std::vector<Entry> loads;
  Entry fold;

  void enter(Reach& reach) {
    for (Array& array : arrays_) reach.add(array);
  }
  void leave(Reach& reach) {
    for (Array& array : arrays_) reach.remove(array);
  }
  /// @return what is wrong after the fold, or an empty string.
  [[nodiscard]] std::string wrong();

 private:
  Array& make(std::uint32_t bytes_each, std::size_t shift) {
    arrays_.emplace_back(c_.count * bytes_each, (c_.misalignment * shift) % 64);
    return arrays_.back();
  }
  void add_load(std::size_t rank, std::byte* to);
  void describe_fold();

  const OrderCase c_;
  const std::uint32_t width_;
  const bool wide_;
  std::deque<Array> arrays_;  // their addresses stay
  std::vector<std::vector<Array*>> inputs_;
  std::vector<Array*> sources_;
  std::vector<Array*> outputs_;
  Array* packet_ = nullptr;
  std::vector<std::uint64_t> expected_;
  // What entries point to.
  std::deque<std::vector<const std::byte*>> bases_;
  std::deque<std::vector<double>> factors_;
  std::vector<std::byte*> targets_;
};

inline OrderWork::OrderWork(const OrderCase& of, std::mt19937_64& random)
    : c_(of),
      width_(element_bytes(of.type)),
      wide_(of.wide && has_wide_form(of.type)),
      inputs_(of.ranks),
      expected_(of.count) {
  for (std::size_t r = 0; r < c_.ranks; ++r) {
    for (std::size_t m = 0; m < c_.members; ++m) {
      Array& input = make(width_, r + m + 1);
      for (std::size_t i = 0; i < c_.count; ++i) {
        store_element(input.data(), i, width_, awkward_element(c_.type, random));
      }
      inputs_[r].push_back(&input);
    }
    const bool is_input = c_.members == 1 && !c_.wide && c_.redop != RedOp::kPremulSum;
    sources_.push_back(is_input ? inputs_[r][0] : &make(wide_ ? 4 : width_, r + 2));
  }
  for (std::size_t m = 0; m < c_.outputs; ++m) {
    const bool in_place = m == 0 && c_.in_place && !wide_;
    outputs_.push_back(in_place ? sources_.back() : &make(width_, m + 3));
  }
  packet_ = &make(width_, 1);
  // Expected: hop by hop.
  const auto divisor = static_cast<std::uint32_t>(c_.ranks * c_.members);
  for (std::size_t i = 0; i < c_.count; ++i) {
    for (std::size_t r = 0; r < c_.ranks; ++r) {
      std::vector<std::uint64_t> values;
      for (Array* input : inputs_[r]) values.push_back(load_element(input->data(), i, width_));
      if (r > 0) values.push_back(expected_[i]);
      const bool last = r + 1 == c_.ranks && c_.finalize;
      expected_[i] = expected_fold(c_.type, c_.redop, values, last ? divisor : 1,
                                   factors_of(c_.redop, r * c_.members, c_.members));
    }
  }
  for (std::size_t r = 0; r < c_.ranks; ++r) {
    if (sources_[r] != inputs_[r][0]) add_load(r, sources_[r]->data());
  }
  describe_fold();
}

inline void OrderWork::add_load(std::size_t rank, std::byte* to) {
  std::vector<const std::byte*>& bases = bases_.emplace_back();
  for (Array* input : inputs_[rank]) bases.push_back(input->data());
  Entry& load = loads.emplace_back();
  load.kind = c_.wide ? Kind::kLoadWide : Kind::kLoad;
  load.datatype = c_.type;
  load.redop = c_.redop;
  load.member_count = static_cast<std::uint16_t>(c_.members);
  load.count = static_cast<std::uint32_t>(c_.count);
  load.packet = to;
  load.inputs = bases.data();
  load.factors = factors_.emplace_back(factors_of(c_.redop, rank * c_.members, c_.members)).data();
}

inline void OrderWork::describe_fold() {
  constexpr std::size_t kOffsetBytes = 32;
  constexpr std::ptrdiff_t kShiftBytes = -16;
  std::vector<const std::byte*>& bases = bases_.emplace_back();
  for (Array* source : sources_) bases.push_back(source->data() - kOffsetBytes);
  for (Array* output : outputs_) targets_.push_back(output->data() - kOffsetBytes - kShiftBytes);
  fold.kind = Kind::kFoldInOrder;
  fold.datatype = c_.type;
  fold.redop = c_.redop;
  fold.finalize = c_.finalize;
  fold.wide = c_.wide;
  fold.source_count = static_cast<std::uint16_t>(c_.ranks);
  fold.output_count = static_cast<std::uint16_t>(c_.outputs);
  fold.count = static_cast<std::uint32_t>(c_.count);
  fold.divisor = static_cast<std::uint32_t>(c_.ranks * c_.members);
  fold.packet = c_.packet ? packet_->data() : nullptr;
  fold.inputs = bases.data();
  fold.outputs = c_.outputs != 0 ? targets_.data() : nullptr;
  fold.offset_bytes = kOffsetBytes;
  fold.output_shift_bytes = kShiftBytes;
}

inline std::string OrderWork::wrong() {
  std::string wrong;
  const auto check = [&](Array& array, const std::string& name) {
    for (std::size_t i = 0; i < c_.count && wrong.empty(); ++i) {
      const std::uint64_t got = load_element(array.data(), i, width_);
      if (got != expected_[i]) {
        wrong = name + " element " + std::to_string(i) + ": got " + std::to_string(got) +
                ", want " + std::to_string(expected_[i]);
      }
    }
  };
  if (c_.packet) check(*packet_, "packet");
  for (std::size_t m = 0; m < c_.outputs; ++m) check(*outputs_[m], "output " + std::to_string(m));
  for (const Array& array : arrays_) {
    const std::size_t end = array.start + array.bytes;
    for (std::size_t i = 0; i < array.storage.size() && wrong.empty(); ++i) {
      if ((i < array.start || i >= end) && array.storage[i] != static_cast<std::byte>(0xa5 ^ i)) {
        wrong = "guard byte " + std::to_string(i);
      }
    }
  }
  return wrong;
}

/// @return what is wrong, or an empty string.
inline std::string run(const OrderCase& c, Backend& backend, std::mt19937_64& random,
                       Reach& reach) {
  OrderWork work(c, random);
  work.enter(reach);
  std::string wrong;
  for (const Entry& load : work.loads) {
    if (wrong.empty()) wrong = submit_and_wait(backend, load, reach);
  }
  if (wrong.empty()) wrong = submit_and_wait(backend, work.fold, reach);
  work.leave(reach);
  if (wrong.empty()) wrong = work.wrong();
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
