// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What two processes with this plug-in tell each other over the TCP connection of a link: how they
/// meet, and which messages may come and have come. And what stands before each segment of a
/// message, in a transfer of the link's group. Both ends are of one machine type, as NCCL itself
/// requires. Plain data; nothing allocates.
#pragma once

#include <netinet/in.h>
#include <sys/random.h>

#include <array>
#include <cstdint>

#include "client/gradwire.h"
#include "nccl_net/abi.h"

namespace gradwire::nccl_net {

/// A message is cut into segments of at most so many bytes. Each is one transfer. It is also the
/// most that one call of isend(), irecv() or test() copies.
constexpr std::uint32_t kSegmentBytes = 128 * 1024;
constexpr std::uint32_t kMagic = 0x6e776734;       // raised when what is below changes
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

enum class HelloKind : std::uint32_t {
  kConnect = 1,  ///< the connecting process's: make a link with me
  kTake,         ///< the answer: yes
  kUseMine,      ///< the answer: no, since I am making one with you (link.h says who gives way)
};

/// The first bytes of each end. The connecting one speaks first.
struct Hello {
  std::uint32_t magic = kMagic;
  HelloKind kind = HelloKind::kConnect;
  Token listener{};
  Token process{};
  std::uint64_t group_id = 0;
  std::uint64_t daemon = 0;                              ///< random, of that run of it
  std::array<unsigned char, GW_RANK_INFO_BYTES> info{};  ///< how daemons find the client
};
/// The connecting one still wants the link: both join its group now.
struct Go {
  std::uint32_t magic = kMagic;
};
/// The last: whether this end has joined the link's group.
struct Ready {
  std::uint32_t ok = 0;
  std::array<char, 508> text{};
};

enum class RecordKind : std::uint32_t {
  kOpen = 1,  ///< from who sends: connection `connection` begins, to the listener `a`, `b`
  kState,     ///< from who receives: messages below `a` have their receives posted; those below `b`
              ///< have come whole
  kStopped,   ///< from who sends, and has not closed: as kClosed
  kClosed,    ///< from both: nothing follows of the connection. From who sends: the messages below
              ///< `a` were sent whole, and of the next one `b` segments. From who receives: those
              ///< below `a` have come whole
  kTooLarge,  ///< from who receives: a message of `b` bytes came, and its receive has room for `a`
  kFill,      ///< `a` receives are posted in all, and some wait in vain: fill them
  kEnd,       ///< from who made the link: nobody needs it here, and the other end has opened `a`
              ///< connections as far as is known here. If it has opened more, it says nothing
  kEndToo,    ///< the answer: nor here. It has ended
};

/// All of it is absolute: a later record of a connection says all that an earlier one said.
struct Record {
  RecordKind kind = RecordKind::kOpen;
  std::uint32_t connection = 0;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
};
static_assert(sizeof(Record) == 24);

/// The first bytes of each transfer. The segment is what follows.
struct SegmentHeader {
  std::uint32_t connection = 0;  ///< 0: nothing, for a receive that waits in vain
  std::uint32_t reserved = 0;
  std::uint64_t message = 0;
  std::uint64_t offset = 0;  ///< of the segment in the message: a multiple of kSegmentBytes
  std::uint64_t bytes = 0;   ///< of the whole message
};
static_assert(sizeof(SegmentHeader) == 32);
/// A message of none has one, too.
constexpr std::uint64_t segments_of(std::uint64_t bytes) {
  return bytes == 0 ? 1 : (bytes + kSegmentBytes - 1) / kSegmentBytes;
}

}  // namespace gradwire::nccl_net
