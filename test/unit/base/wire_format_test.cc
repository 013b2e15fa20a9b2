// SPDX-License-Identifier: BSD-3-Clause
#include "base/wire_format.h"

#include <catch2/catch.hpp>

namespace {

using namespace gradwire;

TEST_CASE("a chunk carries what the page's table says") {
  CHECK(elements_in_chunk(WireFormat::kSame, DataType::kFloat32, 1408) == 352);
  CHECK(elements_in_chunk(WireFormat::kSame, DataType::kFloat32, 8896) == 2224);
  CHECK(elements_in_chunk(WireFormat::kBf16, DataType::kFloat32, 1408) == 704);
  CHECK(elements_in_chunk(WireFormat::kBf16, DataType::kFloat32, 8896) == 4448);
  CHECK(elements_in_chunk(WireFormat::kInt8, DataType::kBfloat16, 1408) == 1280);
  CHECK(elements_in_chunk(WireFormat::kInt8, DataType::kFloat32, 8896) == 8704);
  CHECK(elements_in_chunk(WireFormat::kInt8, DataType::kFloat32, 260) == 256);
  CHECK(elements_in_chunk(WireFormat::kInt8, DataType::kFloat32, 259) == 0);
  CHECK(elements_in_chunk(WireFormat::kSame, DataType::kBytes, 1408) == 0);
}

TEST_CASE("each element takes its bytes, and each block of int8 a scale") {
  CHECK(wire_bytes(WireFormat::kSame, DataType::kBfloat16, 3) == 6);
  CHECK(wire_bytes(WireFormat::kBf16, DataType::kFloat32, 3) == 6);
  CHECK(wire_bytes(WireFormat::kInt8, DataType::kFloat32, 0) == 0);
  CHECK(wire_bytes(WireFormat::kInt8, DataType::kFloat32, 1) == 5);
  CHECK(wire_bytes(WireFormat::kInt8, DataType::kFloat32, 256) == 260);
  CHECK(wire_bytes(WireFormat::kInt8, DataType::kBfloat16, 257) == 265);
  CHECK(wire_bytes(WireFormat::kInt8, DataType::kFloat32, 1280) == 1300);
  CHECK(wire_bytes(WireFormat::kInt8, DataType::kFloat32, 8704) == 8840);
}

TEST_CASE("formats are for some datatypes, and have names") {
  for (const DataType type : kDataTypes) {
    CHECK(fits(WireFormat::kSame, type));
    CHECK(fits(WireFormat::kBf16, type) == (type == DataType::kFloat32));
    CHECK(fits(WireFormat::kInt8, type) ==
          (type == DataType::kFloat32 || type == DataType::kBfloat16));
    CHECK_FALSE(fits(static_cast<WireFormat>(3), type));
  }
  CHECK(name_of(WireFormat::kInt8) == "int8");
  CHECK(name_of(static_cast<WireFormat>(3)) == "format?");
  CHECK_FALSE(is_valid(static_cast<WireFormat>(3)));
}

TEST_CASE("formats are for sums and averages of collectives that sum") {
  for (const Collective collective : kCollectives) {
    for (const RedOp op : kRedOps) {
      const bool sums = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                        collective == Collective::kReduceScatter;
      const bool linear = op == RedOp::kSum || op == RedOp::kAvg;
      CHECK(fits(WireFormat::kSame, collective, op, DataType::kInt64));
      for (const WireFormat format : {WireFormat::kBf16, WireFormat::kInt8}) {
        CHECK(fits(format, collective, op, DataType::kFloat32) == (sums && linear));
        CHECK_FALSE(fits(format, collective, op, DataType::kFloat64));
      }
    }
  }
}

}  // namespace
