// SPDX-License-Identifier: BSD-3-Clause
#include "host/finding.h"

#include <catch2/catch.hpp>

#include "host/machine.h"
#include "host/mtu_probe.h"

namespace gradwire::host {
namespace {

using Catch::Matchers::Contains;

const Findings kFindings = {
    {"hugepages", "node 0", Verdict::kOk, "1024", "packets lie there", "never shown"},
    {"IOMMU", "", Verdict::kFail, "off", "vfio needs it", "turn it on"},
    {"frequency", "CPU 3", Verdict::kWarn, "powersave", "it is slow", "cpupower"},
    {"GPU", "", Verdict::kSkip, "none", "", ""},
};

TEST_CASE("text shows why and how only where there is something to do") {
  const std::string text = to_text(kFindings);
  CHECK_THAT(text, Contains("ok    hugepages, node 0: 1024\n") && !Contains("never shown"));
  CHECK_THAT(text, Contains("fail  IOMMU: off\n      why:  vfio needs it\n      fix:  turn it on"));
  CHECK_THAT(text, Contains("not fit: 1 ok, 1 warn, 1 fail, 1 skip"));
  CHECK(to_sentence(kFindings[1]) == "IOMMU: off: vfio needs it; fix: turn it on");
}

TEST_CASE("JSON has everything") {
  const auto json = to_json(kFindings);
  CHECK(json["fit"] == false);
  REQUIRE(json["findings"].size() == 4);
  CHECK(json["findings"][2]["verdict"] == "warn");
  CHECK(json["findings"][0]["mend"] == "never shown");
  CHECK(to_json(Findings{kFindings[2]})["fit"] == true);
}

TEST_CASE("a path is judged against its interface and what is wanted") {
  const auto judge = [](std::uint32_t interface_mtu, std::uint32_t path, std::uint64_t wanted) {
    return check_path_mtu("10.0.0.2", PathMtu{"eth1", interface_mtu, path}, wanted);
  };
  CHECK(judge(9000, 9000, 0).verdict == Verdict::kOk);
  CHECK(judge(9000, 9000, 9000).verdict == Verdict::kOk);
  CHECK(judge(9000, 1500, 0).verdict == Verdict::kFail);
  CHECK_THAT(judge(9000, 1500, 0).mend, Contains("mtu = 1500"));
  CHECK(judge(1500, 1500, 9000).verdict == Verdict::kFail);
  CHECK_THAT(judge(1500, 0, 0).value, Contains("no answer through eth1"));
  CHECK(check_path_mtu("x", probe_path_mtu("x"), 0).verdict == Verdict::kFail);
}

TEST_CASE("a program's output is read, and its failure is nothing") {
  const Machine machine;
  CHECK(machine.output({"echo", "a", "b"}) == "a b\n");
  CHECK(machine.output({"false"}) == std::nullopt);
  CHECK(machine.output({"/nonexistent/program"}) == std::nullopt);
  CHECK(machine.output({}) == std::nullopt);
  CHECK(machine.pause("no-such-interface") == std::nullopt);
}

}  // namespace
}  // namespace gradwire::host
