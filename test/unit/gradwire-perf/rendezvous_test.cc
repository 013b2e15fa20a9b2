// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <future>
#include <thread>
#include <vector>

#include "support/temporary_directory.h"

namespace gradwire::perf {
namespace {

using gradwire::test::TemporaryDirectory;

Options options_of(const TemporaryDirectory& folder, std::uint16_t rank) {
  Options options;
  options.rendezvous = folder.path;
  options.nranks = 3;
  options.rank = rank;
  options.timeout_s = 60;
  return options;
}

std::vector<std::byte> info_of(std::uint16_t rank) {
  return {std::byte{7}, static_cast<std::byte>(rank)};
}

std::future<Result<Meeting>> meeting_of(const TemporaryDirectory& folder, std::uint16_t rank) {
  return std::async(std::launch::async,
                    [&folder, rank] { return meet(options_of(folder, rank), info_of(rank)); });
}

}  // namespace

TEST_CASE("ranks meet by files, and leave none") {
  TemporaryDirectory folder;
  std::vector<std::future<Result<Meeting>>> ranks;
  for (std::uint16_t rank = 0; rank < 3; ++rank) ranks.push_back(meeting_of(folder, rank));
  std::vector<Meeting> met;
  for (auto& rank : ranks) {
    auto meeting = rank.get();
    REQUIRE(meeting);
    met.push_back(std::move(*meeting));
  }
  for (const Meeting& meeting : met) {
    CHECK(meeting.group_id == met[0].group_id);
    CHECK(meeting.rank_infos == std::vector{std::byte{7}, std::byte{0}, std::byte{7}, std::byte{1},
                                            std::byte{7}, std::byte{2}});
  }
  for (std::uint16_t rank = 0; rank < 3; ++rank) leave(options_of(folder, rank), {});
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("who cannot join says so to those who still wait for its file") {
  TemporaryDirectory folder;
  auto waiting = meeting_of(folder, 1);
  // It has begun, and rank 2 has met all before: its file has come and gone.
  while (std::filesystem::is_empty(folder.path)) std::this_thread::yield();
  leave(options_of(folder, 2), fail(ErrorCode::kMismatch, "the tables differ"));
  const auto failed = waiting.get();
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == ErrorCode::kUnavailable);
  CHECK(failed.error().message == "rank 2 could not join: the tables differ");
  CHECK_FALSE(std::filesystem::exists(folder.at("gradwire-perf.0.info.1.0")));
  // The next meeting does not hear of it.
  std::vector<std::future<Result<Meeting>>> ranks;
  for (std::uint16_t rank = 0; rank < 3; ++rank) ranks.push_back(meeting_of(folder, rank));
  for (auto& rank : ranks) CHECK(rank.get());
}

}  // namespace gradwire::perf
