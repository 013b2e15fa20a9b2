// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Sends, receives, all-to-alls, gathers and scatters of one group at this rank: they are made of
/// transfers, of which each ordered pair of processes has one under way at a time, in the order in
/// which the process called them. A call waits for nothing but its own pairs, whatever other calls
/// wait for.
///
/// How a call becomes transfers. A member's calls are a list in the order of the calls; those with
/// one pair (send, receive) stand in a list of their pair besides. A pair whose transfer has ended
/// takes the next call that has bytes for it, whichever list that is in. Its transfer goes to every
/// lane; when every lane has reported it, the pair takes the next, and a call whose transfers have
/// all ended is done.
///
/// The command lane owns it. Nothing allocates but the constructor; no clock, no ports.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/collective_call.h"
#include "base/process_layout.h"
#include "collective/transfer.h"
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
};

class TransferCalls {
 public:
  /// Names one call of one member: its record at the client.
  using RecordIndex = std::uint16_t;

  /// @param members  processes at this rank
  /// @param lanes    1 or more
  TransferCalls(const GroupProcesses& processes, std::uint16_t rank, std::uint16_t members,
                std::uint8_t lanes);

  /// The next call of a member. It is over at once if pop_over() says so.
  void add(std::uint16_t member, RecordIndex record, const TransferCommand& command) noexcept;
  /// A lane is done with the transfer of that id.
  void lane_done(std::uint64_t id, std::uint8_t lane) noexcept;

  /// The next transfer that `lane` has to be given; nullptr: there is none. Valid until every lane
  /// has reported it, or the group is closed.
  [[nodiscard]] const collective::TransferSpec* next(std::uint8_t lane) const noexcept;
  /// It was given.
  void given(std::uint8_t lane) noexcept { ++given_[lane]; }
  /// Whether any lane has one to be given.
  [[nodiscard]] bool has_news() const noexcept;

  struct Over {
    std::uint16_t member = 0;
    RecordIndex record = 0;
    Collective collective = Collective::kSend;
  };
  /// @return whether a call has ended: it is forgotten.
  [[nodiscard]] bool pop_over(Over& out) noexcept;
  /// Any call that has not ended, of a group that has: it is forgotten.
  [[nodiscard]] bool pop_unfinished(Over& out) noexcept;
  /// A member whose splits were wrong when they were read: it changed them after its call.
  [[nodiscard]] bool pop_wrong_splits(std::uint16_t& member) noexcept;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kCalls = ipc::kCompletionEntries;  // of a member

  struct Call {
    TransferCommand command;
    std::uint64_t number = 0;  // among the member's, from 1; 0: the place is free
    std::uint32_t left = 0;    // transfers that have not ended
    std::uint32_t next =
        kNone;  // in the member's list of calls with many pairs, or the pair's list
    std::uint32_t before = kNone;  // in the member's list
  };
  struct Pair {
    std::uint64_t taken = 0;      // the number of the last call that it took
    std::uint32_t first = kNone;  // calls of this pair alone
    std::uint32_t last = kNone;
    std::uint32_t call = kNone;  // under way
    std::uint16_t lanes_done = 0;
    bool under_way = false;
    collective::TransferSpec spec;
  };
  struct Member {
    std::uint64_t calls = 0;
    std::uint32_t first_many = kNone;
    std::uint32_t last_many = kNone;
  };
  struct Block {
    const std::byte* at = nullptr;
    std::uint64_t bytes = 0;
  };

  [[nodiscard]] std::uint32_t pair_index(std::uint32_t member, bool outgoing,
                                         std::uint32_t other) const noexcept {
    return (member * 2 + (outgoing ? 0 : 1)) * count_ + other;
  }
  [[nodiscard]] std::uint32_t process(std::uint32_t member) const noexcept {
    return processes_.process_of(rank_, member);
  }
  /// Whether the call has a transfer on this side with that process.
  [[nodiscard]] static bool involves(const CollectiveCall& call, std::uint32_t process,
                                     bool outgoing, std::uint32_t other) noexcept;
  void take_next(std::uint32_t pair) noexcept;
  void begin(std::uint32_t pair, std::uint32_t call) noexcept;
  [[nodiscard]] bool find_block(const Call& call, bool outgoing, std::uint32_t other,
                                Block& out) const noexcept;
  void forget(std::uint32_t member, std::uint32_t index) noexcept;

  const GroupProcesses processes_;
  const std::uint16_t rank_;
  const std::uint32_t count_;      // processes of the group
  const std::uint16_t all_lanes_;  // a bit each
  std::vector<Member> members_;
  std::vector<Call> calls_;  // [members][kCalls], by record
  std::vector<Pair> pairs_;  // [members][out, in][processes]
  // Transfers in the order in which they began, for the lanes: a ring, since a pair begins none
  // before every lane has had its last.
  std::vector<std::uint32_t> begun_;
  std::uint64_t begun_count_ = 0;
  std::vector<std::uint64_t> given_;  // by lane
  std::vector<Over> over_;            // a ring
  std::size_t over_head_ = 0;
  std::size_t over_count_ = 0;
  std::uint32_t wrong_splits_ = kNone;  // a member
};

}  // namespace gradwire::command
