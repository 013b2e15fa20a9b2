// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The words of doc/architecture.md as types: datatypes, redops, ranks, lanes, keys.
/// Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gradwire {

/// Nanoseconds on one monotonic clock of the caller's. The libraries below lib/lane never read a
/// clock: time is a parameter, so that the simulator can pass virtual time.
using TimeNs = std::int64_t;

inline constexpr TimeNs kNever = INT64_MAX;

/// What an op does. The values go on the wire and across the C ABI: never renumber.
enum class Collective : std::uint8_t {
  kAllReduce = 1,
  kReduce = 2,
  kBroadcast = 3,
  kAllGather = 4,
  kReduceScatter = 5,
  kGather = 6,
  kScatter = 7,
  kAllToAll = 8,
  kSend = 9,
  kRecv = 10,
  kBarrier = 11,
};

/// Element type of an op. The values go on the wire and across the C ABI: never renumber.
enum class DataType : std::uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBfloat16 = 3,
  kInt8 = 4,
  kInt32 = 5,
  kInt64 = 6,
  kUint8 = 7,
  kBytes = 8,  ///< of any size, which the op says; only moved, never reduced
};
/// Those that can be reduced: kBytes is not one of them.
inline constexpr int kDataTypeCount = 8;

/// Reduction of an op. The values go on the wire and across the C ABI: never renumber.
enum class RedOp : std::uint8_t {
  kSum = 0,
  kAvg = 1,
  kMin = 2,
  kMax = 3,
  kProd = 4,
  kBand = 5,  ///< bitwise, like those below: of integers alone
  kBor = 6,
  kBxor = 7,
  kPremulSum = 8,  ///< sum of inputs, each times a factor of its process's own; of floats alone
};
inline constexpr int kRedOpCount = 9;

[[nodiscard]] constexpr bool is_valid(Collective collective) noexcept {
  const auto value = static_cast<std::uint8_t>(collective);
  return value >= 1 && value <= 11;
}
/// Whether it is made of transfers, which pairs of processes count by themselves: it has no place
/// in the group's order of ops.
[[nodiscard]] constexpr bool is_transfer(Collective collective) noexcept {
  const auto value = static_cast<std::uint8_t>(collective);
  return value >= 6 && value <= 10;
}
/// Whether it has one other process, and not all of the group's.
[[nodiscard]] constexpr bool has_partner(Collective collective) noexcept {
  return collective == Collective::kSend || collective == Collective::kRecv;
}
/// Whether it makes one value of several, by the op's redop; else it only moves data, or none.
[[nodiscard]] constexpr bool reduces(Collective collective) noexcept {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}
/// Whether one process has a part of its own in it.
[[nodiscard]] constexpr bool has_root(Collective collective) noexcept {
  return collective == Collective::kReduce || collective == Collective::kBroadcast ||
         collective == Collective::kGather || collective == Collective::kScatter;
}
/// Whether it can be reduced. kBytes cannot.
[[nodiscard]] constexpr bool is_valid(DataType type) noexcept {
  return static_cast<int>(type) < kDataTypeCount;
}
[[nodiscard]] constexpr bool is_valid(RedOp op) noexcept {
  return static_cast<int>(op) < kRedOpCount;
}

/// Whether it combines bits, not numbers: floats cannot be reduced by it.
[[nodiscard]] constexpr bool is_bitwise(RedOp op) noexcept {
  return op == RedOp::kBand || op == RedOp::kBor || op == RedOp::kBxor;
}
[[nodiscard]] constexpr bool is_float(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat64 || type == DataType::kFloat16 ||
         type == DataType::kBfloat16;
}
/// Whether elements of `type` can be reduced by `op`.
[[nodiscard]] constexpr bool fits(RedOp op, DataType type) noexcept {
  if (!is_valid(op) || !is_valid(type)) return false;
  return is_float(type) ? !is_bitwise(op) : op != RedOp::kPremulSum;
}

/// Bytes of one element; 0 for kBytes, and for a value outside the enumeration.
[[nodiscard]] constexpr std::uint32_t element_bytes(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kFloat64:
    case DataType::kInt64:
      return 8;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt8:
    case DataType::kUint8:
      return 1;
    case DataType::kBytes:
      break;
  }
  return 0;
}

/// "all-reduce", "broadcast", ...; "collective?" outside the enumeration.
[[nodiscard]] std::string_view name_of(Collective collective) noexcept;
/// "fp32", "bf16", ...; "datatype?" outside the enumeration.
[[nodiscard]] std::string_view name_of(DataType type) noexcept;
/// "sum", "avg", ...; "redop?" outside the enumeration.
[[nodiscard]] std::string_view name_of(RedOp op) noexcept;
/// Why fits() says no: a sentence for the caller of an op. Static.
[[nodiscard]] std::string_view misfit_of(RedOp op) noexcept;
[[nodiscard]] std::optional<Collective> parse_collective(std::string_view name) noexcept;
/// Of those that can be reduced.
[[nodiscard]] std::optional<DataType> parse_datatype(std::string_view name) noexcept;
[[nodiscard]] std::optional<RedOp> parse_redop(std::string_view name) noexcept;

/// Ranks of a group of daemons.
inline constexpr std::uint32_t kMaxRanks = 1024;
inline constexpr std::uint32_t kMaxMembers = 64;
/// Processes of a group. Packets name them in 16 bits, of which the last value means none.
inline constexpr std::uint32_t kMaxProcesses = 65'535;
inline constexpr std::uint32_t kMaxLanes = 16;
/// The smallest MTU: a full acknowledgement of 1,088 bytes must fit, its headers and a tunnel's.
inline constexpr std::uint32_t kMinMtu = 1280;

/// A group and its epoch: what a packet must belong to.
struct GroupKey {
  std::uint64_t group_id = 0;
  std::uint32_t epoch = 0;
  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};

}  // namespace gradwire
