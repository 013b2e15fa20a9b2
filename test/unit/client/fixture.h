// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Fake daemons in a folder of their own, and what tests of the C interface do again and again.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/gradwire.h"
#include "fake_daemon.h"

namespace gradwire::test {

/// Milliseconds that no test takes unless something hangs.
inline constexpr std::uint32_t kLong = 20'000;
/// Seconds: far less than what is not told at once would wait, and far more than a busy machine
/// keeps a thread from its core.
inline constexpr double kAtOnce = 10;

class Fixture {
 public:
  explicit Fixture(std::size_t ranks = 1) {
    char pattern[] = "/tmp/gradwire-client-XXXXXX";
    directory_ = ::mkdtemp(pattern);
    for (std::size_t i = 0; i < ranks; ++i) paths_.push_back(directory_ + "/" + std::to_string(i));
    daemon_ = std::make_unique<FakeDaemon>(paths_);
  }
  ~Fixture() {
    daemon_.reset();
    std::filesystem::remove_all(directory_);
  }
  [[nodiscard]] const std::string& path(std::size_t rank = 0) const { return paths_[rank]; }
  [[nodiscard]] FakeDaemon& daemon() { return *daemon_; }
  void kill_daemon() { daemon_.reset(); }

  gw_client* open(std::size_t rank = 0, gw_open_options options = {}) {
    options.struct_bytes = sizeof(options);
    gw_client* client = nullptr;
    const gw_status status = gw_open(path(rank).c_str(), &options, &client);
    INFO(gw_last_error());
    REQUIRE(status == GW_OK);
    return client;
  }

 private:
  std::string directory_;
  std::vector<std::string> paths_;
  std::unique_ptr<FakeDaemon> daemon_;
};

/// Joins a group of all `clients`, [rank * members + member], and returns its handles.
inline std::vector<gw_group*> join_all(const std::vector<gw_client*>& clients,
                                       std::uint16_t members = 1, std::uint64_t id = 7,
                                       std::uint32_t epoch = 1) {
  const auto nranks = static_cast<std::uint16_t>(clients.size() / members);
  std::vector<std::byte> infos(std::size_t{nranks} * GW_RANK_INFO_BYTES);
  for (std::size_t rank = 0; rank < nranks; ++rank) {
    REQUIRE(gw_client_describe(clients[rank * members], &infos[rank * GW_RANK_INFO_BYTES],
                               GW_RANK_INFO_BYTES) == GW_OK);
  }
  std::vector<gw_group*> groups(clients.size());
  std::vector<gw_status> statuses(clients.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back([&, i] {
      gw_group_config config{};
      config.struct_bytes = sizeof(config);
      config.group_id = id;
      config.epoch = epoch;
      config.rank = static_cast<std::uint16_t>(i / members);
      config.nranks = nranks;
      config.member = static_cast<std::uint16_t>(i % members);
      config.member_count = members;
      config.timeout_ms = 5000;
      config.rank_infos = infos.data();
      config.rank_infos_bytes = infos.size();
      statuses[i] = gw_group_join(clients[i], &config, &groups[i]);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const gw_status status : statuses) REQUIRE(status == GW_OK);
  return groups;
}

/// A client alone in a group of one rank.
struct Single {
  Fixture fixture;
  gw_client* client;
  gw_group* group;
  explicit Single(gw_open_options options = {})
      : client(fixture.open(0, options)), group(join_all({client})[0]) {}
  ~Single() {
    gw_group_free(group);
    gw_close(client);
  }
};

inline gw_counters counters_of(gw_client* client) {
  gw_counters counters{};
  counters.struct_bytes = sizeof(counters);
  REQUIRE(gw_client_get_counters(client, &counters) == GW_OK);
  return counters;
}

template <class Body>
double seconds_of(Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Asks `condition` for at most twenty seconds.
template <class Condition>
bool soon(Condition condition) {
  for (int i = 0; i < 20'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

/// Posts one op for each of so many processes, and waits for all; each has to end well.
inline void run_everywhere(std::uint32_t processes,
                           const std::function<gw_status(std::uint32_t, gw_work**)>& post) {
  std::vector<gw_work*> works(processes);
  for (std::uint32_t p = 0; p < processes; ++p) {
    const gw_status posted = post(p, &works[p]);
    INFO(gw_last_error());
    REQUIRE(posted == GW_OK);
  }
  for (gw_work* work : works) {
    const gw_status ended = gw_wait(work, kLong);
    INFO(gw_last_error());
    CHECK(ended == GW_OK);
    gw_work_free(work);
  }
}

}  // namespace gradwire::test
