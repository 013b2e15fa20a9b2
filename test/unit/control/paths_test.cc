// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/paths.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::control {

TEST_CASE("lanes begin with paths in proportion to their ports' rates") {
  const auto taken = [](std::vector<std::uint64_t> rates, std::uint8_t lanes) {
    std::vector<NeighborPath> paths;
    for (const std::uint64_t rate : rates) paths.emplace_back().rate_bps = rate;
    std::string text;
    for (std::uint8_t lane = 0; lane < lanes; ++lane) {
      text += std::to_string(first_path(paths, lane));
    }
    return text + " " + std::to_string(paths_used(paths, lanes)) + " of " +
           std::to_string(lanes_for_all(paths));
  };
  CHECK(taken({7}, 3) == "000 1 of 1");
  CHECK(taken({7, 7, 7}, 7) == "0120120 3 of 3");
  CHECK(taken({7, 7, 7}, 2) == "01 2 of 3");
  CHECK(taken({100, 50}, 2) == "01 2 of 2");
  CHECK(taken({100, 50}, 6) == "010010 2 of 2");
  CHECK(taken({25, 100}, 5) == "11101 2 of 4");
  CHECK(taken({100, 40}, 2) == "00 1 of 3");
  CHECK(taken({100, 0}, 4) == "0101 2 of 2");  // One is not known.
}

}  // namespace gradwire::control
