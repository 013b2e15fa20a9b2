// SPDX-License-Identifier: BSD-3-Clause
#include "options.h"

#include <catch2/catch.hpp>

using namespace gradwire;
using namespace gradwire::perf;

namespace {

Result<CommandLine> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "gradwire-perf");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

TEST_CASE("sizes take K, M and G as powers of 1024") {
  const auto parsed = parse({"-b", "4K", "-e", "1G", "-f", "4", "-n", "7", "-w", "0", "-d", "bf16",
                             "-o", "max", "--check"});
  REQUIRE(parsed.has_value());
  const Options& options = parsed->options;
  CHECK(options.begin_bytes == 4096);
  CHECK(options.end_bytes == 1u << 30);
  CHECK(options.factor == 4.0);
  CHECK(options.iterations == 7);
  CHECK(options.warmup == 0);
  CHECK(options.datatype == DataType::kBfloat16);
  CHECK(options.redop == RedOp::kMax);
  CHECK(options.check);
  CHECK_FALSE(options.in_place);
}

TEST_CASE("sizes go up by the factor, in whole elements, each once") {
  Options options;
  options.begin_bytes = 1000;
  options.end_bytes = 9000;
  options.factor = 3;
  options.datatype = DataType::kFloat64;
  CHECK(sizes_of(options) == std::vector<std::uint64_t>{1000, 3000, 9000});
  options.begin_bytes = 0;
  options.end_bytes = 40;
  options.factor = 2;
  CHECK(sizes_of(options) == std::vector<std::uint64_t>{0, 8, 16, 32});
  options.begin_bytes = options.end_bytes = 7;
  CHECK(sizes_of(options) == std::vector<std::uint64_t>{0});
}

TEST_CASE("a transport of later is refused by its name, and so is an unknown one") {
  const auto later = parse({"--transport", "embedded"});
  REQUIRE_FALSE(later.has_value());
  CHECK(later.error().code == ErrorCode::kUnsupported);
  const auto unknown = parse({"--transport", "x"});
  REQUIRE_FALSE(unknown.has_value());
  CHECK(unknown.error().code == ErrorCode::kInvalidArgument);
}
