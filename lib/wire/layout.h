// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The bytes of the chunk protocol as structs of alignment 1: what doc/protocol draws. Private
/// to lib/wire and its tests; everybody else uses packet.h. A struct is copied from and to the
/// packet with memcpy, so that a packet may lie at any address.
#pragma once

#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "wire/packet.h"

namespace gradwire::wire::layout {

/// From the packet's order of bytes to the host's, and back.
template <class T>
[[nodiscard]] constexpr T swapped(T value) noexcept {
  static_assert(std::is_unsigned_v<T>);
  if constexpr (std::endian::native == std::endian::big) return value;
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}

/// An unsigned integer in network byte order.
template <class T>
class Big {
 public:
  static_assert(std::is_unsigned_v<T>);
  [[nodiscard]] T get() const noexcept {
    T value;
    std::memcpy(&value, raw_.data(), sizeof(T));
    return swapped(value);
  }
  void set(T value) noexcept {
    value = swapped(value);
    std::memcpy(raw_.data(), &value, sizeof(T));
  }

 private:
  std::array<std::uint8_t, sizeof(T)> raw_;
};
using Big16 = Big<std::uint16_t>;
using Big32 = Big<std::uint32_t>;
using Big64 = Big<std::uint64_t>;
inline void store64(std::byte* at, std::uint64_t value) noexcept {
  Big64 big;
  big.set(value);
  std::memcpy(at, &big, sizeof(big));
}
inline void store32(std::byte* at, std::uint32_t value) noexcept {
  Big32 big;
  big.set(value);
  std::memcpy(at, &big, sizeof(big));
}
/// As it lies in memory.
[[nodiscard]] inline std::uint64_t raw64(const std::byte* at) noexcept {
  std::uint64_t raw;
  std::memcpy(&raw, at, sizeof(raw));
  return raw;
}
[[nodiscard]] inline std::uint64_t load64(const std::byte* at) noexcept {
  return swapped(raw64(at));
}
/// One of 48 bits.
struct Big48 {
  [[nodiscard]] std::uint64_t get() const noexcept {
    return std::uint64_t{high.get()} << 16 | low.get();
  }
  Big32 high;
  Big16 low;
};

inline constexpr std::size_t kTypeFieldsBytes = 30;

/// The 64 bytes that every packet starts with.
struct Header {
  std::uint8_t version;
  std::uint8_t type;
  std::uint8_t flags;
  std::uint8_t lane;
  Big32 group_tag;
  Big64 packet_number;
  std::array<std::uint8_t, kTypeFieldsBytes> type_fields;
  Big16 from_rank;
  Big32 header_crc;
  Big32 payload_crc;
  Big64 token;
};
static_assert(sizeof(Header) == kHeaderBytes && alignof(Header) == 1);
static_assert(offsetof(Header, group_tag) == 4 && offsetof(Header, packet_number) == 8);
static_assert(offsetof(Header, type_fields) == 16 && offsetof(Header, from_rank) == 46);
static_assert(offsetof(Header, header_crc) == 48);
static_assert(offsetof(Header, payload_crc) == 52 && offsetof(Header, token) == 56);

struct DataFields {
  Big64 op_seq;
  Big48 total_count;
  Big16 hop;  ///< of a contribution: how much less than op_seq Receipt::received is, and 1; 0 =
              ///< not said
  Big32 chunk;
  Big32 tag;
  std::uint8_t collective_and_datatype;  ///< 4 bits each; collective 0 is all-reduce
  std::uint8_t redop;
  Big16 root;          ///< one more than it is, 0 = none
  std::uint8_t step;   ///< of a contribution to a gathered op, and 1; else 0
  std::uint8_t since;  ///< of a contribution to a rank without members: DataHeader::since; else 0
};
static_assert(sizeof(DataFields) == kTypeFieldsBytes && alignof(DataFields) == 1);
static_assert(offsetof(DataFields, total_count) == 8 && offsetof(DataFields, hop) == 14);
static_assert(offsetof(DataFields, chunk) == 16 && offsetof(DataFields, tag) == 20);
static_assert(offsetof(DataFields, collective_and_datatype) == 24 &&
              offsetof(DataFields, redop) == 25);

struct ReceiptFields {
  Big64 entered;
  Big64 received;
  Big64 chunks;
  Big16 delay_us;
  Big32 echo;
};
static_assert(sizeof(ReceiptFields) == kTypeFieldsBytes && alignof(ReceiptFields) == 1);
static_assert(offsetof(ReceiptFields, chunks) == 16 && offsetof(ReceiptFields, delay_us) == 24);
static_assert(offsetof(ReceiptFields, echo) == 26);

/// Of a piece and of an offer.
struct OfferFields {
  Big16 stream;
  Big48 sequence;
  Big64 bytes;
  Big32 chunk;
  Big32 tag;
  Big16 source;
  Big16 destination;
  std::uint8_t call;
  std::uint8_t asks_and_done;  ///< kAsks, kDone
};
static_assert(sizeof(OfferFields) == kTypeFieldsBytes && alignof(OfferFields) == 1);
static_assert(offsetof(OfferFields, chunk) == 16 && offsetof(OfferFields, source) == 24);
static_assert(offsetof(OfferFields, call) == 28);

struct PullFields {
  Big16 stream;
  Big48 sequence;
  Big64 wanted;
  Big32 first;
  Big32 echo;
  Big16 source;
  Big16 destination;
  std::uint8_t asks_and_complete;  ///< kAsks, kComplete
  std::uint8_t reserved;
};
static_assert(sizeof(PullFields) == kTypeFieldsBytes && alignof(PullFields) == 1);
static_assert(offsetof(PullFields, first) == 16 && offsetof(PullFields, source) == 24);

/// Of a tile piece and of a tile call.
struct TileFields {
  Big64 op_seq;
  Big48 total_count;
  Big16 reserved;
  Big32 chunk;  ///< of a call: echo
  Big32 tag;
  std::uint8_t collective_and_datatype;  ///< as in DataFields, and so are redop and root
  std::uint8_t redop;
  Big16 root;
  std::uint8_t format_and_bits;  ///< 4 bits each; bits: kAsks, kResult, kNotEntered
  std::uint8_t since;
};
static_assert(sizeof(TileFields) == kTypeFieldsBytes && alignof(TileFields) == 1);
static_assert(offsetof(TileFields, chunk) == 16 && offsetof(TileFields, redop) == 25);
static_assert(offsetof(TileFields, format_and_bits) == 28);

struct TilePullFields {
  Big64 op_seq;
  Big32 first;
  Big32 grant;
  Big32 done;
  Big32 echo;
  Big16 over;
  std::uint8_t bits;  ///< kAsks, kResults, kRepair, kAll
  std::array<std::uint8_t, 3> reserved;
};
static_assert(sizeof(TilePullFields) == kTypeFieldsBytes && alignof(TilePullFields) == 1);
static_assert(offsetof(TilePullFields, first) == 8 && offsetof(TilePullFields, over) == 24);
static_assert(offsetof(TilePullFields, bits) == 26);

/// Payload of a tile pull that repairs.
using TileWanted = std::array<Big64, kTileGrantMax / 64>;
static_assert(sizeof(TileWanted) == 32 && alignof(TileWanted) == 1);

/// Of the header's flags; further ones are wire::kSealFlags.
inline constexpr std::uint8_t kAgain = 1;

inline constexpr std::uint8_t kAsks = 1;
inline constexpr std::uint8_t kDone = 2;
inline constexpr std::uint8_t kComplete = 2;
// Of tiles: kAsks, and these.
inline constexpr std::uint8_t kResult = 2;
inline constexpr std::uint8_t kNotEntered = 4;
inline constexpr std::uint8_t kResults = 2;
inline constexpr std::uint8_t kRepair = 4;
inline constexpr std::uint8_t kAll = 8;

struct AckFields {
  Big64 credit_chunks;
  Big64 posted_op_seq;
  Big32 delay_ns;
  Big32 ecn_ce_count;
  std::uint8_t range_count;
  std::uint8_t reserved;
  Big16 posted_onwards;  ///< how much less than posted_op_seq it is, and 1; 0 = not said
  Big16 posted_by_all;   ///< likewise
};
static_assert(sizeof(AckFields) == kTypeFieldsBytes && alignof(AckFields) == 1);
static_assert(offsetof(AckFields, delay_ns) == 16 && offsetof(AckFields, ecn_ce_count) == 20);
static_assert(offsetof(AckFields, range_count) == 24);

/// Of a ping.
struct PingFields {
  Big64 asked_op_seq;  ///< 0: none
  std::array<std::uint8_t, kTypeFieldsBytes - 8> reserved;
};
static_assert(sizeof(PingFields) == kTypeFieldsBytes && alignof(PingFields) == 1);

/// Payload of an acknowledgement, before its ranges.
struct Call {
  Big64 op_seq;  ///< 0: nothing is said
  Big64 digest;
  Big48 count;
  Big16 root;  ///< one more than it is, 0 = none
  Big32 tag;
  std::uint8_t collective_and_datatype;  ///< as in DataFields
  std::uint8_t redop;
  std::uint8_t format;
  std::uint8_t reserved;
};
static_assert(sizeof(Call) == 32 && alignof(Call) == 1);
static_assert(offsetof(Call, root) == 22 && offsetof(Call, tag) == 24);
static_assert(offsetof(Call, collective_and_datatype) == 28);

/// Payload of an acknowledgement behind that: `range_count` of these.
struct Range {
  Big64 first;
  Big64 last;
};
static_assert(sizeof(Range) == 16 && alignof(Range) == 1);

/// Payload of hello and hello-ack, before the padding.
struct Hello {
  Big64 group_id;
  Big32 epoch;
  Big32 features;
  Big64 incarnation;
  Big64 table_digest;
  Big32 payload_bytes;
  std::array<std::uint8_t, 4> reserved0;
  Big16 from_rank;
  Big16 to_rank;
  Big16 nranks;
  Big16 lanes;
  Big64 credit_chunks;
  Big64 posted_op_seq;
  std::uint8_t source;        ///< one more than it is, 0 = not said
  std::uint8_t heard_source;  ///< likewise
  Big16 members;
  Big16 folding_ranks;
  std::array<std::uint8_t, 2> reserved1;
};
static_assert(sizeof(Hello) == kHelloBodyBytes && alignof(Hello) == 1);
static_assert(offsetof(Hello, incarnation) == 16 && offsetof(Hello, payload_bytes) == 32);
static_assert(offsetof(Hello, from_rank) == 40 && offsetof(Hello, credit_chunks) == 48);
static_assert(offsetof(Hello, source) == 64 && offsetof(Hello, heard_source) == 65);
static_assert(offsetof(Hello, members) == 66 && offsetof(Hello, folding_ranks) == 68);

/// Payload of an abort.
struct Abort {
  std::uint8_t code;
  std::uint8_t reserved0;
  Big16 culprit_rank;
  Big16 reporter_rank;
  std::array<std::uint8_t, 2> reserved1;
  Big64 op_seq;
  Big64 duration_ns;
  std::array<char, AbortReason::kDetailBytes> detail;
};
static_assert(sizeof(Abort) == 184 && alignof(Abort) == 1);
static_assert(offsetof(Abort, culprit_rank) == 2 && offsetof(Abort, op_seq) == 8);
static_assert(offsetof(Abort, detail) == 24);

/// Payload of bye and bye-ack.
struct Bye {
  Big64 completed_op_seq;
  Big64 digest;
  Big64 posted_by_all;
};
static_assert(sizeof(Bye) == 24 && alignof(Bye) == 1);

/// Payload of a progress check.
struct ProgressCheck {
  Big64 op_seq;
  Big64 stalled_ns;
  Big16 origin_rank;
  std::array<std::uint8_t, 6> reserved;
};
static_assert(sizeof(ProgressCheck) == 24 && alignof(ProgressCheck) == 1);
static_assert(offsetof(ProgressCheck, origin_rank) == 16);

/// CRC32C of the header's 64 bytes without the field that holds it, which are added in their order.
/// For so few bytes the instruction is several times as fast as calls of ISA-L.
class HeaderCrc {
 public:
  /// @param raw  8 bytes as they lie in memory.
  void add(std::uint64_t raw) noexcept {
#ifdef __SSE4_2__
    state_ = _mm_crc32_u64(state_, raw);
#else
    extend(raw);
#endif
  }
  void add_payload_crc(std::uint32_t value) noexcept {
    const std::uint32_t raw = swapped(value);
#ifdef __SSE4_2__
    state_ = _mm_crc32_u32(static_cast<std::uint32_t>(state_), raw);
#else
    extend(raw);
#endif
  }
  [[nodiscard]] std::uint32_t value() const noexcept { return ~static_cast<std::uint32_t>(state_); }

 private:
#ifndef __SSE4_2__
  template <class T>
  void extend(T raw) noexcept {
    std::array<std::byte, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &raw, sizeof raw);
    state_ = static_cast<std::uint32_t>(~crc32c_extend(value(), bytes));
  }
#endif
  std::uint64_t state_ = 0xffffffff;
};

[[nodiscard]] inline std::uint32_t header_crc(const std::byte* header) noexcept {
  HeaderCrc crc;
  for (std::size_t at = 0; at < offsetof(Header, header_crc); at += 8) crc.add(raw64(header + at));
  Big32 payload_crc;
  std::memcpy(&payload_crc, header + offsetof(Header, payload_crc), sizeof payload_crc);
  crc.add_payload_crc(payload_crc.get());
  crc.add(raw64(header + offsetof(Header, token)));
  return crc.value();
}
static_assert(offsetof(Header, header_crc) % 8 == 0 && offsetof(Header, token) + 8 == kHeaderBytes);

}  // namespace gradwire::wire::layout
