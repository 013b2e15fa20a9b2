// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Clients' gradient memory, from 'allocate' until nothing refers to it, and the events of their
/// streams.
///
/// Making: the worker faults memory in, one piece of each client at a time, and a client's requests
/// are answered in order. A client has at most Limits::bytes_per_client, all clients of a user at
/// most Limits::bytes_per_user, what is still being let go of included.
///
/// Removing: memory is unmapped when the command lane has said that no op refers to it. Memory of a
/// client that hung up stays the client's as long as its process may still use it: until the
/// process has closed its end of `completion`, or for memory on a CUDA device until the process has
/// ended, for some seconds at most. When nothing of a client is left, the client is forgotten.
///
/// The control thread owns it; time is a parameter. It allocates, and makes system calls to make
/// shared memory and to learn when a process ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "base/result.h"
#include "control/clients/client_table.h"
#include "control/lanes/lane_requests.h"
#include "control/memory/client_memory.h"
#include "control/options.h"
#include "control/replies.h"
#include "control/stopping.h"
#include "control/work_meter.h"
#include "ipc/closers.h"
#include "ipc/worker.h"

namespace gradwire::control {

class Memories {
 public:
  /// All of them outlive it.
  /// @param closers  nullptr: what is let go of is let go of at once.
  Memories(const ManagerOptions& options, ClientMemory& memory, ClientTable& clients,
           LaneRequests& requests, Replies& replies, WorkMeter& work, const Stopping& stopping,
           ipc::Worker& worker, ipc::Closers* closers);
  /// Frees what clients still have. The worker must have ended.
  ~Memories();
  Memories(const Memories&) = delete;
  Memories& operator=(const Memories&) = delete;

  // Requests.
  void allocate(const PendingReply& to, Client& client, std::span<const std::byte> body);
  void free(const PendingReply& to, Client& client, std::span<const std::byte> body);
  void make_event(const PendingReply& to, Client& client);

  // The command lane has done what it was asked.
  void on_added(Client& client, std::uint32_t handle);
  void on_removed(Client& client, std::uint32_t handle);
  void on_event_added(Client& client, std::uint32_t handle);

  // A client retires.
  /// Answers nothing any more, and makes nothing more for it.
  void retire(Client& client, TimeNs now);
  /// After its groups have ended.
  void remove_all(Client& client);
  /// Forgets a client that has nothing any more and is gone.
  void forget_if_gone(std::uint32_t client_id);
  /// Looks now and then which processes have ended.
  void release_lingering(TimeNs now);

 private:
  [[nodiscard]] std::uint32_t unused_handle(const Client& client);
  /// In hugepages, registered with the lanes, or on their GPU.
  [[nodiscard]] Result<Memory> make_on_gpu(std::uint64_t bytes);
  /// Starts to make the client's next memory unless the worker has one of it, so that answers come
  /// in order.
  void make_next(Client& client);
  [[nodiscard]] Result<ipc::SharedMemory> reserve(const Client& client, std::uint64_t bytes) const;
  /// Whether the user of the client may have so much more, and others' queues still find pages.
  [[nodiscard]] Result<void> room_for(const Client& client, std::uint64_t bytes) const;
  [[nodiscard]] Result<void> check_quota(std::uint64_t used, std::uint64_t bytes) const;
  /// Makes one piece of it, in the worker. @return whether all of it is done.
  [[nodiscard]] static bool make_piece(Making& making, ClientMemory& memory);
  void made(std::uint32_t client_id, std::uint32_t handle, Making& making);
  void add(Client& client, std::uint32_t handle);
  void failed(Client& client, std::uint32_t handle, const Error& error);
  void remove(Client& client, std::uint32_t handle);
  /// Unmaps it, and takes it back from whoever else has it. That takes as long as they have mapped
  /// it, so the user's own thread does it, or the worker if it is registered. Then calls `done`.
  void discard(uid_t uid, ipc::SharedMemory memory, bool registered, std::function<void()> done);
  /// Whether memory that no lane uses is still the client's.
  [[nodiscard]] bool is_kept(const Client& client, const Memory& memory, bool gone) const;
  /// Whether no process has the client's end of `completion` any more, so that nobody uses its
  /// memory but who means harm. Until then it is the client's, and counts, though it hung up or was
  /// cut off. It asks the kernel.
  [[nodiscard]] static bool is_gone(const Client& client);
  /// CUDA requires that an importer closes memory before its exporter frees it.
  void watch_process(Client& client, TimeNs now);

  const ManagerOptions& options_;
  ClientMemory& memory_;
  ClientTable& clients_;
  LaneRequests& requests_;
  Replies& replies_;
  WorkMeter& work_;
  const Stopping& stopping_;
  ipc::Worker& worker_;
  ipc::Closers* closers_;
  std::map<uid_t, std::uint64_t> letting_go_;  ///< bytes of memory that is nobody's and still there
  std::uint32_t last_handle_ = 0;
  TimeNs next_linger_check_ = 0;
};

}  // namespace gradwire::control
