// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the manager knows of clients, their memory and groups. Private to lib/control; the control
/// thread owns all of it.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/abort_reason.h"
#include "base/types.h"
#include "command/messages.h"
#include "control/formation/paths.h"
#include "control/formation/table.h"
#include "control/groups/late_ranks.h"
#include "control/keys/cluster_keys.h"
#include "control/keys/key_making.h"
#include "control/lanes/lane_control.h"
#include "ipc/message_sink.h"
#include "ipc/shared_memory.h"
#include "reduce/gpu/device.h"

namespace gradwire::control {

/// A client's request that has not been answered yet.
struct PendingReply {
  ipc::ConnectionId connection = 0;
  ipc::MessageType type = ipc::MessageType::kOpen;
  std::uint32_t request_id = 0;
};

/// Client memory is unmapped only when the command lane has said that no op refers to it.
struct Memory {
  enum class State : std::uint8_t {
    /// The worker makes it, or the client's earlier requests come first; no `mapping` yet.
    kMaking,
    kAdding,
    kLive,
    kRemoving,
    kLingering,  ///< no lane uses it; the client, which has hung up, may
  };
  ipc::SharedMemory mapping;
  bool registered = false;      ///< `mapping` is registered with the lanes
  reduce::SharedGpuMemory gpu;  ///< instead of `mapping` if memory is on a GPU; no fd
  ipc::UniqueFd gpu_fd;
  State state = State::kAdding;
  std::uint64_t wanted_bytes = 0;     ///< while kMaking: counts for the quota
  std::optional<PendingReply> reply;  ///< to 'allocate', later to 'free'

  [[nodiscard]] bool on_gpu() const noexcept { return gpu.address != nullptr; }
  [[nodiscard]] std::byte* data() const noexcept { return on_gpu() ? gpu.address : mapping.data(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    if (state == State::kMaking) return wanted_bytes;
    return on_gpu() ? gpu.bytes : mapping.bytes();
  }
  [[nodiscard]] ipc::UniqueFd duplicate_fd() const noexcept {
    return on_gpu() ? gpu_fd.duplicate() : mapping.duplicate_fd();
  }
};

/// Memory that the worker faults in. It belongs to the worker until that is done.
struct Making {
  ipc::SharedMemory memory;
  bool populated = false;
  bool registered = false;
  std::optional<Error> error;
  std::atomic<bool> cancelled{false};
};

struct PendingEvent {
  PendingReply reply;
  ipc::MakeEventReply body;
};

struct Client {
  std::uint32_t id = 0;
  ipc::ConnectionId connection = 0;
  ipc::PeerCredentials peer;
  TimeNs since = 0;
  ipc::SharedMemory queue;
  ipc::UniqueFd doorbell;           ///< shared with the client
  ipc::UniqueFd completion;         ///< the daemon's end
  ipc::UniqueFd client_completion;  ///< the client's, until it is sent
  command::ClientPort port;
  std::optional<PendingReply> open_reply;
  std::map<std::uint32_t, Memory> memories;  ///< by handle
  std::deque<std::uint32_t> to_make;         ///< handles of kMaking in order, but for the first,
  std::shared_ptr<Making> making;            ///< which the worker has
  /// A handle is the index plus 1. They outlive what the command lane knows of the client.
  std::vector<std::unique_ptr<reduce::ReadyEvent>> events;
  /// By handle; their requests are not answered yet.
  std::map<std::uint32_t, PendingEvent> pending_events;
  ipc::UniqueFd process;  ///< a pidfd, set when a client with memory on a CUDA device retires
  TimeNs linger_until = kNever;  ///< such memory is freed by then, even if the process still runs
  /// It died or was disconnected, or the daemon stops: no request is answered any more.
  bool retired = false;
  /// Keys of jobs that it brought, by id.
  std::map<security::KeyId, JobKeyPtr> job_keys;
  bool removed = false;      ///< the command lane has forgotten it
  std::uint32_t groups = 0;  ///< that it is a member of

  [[nodiscard]] std::uint64_t memory_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const auto& [handle, memory] : memories) bytes += memory.bytes();
    return bytes;
  }
};

struct Member {
  std::uint32_t client_id = 0;  ///< 0: this member has not joined yet
  pid_t pid = 0;
  std::optional<PendingReply> join_reply;
  std::optional<PendingReply> leave_reply;
  bool left = false;  ///< it left or is dead, and posts no more ops
  bool told = false;  ///< of the group's abort

  [[nodiscard]] bool joined() const noexcept { return client_id != 0; }
};

