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

TEST_CASE(
    "every collective has a name that parses back, and numbers that others may get have none") {
  int named = 0;
  for (int i = 0; i < 256; ++i) {
    const auto collective = static_cast<Collective>(i);
    const bool known = name_of(collective) != "collective?";
    CHECK(known == is_valid(collective));
    if (known) CHECK(parse_collective(name_of(collective)) == collective);
    named += known ? 1 : 0;
  }
  CHECK(named == 11);
  CHECK_FALSE(parse_collective("all-to-one").has_value());
}

TEST_CASE("bytes are a datatype that is only moved") {
  CHECK(name_of(DataType::kBytes) == "bytes");
  CHECK_FALSE(is_valid(DataType::kBytes));
  CHECK(element_bytes(DataType::kBytes) == 0);
  CHECK_FALSE(parse_datatype("bytes").has_value());
}

TEST_CASE("values outside the enumerations are told") {
  CHECK_FALSE(is_valid(static_cast<DataType>(kDataTypeCount)));
  CHECK(element_bytes(static_cast<DataType>(200)) == 0);
  CHECK(name_of(static_cast<RedOp>(99)) == "redop?");
  CHECK_FALSE(parse_datatype("float32").has_value());
}
