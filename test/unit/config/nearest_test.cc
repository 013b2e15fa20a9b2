// SPDX-License-Identifier: BSD-3-Clause
#include "config/nearest.h"

#include <catch2/catch.hpp>
#include <vector>

namespace gradwire::config {
namespace {

TEST_CASE("edit distance counts insertions, deletions and substitutions") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("count", "cuont") == 2);
}

TEST_CASE("the nearest word is found, and none where all are far") {
  const std::vector<std::string> words = {"dscp", "window_packets", "eager_packets"};
  CHECK(nearest("window_packet", words) == "window_packets");
  CHECK(nearest("dcsp", words) == "dscp");
  CHECK(nearest("zzzzzzzz", words).empty());
  CHECK(nearest("x", {}).empty());
}

}  // namespace
}  // namespace gradwire::config
