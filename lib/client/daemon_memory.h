// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Memory of a client that its daemon sees too: what the caller allocated, what ops are copied
/// through (StagingPool), and what CUDA still copies from or to, of ops that are over; and the
/// daemon's events of a GPU's streams. Memory on a GPU is closed here before the daemon frees it.
///
/// The client's lock guards it. Functions that take the lock may let it go meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "client/connection.h"
#include "client/handles.h"
#include "client/staging.h"
#include "client/stream_copies.h"

namespace gradwire::client {

class DaemonMemory {
 public:
  /// The connection outlives it.
  /// @param request_timeout  of a request to the daemon.
  /// @param cache_bytes      StagingPool's.
  DaemonMemory(Connection& connection, std::chrono::milliseconds request_timeout,
               std::uint64_t cache_bytes)
      : connection_(connection), request_timeout_(request_timeout), staging_(cache_bytes) {}

  // The caller's.
  /// New memory, which find() knows.
  [[nodiscard]] Result<std::shared_ptr<Mapping>> allocate(Lock& lock, std::uint64_t bytes);
  /// No new op can use it from here on.
  void withdraw(const Mapping& mapping);
  /// @return none if `start` is not in the caller's.
  [[nodiscard]] Result<std::shared_ptr<Mapping>> find(const std::byte* start, std::uint64_t bytes,
                                                      const char* what) const;

  // What ops are copied through.
  [[nodiscard]] Result<StagingSlot> take_staging(Lock& lock, std::uint64_t bytes);
  void give_back(StagingSlot slot);
  /// Gives back an op's, or keeps it until CUDA is through with it.
  void drop_staging(gw_work& work);
  [[nodiscard]] std::uint64_t staging_bytes() const noexcept { return staging_.total_bytes(); }

  // What CUDA still copies from or to.
  [[nodiscard]] bool has_leaving() const noexcept { return !leaving_.empty(); }
  void take_back_leaving();
  /// Of ops that are over, results that are still copied to memory which `work` uses.
  [[nodiscard]] std::vector<StreamOp::EventPtr> results_under(const gw_work& work) const;
  /// What is left when the client ends.
  [[nodiscard]] std::vector<LeavingMemory> take_leaving() { return std::move(leaving_); }

  // Events.
  /// What an op on a stream needs of the daemon, or here.
  [[nodiscard]] Result<void> take_event(Lock& lock, gw_work& work);
  void give_back(ReadyEvent ready);

 private:
  [[nodiscard]] Result<std::shared_ptr<Mapping>> request_mapping(Lock& lock, std::uint64_t bytes);
  [[nodiscard]] Result<std::shared_ptr<Mapping>> map_reply(ipc::Message& reply);
  [[nodiscard]] Result<std::shared_ptr<Mapping>> open_on_gpu(const ipc::CudaAllocateReply& reply);
  void forget(std::uint32_t handle);
  void forget(std::shared_ptr<Mapping> mapping);
  /// @param before  came_back_ as it was
  /// @return whether memory has come back since, and before `deadline`.
  [[nodiscard]] bool await_leaving(Lock& lock, Deadline deadline, std::uint64_t before);

  Connection& connection_;
  const std::chrono::milliseconds request_timeout_;
  std::map<std::uintptr_t, std::shared_ptr<Mapping>> shared_;  ///< by start address
  StagingPool staging_;
  std::shared_ptr<gpu::Device> gpu_;    ///< where shared memory is, if it is on one
  std::vector<LeavingMemory> leaving_;  ///< until CUDA is through with it
  std::uint64_t came_back_ = 0;         ///< how many of these have, so far
  std::vector<ReadyEvent> free_events_;
};

/// Whether two pieces of memory have a byte in common.
[[nodiscard]] bool overlap(const std::byte* a, const std::byte* b, std::uint64_t a_bytes,
                           std::uint64_t b_bytes) noexcept;

}  // namespace gradwire::client
