// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/capture.h"

#include <catch2/catch.hpp>

namespace gradwire::metrics {
namespace {

TEST_CASE("the command names the prefix, and the folder where it is not the usual one") {
  CHECK(capture_command("/var/run/dpdk/gw0") == "dpdk-dumpcap --file-prefix=gw0 -i PORT -w FILE");
  CHECK(capture_command("/run/gradwire/dpdk/gradwired") ==
        "RUNTIME_DIRECTORY=/run/gradwire dpdk-dumpcap --file-prefix=gradwired -i PORT -w FILE");
}

TEST_CASE("where nothing is shared capture is not available, and says why") {
  const Capture capture = Capture::start(fail(ErrorCode::kUnsupported, "no files are shared"));
  CHECK_FALSE(capture.available());
  CHECK_THAT(capture.text(), Catch::Matchers::Contains("not available: no files are shared"));
}

}  // namespace
}  // namespace gradwire::metrics
