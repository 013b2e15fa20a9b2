// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The words of doc/architecture.md as types: datatypes, redops, ranks, lanes, keys. Collectives,
/// datatypes and redops have a table each; names and lists of all come from these, a `switch` by
/// one of them names each (-Wswitch is an error), and test/words.py compares other languages and
/// pages. Any thread; nothing here allocates.
#pragma once

#include <array>
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

/// A row of a table: a value and its name in texts.
template <class T>
struct Named {
  T value;
  std::string_view name;
};
/// The values of a table, in its order.
template <class T, std::size_t kRows>
[[nodiscard]] constexpr std::array<T, kRows> values_of(
    const std::array<Named<T>, kRows>& table) noexcept {
  std::array<T, kRows> values{};
  for (std::size_t i = 0; i < kRows; ++i) values[i] = table[i].value;
  return values;
}
/// Whether the rows' values are `first` and those after it, so that a value is its row's index.
template <class T, std::size_t kRows>
[[nodiscard]] consteval bool counts_from(std::size_t first,
                                         const std::array<Named<T>, kRows>& table) {
  for (std::size_t i = 0; i < kRows; ++i) {
    if (static_cast<std::size_t>(table[i].value) != first + i) return false;
  }
  return true;
}

/// Every collective.
inline constexpr auto kCollectiveTable = std::to_array<Named<Collective>>({
    {Collective::kAllReduce, "all-reduce"},
    {Collective::kReduce, "reduce"},
    {Collective::kBroadcast, "broadcast"},
    {Collective::kAllGather, "all-gather"},
    {Collective::kReduceScatter, "reduce-scatter"},
    {Collective::kGather, "gather"},
    {Collective::kScatter, "scatter"},
    {Collective::kAllToAll, "all-to-all"},
    {Collective::kSend, "send"},
    {Collective::kRecv, "recv"},
    {Collective::kBarrier, "barrier"},
});
static_assert(counts_from(1, kCollectiveTable));
inline constexpr auto kCollectives = values_of(kCollectiveTable);

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
inline constexpr auto kDataTypeTable = std::to_array<Named<DataType>>({
    {DataType::kFloat32, "fp32"},
    {DataType::kFloat64, "fp64"},
    {DataType::kFloat16, "fp16"},
    {DataType::kBfloat16, "bf16"},
    {DataType::kInt8, "int8"},
    {DataType::kInt32, "int32"},
    {DataType::kInt64, "int64"},
    {DataType::kUint8, "uint8"},
});
static_assert(counts_from(0, kDataTypeTable));
inline constexpr auto kDataTypes = values_of(kDataTypeTable);
inline constexpr int kDataTypeCount = static_cast<int>(kDataTypes.size());

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
/// Every redop.
inline constexpr auto kRedOpTable = std::to_array<Named<RedOp>>({
    {RedOp::kSum, "sum"},
    {RedOp::kAvg, "avg"},
    {RedOp::kMin, "min"},
    {RedOp::kMax, "max"},
    {RedOp::kProd, "prod"},
    {RedOp::kBand, "band"},
    {RedOp::kBor, "bor"},
    {RedOp::kBxor, "bxor"},
    {RedOp::kPremulSum, "premul_sum"},
});
static_assert(counts_from(0, kRedOpTable));
inline constexpr auto kRedOps = values_of(kRedOpTable);
inline constexpr int kRedOpCount = static_cast<int>(kRedOps.size());

[[nodiscard]] constexpr bool is_valid(Collective collective) noexcept {
  const auto value = static_cast<std::uint8_t>(collective);
  return value >= 1 && value <= kCollectives.size();
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
