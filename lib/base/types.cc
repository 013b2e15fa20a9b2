// SPDX-License-Identifier: BSD-3-Clause
#include "base/types.h"

namespace gradwire {
namespace {

template <class T, std::size_t kRows>
std::optional<T> parse(const std::array<Named<T>, kRows>& table, std::string_view name) noexcept {
  for (const Named<T>& row : table) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Collective collective) noexcept {
  if (!is_valid(collective)) return "collective?";
  return kCollectiveTable[static_cast<std::size_t>(collective) - 1].name;
}

std::string_view name_of(DataType type) noexcept {
  if (type == DataType::kBytes) return "bytes";
  return is_valid(type) ? kDataTypeTable[static_cast<std::size_t>(type)].name : "datatype?";
}

std::string_view name_of(RedOp op) noexcept {
  return is_valid(op) ? kRedOpTable[static_cast<std::size_t>(op)].name : "redop?";
}

std::string_view misfit_of(RedOp op) noexcept {
  return is_bitwise(op) ? "combines the bits of integers" : "multiplies floats";
}

std::optional<Collective> parse_collective(std::string_view name) noexcept {
  return parse(kCollectiveTable, name);
}

std::optional<DataType> parse_datatype(std::string_view name) noexcept {
  return parse(kDataTypeTable, name);
}

std::optional<RedOp> parse_redop(std::string_view name) noexcept {
  return parse(kRedOpTable, name);
}

}  // namespace gradwire
