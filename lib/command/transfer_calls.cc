// SPDX-License-Identifier: BSD-3-Clause
#include "command/transfer_calls.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/require.h"
#include "collective/transfers/transfer_chunks.h"

namespace gradwire::command {
namespace {

wire::TransferCall kind_of(Collective collective) noexcept {
  switch (collective) {
    case Collective::kAllToAll:
      return wire::TransferCall::kAllToAll;
    case Collective::kGather:
      return wire::TransferCall::kGather;
    case Collective::kScatter:
      return wire::TransferCall::kScatter;
    default:
      return wire::TransferCall::kSendRecv;
  }
}

}  // namespace

TransferCalls::TransferCalls(const GroupProcesses& processes, std::uint16_t rank,
                             std::uint16_t members, std::uint8_t lanes, std::uint16_t streams)
    : processes_(processes),
      rank_(rank),
      count_(processes.count()),
      streams_(streams),
      all_lanes_(static_cast<std::uint16_t>((1u << lanes) - 1)),
      members_(members),
      places_(std::uint32_t{members} * kCalls),
      calls_(places_),
      pairs_(std::size_t{members} * 2 * count_ * streams_),
      orders_(lanes),
      order_places_(std::bit_ceil(pairs_.size())),
      begun_(order_places_ * lanes),
      over_(places_) {}

void TransferCalls::make(std::uint32_t index) noexcept {
  const auto own = static_cast<std::uint16_t>(process(member_of(index)));
  const auto there = static_cast<std::uint16_t>(other_of(index));
  const bool outgoing = goes_out(index);
  Pair& pair = pairs_[index] = Pair{};
  pair.made = true;
  pair.spec.id = index;
  pair.spec.end =
      outgoing ? collective::TransferEnd::kSource : collective::TransferEnd::kDestination;
  pair.spec.pair = outgoing ? wire::ProcessPair{own, there} : wire::ProcessPair{there, own};
  pair.spec.pair.stream = static_cast<std::uint16_t>(stream_of(index));
  const std::uint8_t first =
      collective::TransferChunks::first_lane(pair.spec.pair, static_cast<std::uint8_t>(lanes()));
  pair.lanes = stream_of(index) == 0 ? all_lanes_ : static_cast<std::uint16_t>(1u << first);
}

bool TransferCalls::involves(const CollectiveCall& call, std::uint32_t process, bool outgoing,
                             std::uint32_t other) noexcept {
  switch (call.collective) {
    case Collective::kSend:
      return outgoing && other == call.root;
    case Collective::kRecv:
      return !outgoing && other == call.root;
    case Collective::kAllToAll:
      return true;
    case Collective::kGather:
      return outgoing ? other == call.root : process == call.root;
    case Collective::kScatter:
      return outgoing ? process == call.root : other == call.root;
    default:
      return false;
  }
}

std::uint32_t TransferCalls::pairs_of(const CollectiveCall& call,
                                      std::uint32_t process) const noexcept {
  if (call.collective == Collective::kAllToAll) return 2 * count_;
  return process == call.root ? count_ + 1 : 1;  // a gather, a scatter
}

void TransferCalls::add(std::uint16_t member, RecordIndex record,
                        const TransferCommand& command) noexcept {
  const std::uint32_t index = member * kCalls + record;
  Call& call = calls_[index];
  require(call.number == 0, "a client's record has one call at a time");
  call = {};
  call.command = command;
  call.number = ++members_[member].calls;
  const CollectiveCall& what = command.call;
  if (has_partner(what.collective)) {
    call.left = 1;
    const std::uint32_t at =
        pair_index(member, what.collective == Collective::kSend, what.root, command.stream);
    streams_used_ = std::max(streams_used_, command.stream + 1u);
    Pair& own = pair(at);
    call.before = own.last;
    (own.last == kNone ? own.first : calls_[own.last].next) = index;
    own.last = index;
    if (!own.under_way) take_next(at);
    return;
  }
  Member& own = members_[member];
  call.before = own.last_many;
  (own.last_many == kNone ? own.first_many : calls_[own.last_many].next) = index;
  own.last_many = index;
  call.left = pairs_of(what, process(member)) + 1;  // one more until all of them were looked at
  (last_opened_ == kNone ? first_opened_ : calls_[last_opened_].next_opened) = index;
  last_opened_ = index;
}

std::uint32_t TransferCalls::open_some(std::uint32_t most) noexcept {
  std::uint32_t looks = 0;
  while (first_opened_ != kNone && looks < most) {
    const std::uint32_t index = first_opened_;
    const std::uint32_t member = index / kCalls;
    const CollectiveCall& what = calls_[index].command.call;
    for (; open_at_ < 2 * count_ && looks < most; ++open_at_, ++looks) {
      const bool outgoing = open_at_ < count_;
      const std::uint32_t other = outgoing ? open_at_ : open_at_ - count_;
      if (!involves(what, process(member), outgoing, other)) continue;
      const std::uint32_t at = pair_index(member, outgoing, other);
      // Calls before this one have begun, so a pair that has nothing under way takes this one next,
      // if it did not take it already when it was done with another.
      if (Pair& own = pair(at); !own.under_way && own.taken < calls_[index].number)
        begin(at, index);
    }
    if (open_at_ < 2 * count_) break;
    open_at_ = 0;
    first_opened_ = calls_[index].next_opened;
    if (first_opened_ == kNone) last_opened_ = kNone;
    if (--calls_[index].left == 0) forget(member, index);
  }
  return looks;
}

std::uint32_t TransferCalls::take_next(std::uint32_t index) noexcept {
  Pair& pair = pairs_[index];
  const std::uint32_t member = member_of(index);
  const bool outgoing = goes_out(index);
  std::uint32_t chosen = pair.first;
  std::uint32_t looks = 0;
  std::uint32_t many = stream_of(index) == 0 ? members_[member].first_many : kNone;
  for (; many != kNone; many = calls_[many].next) {
    ++looks;
    const Call& call = calls_[many];
    if (call.number <= pair.taken) continue;
    if (chosen != kNone && calls_[chosen].number < call.number) break;
    if (!involves(call.command.call, process(member), outgoing, other_of(index))) continue;
    chosen = many;
    break;
  }
  if (chosen != kNone) begin(index, chosen);
  return looks;
}

void TransferCalls::begin(std::uint32_t index, std::uint32_t chosen) noexcept {
  Pair& pair = pairs_[index];
  const Call& call = calls_[chosen];
  const std::uint32_t member = member_of(index);
  const bool outgoing = goes_out(index);
  pair.taken = call.number;
  ++pair.begun;
  pair.call = chosen;
  pair.under_way = true;
  pair.lanes_done = 0;
  if (has_partner(call.command.call.collective)) {
    pair.first = call.next;
    if (pair.first == kNone) pair.last = kNone;
    if (pair.first != kNone) calls_[pair.first].before = kNone;
  }
  Block block;
  if (!find_block(call, outgoing, other_of(index), block)) {
    wrong_splits_ = member;
    return;
  }
  collective::TransferSpec& spec = pair.spec;
  spec.terms.bytes = block.bytes;
  spec.terms.tag = call.command.call.tag;
  spec.terms.call = kind_of(call.command.call.collective);
  spec.from = outgoing ? block.at : nullptr;
  spec.to = outgoing ? nullptr : const_cast<std::byte*>(block.at);
  spec.up_to = call.command.up_to;
  // The lowest is the stream's first lane.
  hand_to(spec.up_to ? static_cast<std::uint16_t>(pair.lanes & -pair.lanes) : pair.lanes, index);
}

void TransferCalls::hand_to(std::uint16_t lanes, std::uint32_t index) noexcept {
  for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(left));
    LaneOrder& order = orders_[lane];
    begun_[lane * order_places_ + (order.begun++ & (order_places_ - 1))] = index;
  }
}

