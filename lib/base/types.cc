// SPDX-License-Identifier: BSD-3-Clause
#include "base/types.h"

#include <array>

namespace gradwire {
namespace {

constexpr std::array<std::string_view, kDataTypeCount> kDataTypeNames = {
    "fp32", "fp64", "fp16", "bf16", "int8", "int32", "int64", "uint8"};
constexpr std::array<std::string_view, kRedOpCount> kRedOpNames = {
    "sum", "avg", "min", "max", "prod", "band", "bor", "bxor", "premul_sum"};

struct NamedCollective {
  Collective collective;
  std::string_view name;
};
constexpr std::array<NamedCollective, 11> kCollectiveNames = {
    {{Collective::kAllReduce, "all-reduce"},
     {Collective::kReduce, "reduce"},
     {Collective::kBroadcast, "broadcast"},
     {Collective::kAllGather, "all-gather"},
     {Collective::kReduceScatter, "reduce-scatter"},
     {Collective::kGather, "gather"},
     {Collective::kScatter, "scatter"},
     {Collective::kAllToAll, "all-to-all"},
     {Collective::kSend, "send"},
     {Collective::kRecv, "recv"},
     {Collective::kBarrier, "barrier"}}};

template <class Enum, std::size_t N>
std::optional<Enum> parse(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Collective collective) noexcept {
  for (const NamedCollective& each : kCollectiveNames) {
    if (each.collective == collective) return each.name;
  }
  return "collective?";
}

std::string_view name_of(DataType type) noexcept {
  if (type == DataType::kBytes) return "bytes";
  return is_valid(type) ? kDataTypeNames[static_cast<std::size_t>(type)] : "datatype?";
}

std::string_view name_of(RedOp op) noexcept {
  return is_valid(op) ? kRedOpNames[static_cast<std::size_t>(op)] : "redop?";
}

std::string_view misfit_of(RedOp op) noexcept {
  return is_bitwise(op) ? "combines the bits of integers" : "multiplies floats";
}

std::optional<Collective> parse_collective(std::string_view name) noexcept {
  for (const NamedCollective& each : kCollectiveNames) {
    if (each.name == name) return each.collective;
  }
  return std::nullopt;
}

std::optional<DataType> parse_datatype(std::string_view name) noexcept {
  return parse<DataType>(kDataTypeNames, name);
}

std::optional<RedOp> parse_redop(std::string_view name) noexcept {
  return parse<RedOp>(kRedOpNames, name);
}

}  // namespace gradwire
