// SPDX-License-Identifier: BSD-3-Clause
#include "base/types.h"

#include <catch2/catch.hpp>

using namespace gradwire;

TEST_CASE("every datatype and redop has a name that parses back") {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    CHECK(parse_datatype(name_of(type)) == type);
    CHECK(element_bytes(type) > 0);
  }
  for (int i = 0; i < kRedOpCount; ++i) {
    const auto op = static_cast<RedOp>(i);
    CHECK(parse_redop(name_of(op)) == op);
  }
}

TEST_CASE("values outside the enumerations are told") {
  CHECK_FALSE(is_valid(static_cast<DataType>(kDataTypeCount)));
  CHECK(element_bytes(static_cast<DataType>(200)) == 0);
  CHECK(name_of(static_cast<RedOp>(99)) == "redop?");
  CHECK_FALSE(parse_datatype("float32").has_value());
}
