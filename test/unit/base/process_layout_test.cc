// SPDX-License-Identifier: BSD-3-Clause
#include "base/process_layout.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace gradwire;

TEST_CASE("a layout numbers processes by place: rank by rank, members by number") {
  const std::vector<std::uint16_t> ranks = {2, 0, 2, 1, 2, 0};
  const auto layout = ProcessLayout::make(ranks, 3);
  REQUIRE(layout);
  CHECK(layout->nranks() == 3);
  CHECK(layout->processes() == 6);
  CHECK(layout->members_of(0) == 2);
  CHECK(layout->members_of(1) == 1);
  CHECK(layout->members_of(2) == 3);
  std::vector<std::uint32_t> at;
  for (std::uint32_t place = 0; place < 6; ++place) at.push_back(layout->process_at(place));
  CHECK(at == std::vector<std::uint32_t>{1, 5, 3, 0, 2, 4});
  CHECK_FALSE(layout->is_plain());

  const GroupProcesses processes{3, 3, &*layout};
  CHECK(processes.count() == 6);
  CHECK_FALSE(processes.one_each());
  for (std::uint32_t process = 0; process < 6; ++process) {
    CHECK(layout->process_at(layout->place_of(process)) == process);
    const std::uint16_t rank = processes.rank_of(process);
    CHECK(rank == ranks[process]);
    CHECK(processes.process_of(rank, processes.member_of(process)) == process);
  }
}

TEST_CASE(
    "without a layout a process is rank x members + member, and a plain layout says the same") {
  const GroupProcesses plain{4, 3};
  const auto layout =
      ProcessLayout::make(std::vector<std::uint16_t>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}, 4);
  REQUIRE(layout);
  CHECK(layout->is_plain());
  const GroupProcesses same{4, 3, &*layout};
  CHECK(plain.count() == same.count());
  for (std::uint32_t process = 0; process < 12; ++process) {
    CHECK(plain.rank_of(process) == same.rank_of(process));
    CHECK(plain.member_of(process) == same.member_of(process));
    CHECK(plain.process_at(process) == same.process_at(process));
  }
  CHECK(plain.first_place(2) == same.first_place(2));
  CHECK(plain.process_of(2, 1) == 7);
  CHECK_FALSE(ProcessLayout::make(std::vector<std::uint16_t>{1, 0}, 2)->is_plain());
  CHECK_FALSE(ProcessLayout::make(std::vector<std::uint16_t>{0, 1, 1}, 2)->is_plain());
}

TEST_CASE("what is no layout is refused, by process and rank") {
  const auto text = [](const std::vector<std::uint16_t>& ranks, std::uint32_t nranks) {
    const auto made = ProcessLayout::make(ranks, nranks);
    return made ? std::string() : made.error().message;
  };
  CHECK(text({}, 1) == "a group of 0 processes, must be 1 to 65535");
  CHECK(text({0, 2}, 2) == "process 1 is at rank 2, but the group has 2 ranks: ranks count from 0");
  CHECK(text({0, 2}, 3) == "rank 1 has 0 processes, must have 1 to 64");
  CHECK(text(std::vector<std::uint16_t>(65, 0), 1) == "rank 0 has 65 processes, must have 1 to 64");
  CHECK(text(std::vector<std::uint16_t>(65'536, 0), 1) ==
        "a group of 65536 processes, must be 1 to 65535");
  CHECK(text(std::vector<std::uint16_t>(64, 0), 1).empty());
}
