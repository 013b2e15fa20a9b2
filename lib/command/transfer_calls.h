// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Sends, receives, all-to-alls, gathers and scatters of one group at this rank: they are made of
/// transfers, of which each stream of an ordered pair of processes has one under way at a time, in
/// the order in which the process called them. A call waits for nothing but its own pairs, whatever
/// other calls wait for. `Pair` below is one stream of a pair; calls with many pairs take stream 0.
///
/// How a call becomes transfers. A member's calls are a list in the order of the calls; those with
/// one pair (send, receive) stand in a list of their pair besides. A pair whose transfer has ended
/// takes the next call that has bytes for it, whichever list that is in. Its transfer goes to every
/// lane; when every lane has reported it, the pair takes the next, and a call whose transfers have
/// all ended is done.
///
/// Whatever a member calls, one call of a function here does a bounded amount of work: a call of
/// many pairs is begun in parts, by open_some(), and a group that ends is ended in parts, by
/// next_unfinished().
///
/// The command lane owns it. Nothing allocates but the constructor; no clock, no ports.
#pragma once

#include <cstdint>
#include <vector>

#include "base/collective_call.h"
#include "base/process_layout.h"
#include "base/zeroed_array.h"
#include "collective/transfers/transfer.h"
#include "command/command_check.h"
#include "ipc/command_queue.h"

namespace gradwire::command {

/// What a member called.
struct TransferCommand {
  CollectiveCall call;
  CommandRanges ranges;
  /// Where blocks lie, if splits were given: the client's own memory, which it may change at any
  /// time, so what is read there is checked when it is read. [1 + blocks]
  const ipc::SplitTable* splits = nullptr;
  bool up_to = false;        ///< a receive: its source may send less than it has room for
  std::uint16_t stream = 0;  ///< of a send or a receive: of its pair
};

class TransferCalls {
 public:
  /// Names one call of one member: its record at the client.
  using RecordIndex = std::uint16_t;

  /// @param members  processes at this rank
  /// @param lanes    1 or more
  /// @param streams  that a pair may have, 1 or more
  TransferCalls(const GroupProcesses& processes, std::uint16_t rank, std::uint16_t members,
                std::uint8_t lanes, std::uint16_t streams = 1);

  /// The next call of a member. It is over at once if pop_over() says so. Transfers of a call with
  /// many pairs begin with open_some().
  void add(std::uint16_t member, RecordIndex record, const TransferCommand& command) noexcept;
  /// Begins transfers of calls that were added, at most so many. @return how many pairs it looked
  /// at.
  std::uint32_t open_some(std::uint32_t most) noexcept;
  /// A lane is done with the transfer of that id. @return how many calls it looked at to find the
  /// pair's next.
  std::uint32_t lane_done(std::uint64_t id, std::uint8_t lane) noexcept;

  /// The first lane knows how many bytes a receive of at most so many gets: the others are to be
  /// given it, too.
  void lane_sized(std::uint64_t id, std::uint64_t bytes) noexcept;

  /// The next transfer that `lane` has to be given; nullptr: there is none. Valid until every lane
  /// has reported it, or the group is closed.
  [[nodiscard]] const collective::TransferSpec* next(std::uint8_t lane) const noexcept;
  /// It was given.
  void given(std::uint8_t lane) noexcept { ++orders_[lane].given; }
  /// Whether any lane has one to be given, or open_some() has something to begin.
  [[nodiscard]] bool has_news() const noexcept;

  /// Calls of a member that have not ended.
  [[nodiscard]] std::uint64_t unfinished(std::size_t member) const noexcept {
    return members_[member].calls - members_[member].ended;
  }
  /// Whether a member waits for a transfer with another one of this rank that is `gone`: whose
  /// calls have all ended, and which calls no more.
  [[nodiscard]] bool needs(std::uint16_t member, std::uint16_t gone) const noexcept;

  struct Over {
    std::uint16_t member = 0;
    RecordIndex record = 0;
    Collective collective = Collective::kSend;
    std::uint64_t bytes = 0;  ///< that a send or a receive has moved
  };
  /// @return whether a call has ended: it is forgotten.
  [[nodiscard]] bool pop_over(Over& out) noexcept;
  /// Of a group that has ended: looks at the next places of calls, kLooks at most.
  /// @return whether `out` is a call that had not ended. It is forgotten.
  [[nodiscard]] bool next_unfinished(Over& out) noexcept;
  /// Whether next_unfinished() has looked at all.
  [[nodiscard]] bool all_ended() const noexcept { return ending_ == places_; }
  static constexpr std::uint32_t kLooks = 64;
  /// A member whose splits were wrong when they were read: it changed them after its call.
  [[nodiscard]] bool pop_wrong_splits(std::uint16_t& member) noexcept;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kCalls = ipc::kCompletionEntries;  // of a member

