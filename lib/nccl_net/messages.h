// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What two processes with this plug-in tell each other over the TCP connection of a link: how they
/// meet, and where each message goes. Both ends are of one machine type, as NCCL itself requires.
/// Plain data; nothing allocates.
#pragma once

#include <netinet/in.h>
#include <sys/random.h>

#include <array>
#include <cstdint>

#include "client/gradwire.h"
#include "nccl_net/abi.h"

namespace gradwire::nccl_net {

/// Clients of the daemon that a process has. A link's group has as many processes at each end, and
/// each ordered pair of one here and one there is a stream.
constexpr std::uint32_t kClients = 3;
constexpr std::uint32_t kStreams = kClients * kClients;
/// A message is cut into segments of at most so many bytes. Each is one transfer. It is also the
/// most that one call of isend(), irecv() or test() copies.
constexpr std::uint32_t kSegmentBytes = 128 * 1024;
/// Segments that a client has room for in a link, at each end: one hugepage of 2 MiB.
constexpr std::uint32_t kSlots = 16;
constexpr std::uint32_t kMagic = 0x6e776733;       // raised when what is below changes
constexpr std::uint32_t kMagicOfAll = 0xffffff00;  ///< its bits that all versions have

/// Random numbers, by which a process knows that it is meant: strangers cannot guess them.
using Token = std::array<std::uint64_t, 2>;

/// Fills a token or a number. @return false: the kernel has no random numbers.
template <class Number>
bool fill_random(Number& number) {
  return getrandom(&number, sizeof(number), 0) == static_cast<ssize_t>(sizeof(number));
}

/// In NCCL's handle.
struct Handle {
  std::uint32_t magic = kMagic;
  std::uint32_t reserved = 0;
  sockaddr_in6 address{};  ///< or a sockaddr_in, as its family says
  std::uint32_t reserved_address = 0;
  Token listener{};
  Token process{};
  std::uint64_t attempt = 0;  ///< the connecting process's own; 0: none yet
};
static_assert(sizeof(Handle) <= kHandleBytes);

/// The first bytes of each end. The connecting one speaks first.
struct Hello {
  std::uint32_t magic = kMagic;
  std::uint32_t clients = kClients;
  Token listener{};
  Token process{};
  std::uint64_t group_id = 0;
  std::array<std::array<unsigned char, GW_RANK_INFO_BYTES>, kClients> infos{};
};
/// The second: whether this end has joined the link's group.
struct Ready {
  std::uint32_t ok = 0;
  std::array<char, 508> text{};
};

enum class RecordKind : std::uint32_t {
  kOpen = 1,  ///< from the sender: connection `connection` begins, to the listener `token`
  kSegment,   ///< from the sender: `bytes` of the connection's next message of `value` bytes are
              ///< the next transfer of `stream`; 0 bytes: a message of none, and no transfer
  kGrant,     ///< from the receiver: room for one more message, of `value` bytes at most
  kTaken,     ///< from the receiver: it has message `value`, which had no bytes
  kAllTaken,  ///< from the receiver: the first `value` messages have come whole, and no receive is
              ///< posted any more: it may end now
  kClosed,  ///< from both: nothing follows of the connection; from the receiver, its first `value`
            ///< messages have come whole
};

struct Record {
  RecordKind kind = RecordKind::kOpen;
  std::uint32_t connection = 0;
  std::uint32_t stream = 0;
  std::uint32_t bytes = 0;
  std::uint64_t value = 0;
  Token token{};
};
static_assert(sizeof(Record) == 40);

}  // namespace gradwire::nccl_net
