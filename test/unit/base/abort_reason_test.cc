// SPDX-License-Identifier: BSD-3-Clause
#include "base/abort_reason.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

using namespace gradwire;

TEST_CASE("a silence names the rank, the op and how long") {
  AbortReason reason{.code = AbortCode::kSilence,
                     .culprit_rank = 3,
                     .reporter_rank = 1,
                     .op_seq = 17,
                     .duration_ns = 250'000'000};
  CHECK(describe(reason) == "rank 3 was silent for 250 ms, op 17 (seen by rank 1)");
}

TEST_CASE("a detail that is too long is cut and still ends") {
  AbortReason reason;
  reason.set_detail(std::string(1000, 'x').c_str());
  CHECK(std::strlen(reason.detail) == AbortReason::kDetailBytes - 1);
}
