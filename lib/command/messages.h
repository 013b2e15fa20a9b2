// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The messages between the control thread (main lcore) and the lanes. The control thread makes a
/// heap object for each lane that a message is for. A pointer to it goes to the lane through an
/// rte_ring and comes back in a notice when the lane is done with it, so that only the control
/// thread frees memory. Lane 0 is the command lane: only it reads the clients' command queues,
/// checks commands, and passes ops to the other lanes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/abort_reason.h"
#include "base/fault_settings.h"
#include "base/process_layout.h"
#include "collective/shard.h"
#include "ipc/command_queue.h"
#include "reduce/ready_event.h"
#include "wire/frame.h"

namespace gradwire::command {

/// What the command lane knows of a client. The control thread makes and destroys it.
struct ClientPort {
  std::uint32_t client_id = 0;
  std::uint32_t user = 0;  ///< whose it is: users get their turns, whatever number of clients
  ipc::DaemonQueue queue;
  // Ends of socket pairs, used like eventfds (see ipc::MessageType::kOpen).
  int completion_fd = -1;  ///< a socket, sent to when the client waits
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
  std::string why_no_transfers;  ///< why processes cannot send to each other; else empty
  std::string why_no_formats;    ///< why no op may travel in a wire format; else empty
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
  kMemberLeft,    ///< command lane only: client_id posts no more on group_handle; the others of its
                  ///< rank may, as long as they need nothing of it
  kAbortGroup,    ///< every lane of the group: group_handle, reason
  kLeaveGroup,    ///< every lane of the group: group_handle. Comes back from a lane when its shard
                  ///< is closed and forgotten (also after an abort: the control thread sends it in
                  ///< any case)
  kMoveLink,      ///< one lane of the group: group_handle, rank, path_ip, frame. Packets to that
                  ///< rank at that address begin with `frame` from now on; comes back with `taken`
  kSupplyKey,     ///< one lane of the group: group_handle, wish, key. Comes back with the key in
                  ///< whose place it came, or with itself if the group has ended
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
  reduce::ReadyEvent* event = nullptr;  ///< owned by the control thread
  GroupPlan* plan = nullptr;            ///< shared by the lanes; each uses only its own shard
  AbortReason reason;
  std::uint16_t port = 0;  ///< index of the lane's port
  FaultSettings faults;
  std::uint16_t rank = 0;
  wire::IpAddress path_ip;  ///< of the rank: one of several, if several paths lead there
  wire::FrameTemplate frame;
  bool taken = false;  ///< the lane has the group and did what the request says
  collective::KeyWish wish;
  std::shared_ptr<security::PacketKey> key;  ///< the lane puts another one in its place
};

/// An op that others have called, and that waits for a member of this rank.
struct MembersWait {
  std::uint64_t op_seq = 0;  ///< 0 = there is none
  std::uint16_t member = 0;  ///< the first member that has not called it
  bool computes = false;     ///< all members have called it, but an input is not there yet
  TimeNs since = 0;
};

/// What a lane publishes about a group.
struct PublishedStatus {
  std::uint64_t group_handle = 0;  ///< 0 = no group
  collective::ShardStatus status;
  MembersWait members;  ///< set by the command lane
};

enum class NoticeType : std::uint8_t {
  kRequestDone,   ///< `request` is through; free it
  kGroupFormed,   ///< shard `lane` of group_handle; comes by the command lane, which then takes
                  ///< commands of a group that all its lanes formed
  kGroupAborted,  ///< this lane's shard; `reason`. The control thread aborts the other lanes
  kClientFault,   ///< client_id is to be cut off: `reason.detail` says what it did
  kKeyWanted,     ///< of group_handle's packets on `lane`: `wish`
};

struct Notice {
  NoticeType type = NoticeType::kRequestDone;
  std::uint8_t lane = 0;
  std::uint32_t client_id = 0;
  std::uint64_t group_handle = 0;
  Request* request = nullptr;
  collective::KeyWish wish;
  AbortReason reason;
};

}  // namespace gradwire::command