void TransferCalls::lane_sized(std::uint64_t id, std::uint64_t bytes) noexcept {
  require(id < pairs_.size() && pairs_[id].under_way && pairs_[id].spec.up_to &&
              bytes <= pairs_[id].spec.terms.bytes,
          "a lane tells the size of a receive under way that has room for so much");
  // The first lane has made a copy.
  Pair& pair = pairs_[id];
  pair.spec.up_to = false;
  pair.spec.terms.bytes = bytes;
  hand_to(static_cast<std::uint16_t>(pair.lanes & (pair.lanes - 1)),
          static_cast<std::uint32_t>(id));
}

/// @return false if the splits say something that the call's memory does not hold.
bool TransferCalls::find_block(const Call& call, bool outgoing, std::uint32_t other,
                               Block& out) const noexcept {
  const CollectiveCall& what = call.command.call;
  const Range& range = outgoing ? call.command.ranges.input : call.command.ranges.output;
  const auto all = static_cast<std::uint64_t>(range.end - range.begin);
  const bool whole = has_partner(what.collective) ||
                     (what.collective == Collective::kGather && outgoing) ||
                     (what.collective == Collective::kScatter && !outgoing);
  out = {range.begin, all};
  if (whole) return true;
  std::uint64_t offset = 0;
  if (call.command.splits == nullptr) {
    out.bytes = what.count * element_bytes(what.datatype);
    offset = other * out.bytes;
  } else {
    const bool second = what.collective == Collective::kAllToAll && !outgoing;
    const ipc::SplitTable::Block& given =
        call.command.splits->blocks()[other + (second ? count_ : 0)];
    out.bytes = __atomic_load_n(&given.bytes, __ATOMIC_RELAXED);
    offset = __atomic_load_n(&given.offset, __ATOMIC_RELAXED);
  }
  if (offset > all || out.bytes > all - offset) return false;
  if (out.bytes != 0) out.at = range.begin + offset;
  return true;
}

