// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Messages on the control socket (SOCK_SEQPACKET, AF_UNIX): fixed structs, host byte order, since
/// both ends are on one host. A client sends requests; the daemon answers each with the same
/// request_id, an error code, and text where it failed. File descriptors travel as SCM_RIGHTS.
/// Neither end trusts a length or a count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/abort_reason.h"

namespace gradwire::ipc {

inline constexpr std::uint32_t kControlMagic = 0x47574331;  // "GWC1"
inline constexpr std::uint16_t kControlVersion = 1;
inline constexpr std::size_t kMaxMessageBytes = 128 * 1024;
inline constexpr std::size_t kErrorTextBytes = 256;

enum class MessageType : std::uint16_t {
  kOpen = 1,      ///< first on a connection. Request: OpenRequest. Reply: OpenReply and 3 fds:
                  ///< queue region memfd, doorbell eventfd (client writes), completion eventfd
  kAllocate = 2,  ///< AllocateRequest. Reply: AllocateReply and 1 fd: hugepage memfd
  kFree = 3,      ///< FreeRequest. The reply comes when no op refers to the memory
  kDescribe = 4,  ///< no body. Reply: RankInfo of this daemon
  kJoin = 5,      ///< JoinRequest and nranks RankInfo. The reply comes when the group is formed
  kLeave = 6,     ///< GroupRequest. The reply comes when the group is closed here
  kAbort = 7,     ///< AbortRequest
  kStatus = 8,    ///< no body; needs no kOpen. Reply: StatusReply's text, JSON
  kGroupAborted = 100,  ///< event, request_id 0: GroupAbortedEvent
};

struct MessageHeader {
  std::uint32_t magic = kControlMagic;
  std::uint16_t version = kControlVersion;
  std::uint16_t type = 0;
  std::uint32_t request_id = 0;
  std::uint32_t bytes = 0;  ///< of the whole message, this header included
  std::uint32_t error_code =
      0;  ///< replies: gradwire::ErrorCode; if not 0 the body is an ErrorBody
  std::uint32_t reserved = 0;
};
static_assert(sizeof(MessageHeader) == 24);

struct ErrorBody {
  char text[kErrorTextBytes] = {};
};

struct OpenRequest {
  std::uint32_t abi_version = 1;
  std::uint32_t pid = 0;  ///< for display; the daemon reads the true one from the socket
};
struct OpenReply {
  std::uint64_t incarnation = 0;
  std::uint32_t client_id = 0;
  std::uint32_t lanes = 0;
  std::uint32_t max_payload_bytes = 0;
  std::int32_t numa_node = -1;
  std::uint64_t queue_region_bytes = 0;
};

struct AllocateRequest {
  std::uint64_t bytes = 0;
};
struct AllocateReply {
  std::uint64_t bytes = 0;   ///< rounded up to hugepages; map so many, shared
  std::uint32_t memory = 0;  ///< handle, never 0
  std::int32_t numa_node = -1;
};
struct FreeRequest {
  std::uint32_t memory = 0;
  std::uint32_t reserved = 0;
};

/// One address of a daemon.
struct RankAddress {
  std::uint8_t ip[16] = {};
  std::uint8_t family = 0;  ///< 4, 6; 0 = unused entry
  std::uint8_t prefix_bits = 0;
  std::uint8_t reserved[6] = {};
};

/// How the other ranks reach a daemon and what it can do: opaque to clients, who carry it to each
/// other through their own rendezvous.
struct RankInfo {
  static constexpr std::uint32_t kMagic = 0x47575249;  // "GWRI"
  static constexpr std::size_t kMaxAddresses = 8;
  std::uint32_t magic = kMagic;
  std::uint16_t version = 1;
  std::uint16_t lanes = 0;
  std::uint64_t incarnation = 0;
  std::uint32_t max_payload_bytes = 0;
  std::uint32_t features = 0;
  std::uint16_t base_udp_port = 0;  ///< lane i listens on base_udp_port + i
  std::uint16_t address_count = 0;
  std::uint32_t reserved = 0;
  RankAddress addresses[kMaxAddresses] = {};
};
static_assert(sizeof(RankInfo) == 224);

struct JoinRequest {
  std::uint64_t group_id = 0;
  std::uint32_t epoch = 0;
  std::uint16_t rank = 0;
  std::uint16_t nranks = 0;
  std::uint16_t member = 0;        ///< 0 ... member_count-1: order of summation within the rank
  std::uint16_t member_count = 1;  ///< equal for all members and all ranks
  std::uint32_t timeout_ms = 0;    ///< for the whole formation; 0 = the daemon's own
  // nranks RankInfo follow.
};
static_assert(sizeof(JoinRequest) == 24);
struct JoinReply {
  std::uint64_t group_handle = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t lanes = 0;
};

struct GroupRequest {
  std::uint64_t group_handle = 0;
};
struct AbortRequest {
  std::uint64_t group_handle = 0;
  char text[AbortReason::kDetailBytes] = {};
};
struct GroupAbortedEvent {
  std::uint64_t group_handle = 0;
  char text[kErrorTextBytes] = {};  ///< describe() of the reason
};

}  // namespace gradwire::ipc
