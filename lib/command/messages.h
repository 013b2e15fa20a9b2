// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the control thread (main lcore) and the lanes say to each other. Messages are heap objects
/// made by the control thread, one for each lane that gets one; a pointer to one goes through an
/// rte_ring to a lane, and comes back in a notice when the lane is through with it, so that only
/// the control thread ever frees.
/// Lane 0 is the command lane: it alone reads the clients' command queues, checks commands, and
/// hands ops to the other lanes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/abort_reason.h"
#include "base/fault_settings.h"
#include "base/process_layout.h"
#include "collective/shard.h"
#include "ipc/command_queue.h"
#include "reduce/ready_event.h"
#include "wire/frame.h"

namespace gradwire::command {

/// A client as the command lane sees it. Made and destroyed by the control thread.
struct ClientPort {
  std::uint32_t client_id = 0;
  ipc::DaemonQueue queue;
  // Ends of socket pairs, used like eventfds (see ipc::MessageType::kOpen).
  int completion_fd = -1;  ///< written when the client waits
  int doorbell_fd = -1;    ///< read by the sleeping lane
};

struct MemoryRegion {
  std::uint32_t client_id = 0;
  std::uint32_t memory = 0;   ///< handle
  std::byte* base = nullptr;  ///< the daemon's own mapping
  std::uint64_t bytes = 0;
};

/// One lane's part of a group.
struct ShardPlacement {
  std::unique_ptr<collective::Shard> shard;
  std::uint16_t down_port = 0;  ///< index of the lane's port that leads to the downstream rank
  std::uint16_t up_port = 0;
};

struct GroupPlan {
  std::uint64_t group_handle = 0;
  std::vector<std::uint32_t> member_clients;  ///< client_id by member
  std::optional<ProcessLayout> layout;        ///< the shards', if ranks differ in size or order
  std::vector<ShardPlacement> shards;         ///< by lane; a group may have fewer than the daemon
};

enum class RequestType : std::uint8_t {
  kAddClient,     ///< command lane only: client
  kRemoveClient,  ///< command lane only: its commands are read no more. Comes back when no group
                  ///< that it is a member of is left on the command lane (the control thread aborts
                  ///< and closes those first)
  kAddMemory,     ///< command lane only: memory
  kRemoveMemory,  ///< command lane only: comes back when no op refers to it
  kAddEvent,      ///< command lane only: event, of client_id. It goes with its client
  kAddGroup,      ///< every lane of the group: plan; each lane starts its shard
  kAbortGroup,    ///< every lane of the group: group_handle, reason
  kLeaveGroup,    ///< every lane of the group: group_handle. Comes back from a lane when its shard
                  ///< is closed and forgotten (also after an abort: the control thread sends it in
                  ///< any case)
  kMoveLink,      ///< one lane of the group: group_handle, rank, frame. Packets to that rank begin
                  ///< with `frame` from now on; comes back with `taken`
  kSetFaults,     ///< every lane: port, faults
  kDrain,         ///< command lane only: no op is begun any more. Comes back when every op that was
                  ///< is answered
  kResume,        ///< command lane only: ops are begun again; a kDrain still held comes back
};

struct Request {
  RequestType type = RequestType::kAddClient;
  std::uint64_t group_handle = 0;
  std::uint32_t client_id = 0;
  std::uint32_t memory = 0;
  ClientPort* client = nullptr;
  MemoryRegion region;
  std::uint32_t event_handle = 0;
  reduce::ReadyEvent* event = nullptr;  ///< the control thread's
  GroupPlan* plan = nullptr;            ///< shared by the lanes; each touches its own shard only
  AbortReason reason;
  std::uint16_t port = 0;  ///< index of the lane's port
  FaultSettings faults;
  std::uint16_t rank = 0;
  wire::FrameTemplate frame;
  bool taken = false;  ///< the lane has the group, and did it
};

/// An op that waits for a member of this rank: the others have called it.
struct MembersWait {
  std::uint64_t op_seq = 0;  ///< 0 = there is none
  std::uint16_t member = 0;  ///< the first that has not called it
  bool computes = false;     ///< all have called it, but its input is not there yet
  TimeNs since = 0;
};

/// What a lane publishes of a group.
struct PublishedStatus {
  std::uint64_t group_handle = 0;  ///< 0 = no group
  collective::ShardStatus status;
  MembersWait members;  ///< the command lane's
};

enum class NoticeType : std::uint8_t {
  kRequestDone,   ///< `request` is through; free it
  kGroupFormed,   ///< shard `lane` of group_handle; comes by the command lane, which then takes
                  ///< commands of a group that all its lanes formed
  kGroupAborted,  ///< this lane's shard; `reason`. The control thread aborts the other lanes
  kClientFault,   ///< client_id broke the queue's rules: `reason.detail` says how
};

struct Notice {
  NoticeType type = NoticeType::kRequestDone;
  std::uint8_t lane = 0;
  std::uint32_t client_id = 0;
  std::uint64_t group_handle = 0;
  Request* request = nullptr;
  AbortReason reason;
};

}  // namespace gradwire::command
