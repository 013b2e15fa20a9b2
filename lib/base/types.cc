// SPDX-License-Identifier: BSD-3-Clause
#include "base/types.h"

#include <array>

namespace gradwire {
namespace {

constexpr std::array<std::string_view, kDataTypeCount> kDataTypeNames = {
    "fp32", "fp64", "fp16", "bf16", "int8", "int32", "int64", "uint8"};
constexpr std::array<std::string_view, kRedOpCount> kRedOpNames = {"sum", "avg", "min", "max",
                                                                   "prod"};

template <class Enum, std::size_t N>
std::optional<Enum> parse(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(DataType type) noexcept {
  return is_valid(type) ? kDataTypeNames[static_cast<std::size_t>(type)] : "datatype?";
}

std::string_view name_of(RedOp op) noexcept {
  return is_valid(op) ? kRedOpNames[static_cast<std::size_t>(op)] : "redop?";
}

std::optional<DataType> parse_datatype(std::string_view name) noexcept {
  return parse<DataType>(kDataTypeNames, name);
}

std::optional<RedOp> parse_redop(std::string_view name) noexcept {
  return parse<RedOp>(kRedOpNames, name);
}

}  // namespace gradwire