  struct Call {
    TransferCommand command;
    std::uint64_t number = 0;  // among the member's, from 1; 0: the place is free
    std::uint32_t left = 0;    // transfers that have not ended
    std::uint64_t moved = 0;   // bytes of the last transfer that has ended
    std::uint32_t next =
        kNone;  // in the member's list of calls with many pairs, or the pair's list
    std::uint32_t before = kNone;       // in the member's list
    std::uint32_t next_opened = kNone;  // in the list of those to be begun
  };
  struct Pair {
    std::uint64_t taken = 0;      // the number of the last call that it took
    std::uint64_t begun = 0;      // how many it has taken
    std::uint32_t first = kNone;  // calls of this pair alone
    std::uint32_t last = kNone;
    std::uint32_t call = kNone;  // under way
    std::uint16_t lanes = 0;     // a bit for each that has a part in it
    std::uint16_t lanes_done = 0;
    bool under_way = false;
    bool made = false;  // else what is above is not set yet
    collective::TransferSpec spec;
  };
  struct Member {
    std::uint64_t calls = 0;
    std::uint64_t ended = 0;
    std::uint32_t first_many = kNone;
    std::uint32_t last_many = kNone;
  };
  struct Block {
    const std::byte* at = nullptr;
    std::uint64_t bytes = 0;
  };

  [[nodiscard]] std::uint32_t pair_index(std::uint32_t member, bool outgoing, std::uint32_t other,
                                         std::uint32_t stream = 0) const noexcept {
    return ((member * 2 + (outgoing ? 0 : 1)) * count_ + other) * streams_ + stream;
  }
  // What pair_index() has put together.
  [[nodiscard]] std::uint32_t stream_of(std::uint32_t pair) const noexcept {
    return pair % streams_;
  }
  [[nodiscard]] std::uint32_t other_of(std::uint32_t pair) const noexcept {
    return pair / streams_ % count_;
  }
  [[nodiscard]] bool goes_out(std::uint32_t pair) const noexcept {
    return pair / streams_ / count_ % 2 == 0;
  }
  [[nodiscard]] std::uint32_t member_of(std::uint32_t pair) const noexcept {
    return pair / streams_ / count_ / 2;
  }
  /// Sets it up when it is used first.
  [[nodiscard]] Pair& pair(std::uint32_t index) noexcept {
    if (!pairs_[index].made) make(index);
    return pairs_[index];
  }
  void make(std::uint32_t index) noexcept;
  /// How many pairs of a process a call with many has.
  [[nodiscard]] std::uint32_t pairs_of(const CollectiveCall& call,
                                       std::uint32_t process) const noexcept;
  [[nodiscard]] std::uint32_t process(std::uint32_t member) const noexcept {
    return processes_.process_of(rank_, member);
  }
  /// Whether the call has a transfer on this side with that process.
  [[nodiscard]] static bool involves(const CollectiveCall& call, std::uint32_t process,
                                     bool outgoing, std::uint32_t other) noexcept;
  /// @return how many calls it looked at.
  std::uint32_t take_next(std::uint32_t pair) noexcept;
  void begin(std::uint32_t pair, std::uint32_t call) noexcept;
  [[nodiscard]] bool find_block(const Call& call, bool outgoing, std::uint32_t other,
                                Block& out) const noexcept;
  void forget(std::uint32_t member, std::uint32_t index) noexcept;
  [[nodiscard]] std::size_t lanes() const noexcept { return orders_.size(); }
  /// @param lanes  a bit for each
  void hand_to(std::uint16_t lanes, std::uint32_t pair) noexcept;

  const GroupProcesses processes_;
  const std::uint16_t rank_;
  const std::uint32_t count_;      // processes of the group
  const std::uint32_t streams_;    // of a pair
  const std::uint16_t all_lanes_;  // a bit each
  std::vector<Member> members_;
  // Both may be large: 133 KB and up to 12 MB for each member. Their pages are there when they are
  // used first, and the lane does not make them all at once.
  const std::uint32_t places_;
  ZeroedArray<Call> calls_;             // [members][kCalls], by record
  ZeroedArray<Pair> pairs_;             // [members][out, in][processes][streams]
  std::uint32_t streams_used_ = 1;      // no stream from here on was called
  std::uint32_t first_opened_ = kNone;  // calls to be begun, in order
  std::uint32_t last_opened_ = kNone;
  std::uint32_t open_at_ = 0;  // pairs of the first of them that were looked at
  std::uint32_t ending_ = 0;   // places that next_unfinished() has looked at
  // Transfers in the order in which each lane is to be given them: rings, since a pair begins none
  // before every lane has had its last.
  struct LaneOrder {
    std::uint64_t begun = 0;
    std::uint64_t given = 0;
  };
  std::vector<LaneOrder> orders_;     // by lane
  const std::size_t order_places_;    // a power of two
  ZeroedArray<std::uint32_t> begun_;  // [lanes][order_places_]
  ZeroedArray<Over> over_;            // a ring
  std::size_t over_head_ = 0;
  std::size_t over_count_ = 0;
  std::uint32_t wrong_splits_ = kNone;  // a member
};

}  // namespace gradwire::command
