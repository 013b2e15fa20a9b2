// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Messages on the control socket (SOCK_SEQPACKET, AF_UNIX): fixed structs, host byte order, since
/// both ends are on one host. A client sends requests; the daemon answers each with the same
/// request_id, an error code, and text if it failed; one with request_id 0 is done and not
/// answered. An error with request_id 0 says why the daemon closes a connection. File descriptors
/// are passed as SCM_RIGHTS. Neither end trusts a length or a count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/abort_reason.h"
#include "base/fault_settings.h"
#include "base/result.h"

namespace gradwire::ipc {

inline constexpr std::uint32_t kControlMagic = 0x47574331;  // "GWC1"
inline constexpr std::uint16_t kControlVersion = 3;
inline constexpr std::size_t kMaxMessageBytes = 128 * 1024;
inline constexpr std::size_t kErrorTextBytes = 256;
/// A request with this request_id is not answered.
inline constexpr std::uint32_t kNoReply = 0;

enum class MessageType : std::uint16_t {
  kOpen = 1,      ///< first on a connection. Request: OpenRequest. Reply: OpenReply and 3 fds:
                  ///< queue region memfd, doorbell (an eventfd), completion (client
                  ///< polls, and reads 8 bytes at a time until empty). The last is used like an
                  ///< eventfd but is a socket: an eventfd's O_NONBLOCK would be shared, so that a
                  ///< hostile client could make a lane block in it; and the daemon takes the
                  ///< memory of a client that hung up back when nobody has this end any more
  kAllocate = 2,  ///< AllocateRequest. Reply: AllocateReply and 1 fd: hugepage memfd; or, where
                  ///< the memory is on a CUDA device, CudaAllocateReply and none
  kFree = 3,      ///< FreeRequest. The reply comes when no op refers to the memory. Memory of a
                  ///< CUDA device the client has closed before
  kDescribe = 4,  ///< no body, or DescribeRequest. Reply: RankInfo of this daemon
  kJoin = 5,      ///< ipc/join_message.h. The reply comes when the group is formed
  kLeave = 6,     ///< GroupRequest. The reply comes when the group is closed here
  kAbort = 7,     ///< AbortRequest
  kStatus = 8,    ///< no body; needs no kOpen. Reply: JSON text, as the body or, where
                  ///< that would be too large, in a memfd (see status_text)
  kTrace = 9,     ///< as kStatus: the last events of ops
  kDrain = 10,    ///< DrainRequest; needs no kOpen, but root or the daemon's user. The reply, JSON
                  ///< text, comes when no op is under way any more
  kMakeEvent = 11,  ///< no body. Reply: MakeEventReply. The event is the client's until it goes
  kClose = 12,      ///< no body, no reply: the hang-up that follows is meant
  kInject = 16,     ///< InjectRequest; needs no kOpen, but root or the daemon's own user. Reply:
                    ///< JSON text, the faults of every port
  kLoadKeys = 17,   ///< no body; needs no kOpen, but root or the daemon's own user. The key files
                    ///< are read again. Reply: JSON text, the keys that the daemon has now
  kGroupAborted = 100,  ///< event, request_id 0: GroupAbortedEvent
  kCutOff = 101,        ///< event, request_id 0: ErrorBody, why the daemon hangs up after this
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

/// What a job wants of its groups' packets (doc/security.md): GW_SECURITY_OFF and so on.
enum class WantedMode : std::uint32_t {
  kDaemons = 0,  ///< security.mode of the daemon
  kOff = 1,
  kAuthenticate = 2,
  kEncrypt = 3,
};
inline constexpr std::size_t kJobKeyBytes = 32;
using JobKeyId = std::array<std::uint8_t, 8>;

/// An entry for a job that wants something, or brings a key. With a key it needs kOpen: the daemon
/// keeps the key until that client and its groups are gone.
struct DescribeRequest {
  WantedMode mode = WantedMode::kDaemons;
  std::uint32_t has_job_key = 0;  ///< 1: `job_key` is one
  std::uint8_t job_key[kJobKeyBytes] = {};
};
static_assert(sizeof(DescribeRequest) == 40);

struct AllocateRequest {
  std::uint64_t bytes = 0;
};
struct AllocateReply {
  std::uint64_t bytes = 0;   ///< rounded up to hugepages; map so many, shared
  std::uint32_t memory = 0;  ///< handle, never 0
  std::int32_t numa_node = -1;
};
/// Opened by CUDA IPC, on the GPU of that UUID.
struct CudaAllocateReply {
  AllocateReply memory;
  std::uint8_t device_uuid[16] = {};
  std::uint8_t handle[64] = {};  ///< CUipcMemHandle
};
static_assert(sizeof(CudaAllocateReply) == 96);
/// An event of CUDA's that the client records on a stream before it posts a command that names it.
struct MakeEventReply {
  std::uint32_t event = 0;  ///< CommandEntry::ready_event, never 0
  std::uint32_t reserved = 0;
  std::uint8_t handle[64] = {};  ///< CUipcEventHandle
};
static_assert(sizeof(MakeEventReply) == 72);

struct FreeRequest {
  std::uint32_t memory = 0;
  std::uint32_t reserved = 0;
};

/// One address of a daemon.
struct RankAddress {
  std::uint8_t ip[16] = {};
  std::uint8_t family = 0;  ///< 4, 6; 0 = unused entry
  std::uint8_t prefix_bits = 0;
  std::uint8_t routed = 0;       ///< 1: the port has a route to hosts of other networks
  std::uint8_t single_peer = 0;  ///< 1: the port leads to one other port alone, as memif does
  std::uint32_t rail = 0;        ///< hash of the rail's name; 0 = it has none
};
static_assert(sizeof(RankAddress) == 24);

/// How other ranks reach a daemon and what it supports: opaque to clients, which pass it to each
/// other through their own rendezvous. Every byte of it counts for a table's digest, so that a
/// later release may use what is reserved here.
struct RankInfo {
  static constexpr std::uint32_t kMagic = 0x47575249;  // "GWRI"
  static constexpr std::uint16_t kVersion = 3;
  static constexpr std::size_t kMaxAddresses = 8;
  // source_ports.
  static constexpr std::uint16_t kOneSourcePort = 1;  ///< no: it chooses the receive queue
  static constexpr std::uint16_t kAnySourcePort = 2;  ///< yes; 0: it does not know of them
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t bytes = 512;  ///< of the whole struct: the distance of two entries in a table
  std::uint64_t incarnation = 0;
  std::uint32_t max_payload_bytes = 0;
  std::uint32_t features = 0;
  std::uint16_t base_udp_port = 0;  ///< lane i listens on base_udp_port + i
  std::uint16_t lanes = 0;
  std::uint16_t address_count = 0;
  std::uint16_t reserved = 0;
  std::uint32_t secret = 0;  ///< differs by user; packets carry a token made of it
  /// CRC32C of all 512 bytes, with zeros here: of an entry that was changed on its way.
  std::uint32_t checksum = 0;
  RankAddress addresses[kMaxAddresses] = {};
  /// transport.direct_kib: rank 0's counts for the group.
  std::uint16_t direct_kib = 0;
  /// Of how many ranks the daemon's backend folds contributions to ops off the ring.
  std::uint16_t fold_sources = 0;
  /// How many streams the daemon lets a pair of processes have (doc/protocol/transfers.md); 0: it
  /// does not move data between any two processes.
  std::uint16_t transfers = 0;
  /// transport.two_step_kib: rank 0's counts for the group.
  std::uint16_t two_step_kib = 0;
  /// transport.gathered_kib and transport.gathered_ranks: rank 0's count for the group.
  std::uint16_t gathered_kib = 0;
  std::uint16_t gathered_ranks = 0;
  /// transport.two_step_owner: 1 if all-reduces in two steps are to be summed here.
  std::uint16_t two_step_owner = 0;
  /// Ranks without members (doc/protocol). 0: the daemon knows none, as those of older releases;
  /// 1: its groups may have some; 2: it may be one.
  std::uint16_t folding = 0;
  /// Whether others may change the UDP source port of packets to the daemon's ports.
  std::uint16_t source_ports = 0;
  /// 1: the daemon has ops by tiles (doc/protocol/tiles.md); 0: it has none, as those that reduce
  /// on a GPU and those of older releases.
  std::uint16_t tiles = 0;
  /// Wire formats that it has: bit 0 bf16, bit 1 int8.
  std::uint16_t formats = 0;
  static constexpr std::uint16_t kAllFormats = 3;
  // transport.tiles: rank 0's counts for the group.
  static constexpr std::uint16_t kTilesAuto = 0;
  static constexpr std::uint16_t kTilesAlways = 1;
  static constexpr std::uint16_t kTilesNever = 2;
  std::uint16_t tiles_wanted = 0;
  // What packets cost (doc/protocol/tiles.md, The choice): rank 0's count for the group. 0: the
  // daemon is of an older release, and leaves the choice to nobody.
  std::uint16_t packet_ns = 0;
  std::uint16_t byte_ps = 0;
  std::uint32_t hop_ns = 0;
  /// Of the port of each address, in units of 100 Mbit/s, when the daemon started; 0: not known.
  std::uint16_t rates[kMaxAddresses] = {};
  /// What it says of keys: doc/security.md, In the entry; security/entry_keys.h reads and writes
  /// it. Zeros: the daemon has none.
  std::uint8_t keys[232] = {};
};
static_assert(offsetof(RankInfo, keys) == 280);
static_assert(sizeof(RankInfo) == 512 && std::is_trivially_copyable_v<RankInfo>);

struct JoinReply {
  std::uint64_t group_handle = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t lanes = 0;
};

struct DrainRequest {
  std::uint32_t resume = 0;  ///< 1: groups and ops are accepted again
  std::uint32_t reserved = 0;
};

struct GroupRequest {
  std::uint64_t group_handle = 0;
};
struct AbortRequest {
  std::uint64_t group_handle = 0;
  char text[AbortReason::kDetailBytes] = {};
};
struct InjectRequest {
  static constexpr std::size_t kDeviceBytes = 64;
  char device[kDeviceBytes] = {};  ///< of the port; "" = every port
  FaultSettings faults;            ///< none active: stop injecting on the port
};
static_assert(sizeof(InjectRequest) == 120);
struct GroupAbortedEvent {
  std::uint64_t group_handle = 0;
  char text[kErrorTextBytes] = {};  ///< describe() of the reason
};

// Bodies to and from bytes. Nothing is cast in place: a body is copied, its size checked first.

/// @return nothing if `body` has not exactly the size of a T.
template <class T>
[[nodiscard]] std::optional<T> body_as(std::span<const std::byte> body) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if (body.size() != sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, body.data(), sizeof(T));
  return value;
}

template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const T& value) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

/// Text of a fixed field, which the other end may not have terminated.
template <std::size_t N>
[[nodiscard]] std::string text_of(const char (&field)[N]) {
  return std::string(field, ::strnlen(field, N));
}
/// Copies what fits, ends it with NUL, and leaves no UTF-8 sequence half.
void copy_text(std::span<char> field, std::string_view text) noexcept;

[[nodiscard]] ErrorBody error_body(std::string_view text) noexcept;
/// The error that a reply carries; nothing if its error_code is 0.
[[nodiscard]] std::optional<Error> error_of(const MessageHeader& header,
                                            std::span<const std::byte> body);

/// Of an AllocateReply or a CudaAllocateReply what both have; nothing if it is neither.
[[nodiscard]] std::optional<AllocateReply> allocate_reply(std::span<const std::byte> body) noexcept;

struct Message;
/// The JSON text of a kStatus reply, wherever it is. Reads at most 64 MiB.
[[nodiscard]] Result<std::string> status_text(const Message& reply);

/// "open", "join", ...; "message?" outside the enumeration.
[[nodiscard]] const char* name_of(MessageType type) noexcept;

}  // namespace gradwire::ipc
