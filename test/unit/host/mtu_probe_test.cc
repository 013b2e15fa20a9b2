// SPDX-License-Identifier: BSD-3-Clause
#include "host/mtu_probe.h"

#include <catch2/catch.hpp>

#include "host/kernel_address.h"

namespace gradwire::host {
namespace {

using Catch::Matchers::Contains;

Finding judged(std::uint32_t interface_mtu, std::uint32_t path_mtu, std::uint64_t wanted) {
  return check_path_mtu("10.0.0.2", PathMtu{"eth0", interface_mtu, path_mtu}, wanted);
}

TEST_CASE("a path is judged by the MTU that is wanted of it") {
  CHECK(judged(9000, 9000, 9000).verdict == Verdict::kOk);
  CHECK(judged(9000, 8504, 8000).verdict == Verdict::kOk);
  CHECK_THAT(judged(9000, 8504, 8000).value,
             Contains("8504 of 9000 bytes through eth0, 8000 wanted"));
  CHECK(judged(65'535, 65'535, 9000).verdict == Verdict::kOk);
  CHECK(judged(9000, 8504, 9000).verdict == Verdict::kFail);
  CHECK_THAT(judged(9000, 8504, 9000).mend, Contains("9000") && Contains("mtu = 8504"));
  CHECK(judged(1500, 1500, 9000).verdict == Verdict::kFail);
}

TEST_CASE("without one it has to carry what its first interface does") {
  CHECK(judged(9000, 9000, 0).verdict == Verdict::kOk);
  CHECK(judged(9000, 8504, 0).verdict == Verdict::kFail);
}

TEST_CASE("no mtu is advised that the configuration refuses") {
  for (const std::uint64_t wanted : {0, 1280, 9000}) {
    for (const std::uint32_t path : {576u, 1000u, 1279u}) {
      for (const std::uint32_t interface : {path, 1500u, 9000u}) {
        const Finding finding = judged(interface, path, wanted);
        INFO(finding.mend << "; " << finding.why);
        CHECK(finding.verdict == Verdict::kFail);
        CHECK_THAT(finding.mend, !Contains("mtu ="));
        CHECK_THAT(finding.why, Contains(std::to_string(1280 - path) + " bytes too small"));
      }
    }
  }
  CHECK(judged(1500, 1280, 1280).verdict == Verdict::kOk);
  CHECK_THAT(judged(1500, 1280, 0).mend, Contains("mtu = 1280"));
}

TEST_CASE("a peer that does not answer is a failure") {
  CHECK(judged(9000, 0, 0).verdict == Verdict::kFail);
  CHECK_THAT(judged(9000, 0, 8000).value, Contains("no answer through eth0"));
}

TEST_CASE("the interface that has an address of the kernel's") {
  CHECK(interface_with_address("192.0.2.77").empty());
  CHECK(interface_with_address("no address").empty());
}

}  // namespace
}  // namespace gradwire::host