enum class GroupState : std::uint8_t {
  kGathering,  ///< waits for members to join
  kResolving,  ///< waits for the neighbors' MAC addresses
  kForming,    ///< the lanes have it and send hellos
  kFormed,     ///< ops run; after an abort it keeps this state until its members have left
  kClosing,    ///< the lanes were told to leave
  kClosed,     ///< no lane has it; kept for members of an aborted group that have not left yet
};
[[nodiscard]] const char* name_of(GroupState state) noexcept;
/// As logs and errors name a group.
[[nodiscard]] std::string key_text(const GroupKey& key);

/// Paths of PlanRequest::peers whose MAC addresses are not known yet, and are asked for in turn.
struct Questions {
  struct Place {
    std::uint16_t peer = 0;
    std::uint16_t path = 0;
  };
  std::vector<Place> waiting;  ///< in the order in which they are asked
  std::vector<Place> open;     ///< asked, and not answered
  std::size_t looked = 0;      ///< a place in `waiting`: whether it is known is looked at next
  std::size_t unasked = 0;     ///< of `waiting`, those that were never asked
  std::uint64_t turn = 0;      ///< when the last one was asked; counts all groups' questions

  [[nodiscard]] bool done() const noexcept { return waiting.empty() && open.empty(); }
};

struct Group {
  std::uint64_t handle = 0;
  GroupKey key;
  std::uint16_t rank = 0;
  uid_t uid = 0;
  std::vector<ipc::RankInfo> table;
  std::vector<std::uint16_t> ranks;  ///< of the processes, as the members say; empty: plain
  PlanRequest wanted;                ///< what the shards are made from
  JobKeyPtr job;                     ///< null: the job has no key
  KeyRoomPtr key_room;               ///< what its keys take; null if the mode is off
  /// Makes its keys, if the mode is not off, once it was begun; `made_keys`: it has, or has failed.
  std::shared_ptr<KeyMaking> making;
  std::shared_ptr<GroupKeys> made_keys;
  std::vector<Member> members;
  Questions questions;
  GroupState state = GroupState::kGathering;
  TimeNs since = 0;        ///< when this state began
  TimeNs answered_at = 0;  ///< when a path to some rank was resolved last
  TimeNs formation_start = 0;
  TimeNs formation_deadline = 0;
  TimeNs leave_deadline = kNever;  ///< a member has left, and the others have until then to leave
  /// Further networks that lead downstream, for which there is no lane.
  std::size_t idle_networks = 0;
  command::GroupPlan* plan = nullptr;  ///< made by LaneControl; destroyed when every lane has left
  std::bitset<kMaxLanes> lanes_formed;
  std::bitset<kMaxLanes> lanes_closed;
  bool leave_asked = false;  ///< the lanes were told to leave
  AbortReason reason;        ///< set once aborted
  LateRanks late_ranks;

  void become(GroupState next, TimeNs now) noexcept {
    state = next;
    since = now;
  }
  /// Those with members.
  [[nodiscard]] std::uint16_t nranks() const noexcept {
    return static_cast<std::uint16_t>(table.size() - wanted.folding_ranks);
  }
  [[nodiscard]] std::uint16_t all_ranks() const noexcept {
    return static_cast<std::uint16_t>(table.size());
  }
  [[nodiscard]] bool folds_only() const noexcept { return rank >= nranks(); }
  [[nodiscard]] std::uint16_t downstream_rank() const noexcept {
    if (folds_only()) return collective::attached_rank(rank, nranks());
    return static_cast<std::uint16_t>((rank + 1u) % nranks());
  }
  [[nodiscard]] std::uint16_t upstream_rank() const noexcept {
    if (folds_only()) return downstream_rank();
    return static_cast<std::uint16_t>((rank + nranks() - 1u) % nranks());
  }
  [[nodiscard]] GroupProcesses processes() const noexcept {
    const std::size_t count = folds_only() ? wanted.member_count : members.size();
    return {nranks(), static_cast<std::uint16_t>(count), wanted.layout ? &*wanted.layout : nullptr};
  }
  [[nodiscard]] bool all_joined() const noexcept {
    for (const Member& member : members) {
      if (!member.joined()) return false;
    }
    return true;
  }
  /// Whether all members have left, so that nobody posts any more.
  [[nodiscard]] bool all_left() const noexcept {
    for (const Member& member : members) {
      if (member.joined() && !member.left) return false;
    }
    return true;
  }
  [[nodiscard]] Member* member_of(std::uint32_t client_id) noexcept {
    for (Member& member : members) {
      if (member.joined() && member.client_id == client_id) return &member;
    }
    return nullptr;
  }
};

}  // namespace gradwire::control
