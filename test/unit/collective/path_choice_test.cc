// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>

#include "chosen_path.h"

namespace gradwire::collective::chosen_path {

TEST_CASE("a silent path is left after a quarter of the limit, and taken again when it answers") {
  ChosenPath link(2);
  link.run_for(kLimit, 0b11);
  CHECK(link.end.path() == 0);
  link.run_for(kLimit / 4 - 5 * kMillisecond, 0b10);
  CHECK(link.end.path() == 0);
  link.run_for(10 * kMillisecond, 0b10);
  CHECK(link.end.path() == 1);
  CHECK(link.end.address().port == 1);
  const std::uint64_t number = link.end.numbers().next();
  link.run_for(10 * kLimit, 0b10);
  CHECK(link.end.path() == 1);
  CHECK(link.end.numbers().next() > number);
  link.run_for(kLimit, 0b11);
  CHECK(link.end.path() == 0);
  CHECK(link.away == 1);
  CHECK(link.back == 1);
}

TEST_CASE("a link takes no path that does not answer") {
  ChosenPath link(3);
  link.run_for(2 * kLimit, 0b000);
  CHECK(link.end.path() == 0);
  link.run_for(kLimit / 8, 0b100);
  CHECK(link.end.path() == 2);
  CHECK(link.away == 1);
}

TEST_CASE("what was acknowledged of the old path says nothing of the new one") {
  ChosenPath link(2);
  link.run_for(kLimit, 0b11);
  const std::uint64_t old = link.end.numbers().next() - 1;
  link.run_for(kLimit / 2, 0b10);
  REQUIRE(link.end.path() == 1);
  CHECK(old < link.end.first_number());
  for (TimeNs ms = 0; ms < kLimit / kMillisecond; ++ms) {
    link.choice.on_acknowledged(old, true);
    link.run_for(kMillisecond, 0b01 & ~(1u << link.end.path()));
    if (link.end.path() == 0) break;
  }
  CHECK(link.end.path() == 0);
}

TEST_CASE("a path that comes and goes has to answer longer each time") {
  ChosenPath link(2);
  TimeNs before = 0;
  for (int i = 0; i < 3; ++i) {
    link.run_for(kLimit, 0b10);
    REQUIRE(link.end.path() == 1);
    const TimeNs mended = link.now;
    while (link.end.path() != 0 && link.now < mended + 10 * kLimit)
      link.run_for(kMillisecond, 0b11);
    const TimeNs took = link.now - mended;
    CHECK(took > before + kLimit / 8);
    before = took;
  }
}

TEST_CASE("a path is left as soon where data waited for a client before") {
  ChosenPath link(2, 32);
  link.wait_for(kLimit * 11 / 10, ~0u, false);
  link.wait_for(10 * kMillisecond, ~0u, true);
  link.run_for(kLimit / 4 + kLimit / 32 + 5 * kMillisecond, 0b10);
  CHECK(link.end.path() == 1);
}

}  // namespace gradwire::collective::chosen_path