std::uint32_t TransferCalls::lane_done(std::uint64_t id, std::uint8_t lane) noexcept {
  require(id < pairs_.size() && pairs_[id].under_way, "a lane ends a transfer that is under way");
  Pair& pair = pairs_[id];
  pair.lanes_done |= static_cast<std::uint16_t>(1u << lane);
  if (pair.lanes_done != pair.lanes) return 0;
  pair.under_way = false;
  const std::uint32_t index = std::exchange(pair.call, kNone);
  const auto member = static_cast<std::uint16_t>(member_of(static_cast<std::uint32_t>(id)));
  Call& call = calls_[index];
  require(call.left > 0, "a call has so many transfers as it waits for");
  call.moved = pair.spec.terms.bytes;
  if (--call.left == 0) forget(member, index);
  return take_next(static_cast<std::uint32_t>(id));
}

bool TransferCalls::needs(std::uint16_t member, std::uint16_t gone) const noexcept {
  // What waits stands behind one that is under way.
  for (std::uint32_t stream = 0; stream < streams_used_; ++stream) {
    for (const bool outgoing : {true, false}) {
      const Pair& own = pairs_[pair_index(member, outgoing, process(gone), stream)];
      const Pair& there = pairs_[pair_index(gone, !outgoing, process(member), stream)];
      if (own.under_way && own.begun > there.begun) return true;
    }
  }
  return false;
}

/// A call is over.
void TransferCalls::forget(std::uint32_t member, std::uint32_t index) noexcept {
  Call& call = calls_[index];
  if (!has_partner(call.command.call.collective)) {
    Member& own = members_[member];
    (call.before == kNone ? own.first_many : calls_[call.before].next) = call.next;
    (call.next == kNone ? own.last_many : calls_[call.next].before) = call.before;
  }
  call.number = 0;
  ++members_[member].ended;
  over_[(over_head_ + over_count_++) % over_.size()] = {static_cast<std::uint16_t>(member),
                                                        static_cast<RecordIndex>(index % kCalls),
                                                        call.command.call.collective, 0};
  if (has_partner(call.command.call.collective)) {
    over_[(over_head_ + over_count_ - 1) % over_.size()].bytes = call.moved;
  }
}

const collective::TransferSpec* TransferCalls::next(std::uint8_t lane) const noexcept {
  const LaneOrder& order = orders_[lane];
  if (order.given == order.begun) return nullptr;
  return &pairs_[begun_[lane * order_places_ + (order.given & (order_places_ - 1))]].spec;
}

bool TransferCalls::has_news() const noexcept {
  return first_opened_ != kNone || std::ranges::any_of(orders_, [](const LaneOrder& order) {
           return order.given != order.begun;
         });
}

bool TransferCalls::pop_over(Over& out) noexcept {
  if (over_count_ == 0) return false;
  out = over_[over_head_];
  over_head_ = (over_head_ + 1) % over_.size();
  --over_count_;
  return true;
}

bool TransferCalls::next_unfinished(Over& out) noexcept {
  first_opened_ = last_opened_ = kNone;
  for (std::uint32_t looks = 0; looks < kLooks && ending_ < places_; ++looks) {
    if (members_[ending_ / kCalls].calls == 0) {  // it called nothing
      ending_ += kCalls;
      continue;
    }
    const std::uint32_t index = ending_++;
    if (calls_[index].number == 0) continue;
    calls_[index].number = 0;
    out = {static_cast<std::uint16_t>(index / kCalls), static_cast<RecordIndex>(index % kCalls)};
    return true;
  }
  return false;
}

bool TransferCalls::pop_wrong_splits(std::uint16_t& member) noexcept {
  if (wrong_splits_ == kNone) return false;
  member = static_cast<std::uint16_t>(std::exchange(wrong_splits_, kNone));
  return true;
}

}  // namespace gradwire::command
