// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The ops of a client, from a slot in the daemon's queue until their outcome has been reported. An
/// op ends once: by the daemon's completion, or with its group or the connection. Its result is
/// copied to where it belongs by whoever reports it.
///
/// The client's lock guards it. Functions that take the lock may let it go meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/connection.h"
#include "client/counters.h"
#include "client/daemon_memory.h"
#include "client/gradwire.h"
#include "client/handles.h"

namespace gradwire::client {

/// As errors name an op.
[[nodiscard]] std::string describe(const gw_work& work);
/// Of an op that is over.
[[nodiscard]] Result<void> outcome(const gw_work& work);

class Works {
 public:
  /// All of them outlive it.
  Works(Connection& connection, DaemonMemory& memory, const Groups& groups, Counters& counters);

  // Posting.
  /// Takes a slot for an op that is placed, if its memory is no other op's.
  [[nodiscard]] Result<void> claim(const std::shared_ptr<gw_work>& work);
  /// Of an op that is not posted after all.
  void release_slot(gw_work& work);
  /// Its handle is given to the caller.
  void await(const std::shared_ptr<gw_work>& work);

  // Ends.
  /// @return the op with that number whose end is awaited; nullptr if there is none.
  [[nodiscard]] gw_work* posted(std::uint64_t request_id) const noexcept;
  void finish(gw_work& work, ErrorCode code, std::string text, std::uint64_t op_seq);
  void fail_all(ErrorCode code, const std::string& text);
  void mark_aborted(gw_group& group, std::string text);
  /// Somebody hears of the abort.
  void report_abort(gw_group& group);

  // Reports.
  /// Of an op that is over: copies its result, or has it copied.
  void report(Lock& lock, gw_work& work);
  /// Of an op on a stream: waits until its result is there, or lets the stream wait.
  [[nodiscard]] Result<void> await_return(Lock& lock, gw_work& work, Deadline deadline,
                                          std::optional<void*> stream);
  /// Nobody will ask for its outcome.
  void release(gw_work& work);

  /// Keeps what nobody can report out of the descriptor that callers poll.
  void choose_sources() noexcept;

 private:
  static constexpr std::uint64_t kSlots = GW_MAX_OUTSTANDING + GW_MAX_TRANSFERS;

  [[nodiscard]] Result<void> check_overlap(const gw_work& work) const;
  void stop_awaiting(gw_work& work) noexcept;
  void end_copy(gw_work& work, const Result<void>& copied);
  void conclude(gw_work& work);
  void settle_return(gw_work& work);

  Connection& connection_;
  DaemonMemory& memory_;
  const Groups& groups_;
  Counters& counters_;
  std::array<std::shared_ptr<gw_work>, kSlots> slots_;  ///< index = request_id % kSlots; those of
                                                        ///< transfers come last
  std::vector<std::uint16_t> free_slots_;
  std::vector<std::uint16_t> free_transfer_slots_;
  std::uint64_t next_sequence_ = 1;
  std::vector<gw_work*> in_flight_;  ///< the works of slots_
  std::vector<gw_work*> uncopied_;   ///< finished; the caller's output waits to be written
  std::uint64_t awaited_ = 0;        ///< unfinished ops whose handles are not freed
};

}  // namespace gradwire::client
