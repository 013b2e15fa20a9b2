// SPDX-License-Identifier: BSD-3-Clause
// Groups whose processes are numbered in any order, with any number of them at each daemon.
#include <cstring>
#include <functional>

#include "fixture.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

/// Processes at the daemons of `places`, in that order.
struct Parts {
  Fixture fixture;
  std::vector<gw_client*> clients;
  std::vector<std::byte> infos;
  std::vector<gw_group*> groups;

  Parts(const std::vector<std::size_t>& places, std::size_t daemons) : fixture(daemons) {
    for (const std::size_t place : places) {
      clients.push_back(fixture.open(place));
      infos.resize(infos.size() + GW_RANK_INFO_BYTES);
      REQUIRE(gw_client_describe(clients.back(), &infos[infos.size() - GW_RANK_INFO_BYTES],
                                 GW_RANK_INFO_BYTES) == GW_OK);
    }
  }
  ~Parts() {
    for (gw_group* group : groups) gw_group_free(group);
    for (gw_client* client : clients) gw_close(client);
  }
  [[nodiscard]] gw_processes_config config(std::uint32_t process) const {
    gw_processes_config config{};
    config.struct_bytes = sizeof(config);
    config.group_id = 7;
    config.epoch = 1;
    config.process = process;
    config.processes = static_cast<std::uint32_t>(clients.size());
    config.timeout_ms = 5000;
    config.infos = infos.data();
    config.infos_bytes = infos.size();
    return config;
  }
  void join() {
    groups.resize(clients.size());
    std::vector<std::thread> threads;
    for (std::uint32_t p = 0; p < clients.size(); ++p) {
      threads.emplace_back([&, p] {
        const gw_processes_config wanted = config(p);
        if (gw_group_join_processes(clients[p], &wanted, &groups[p]) != GW_OK) groups[p] = nullptr;
      });
    }
    for (auto& thread : threads) thread.join();
    for (const gw_group* group : groups) REQUIRE(group != nullptr);
  }
  void run(const std::function<gw_status(std::uint32_t, gw_work**)>& post) {
    run_everywhere(static_cast<std::uint32_t>(clients.size()), post);
  }
};

}  // namespace

TEST_CASE("processes in any order: a daemon's rank is its place among those that they name") {
  Parts job({2, 0, 2, 1, 2, 0}, 3);
  job.join();
  const std::uint16_t ranks[] = {0, 1, 0, 2, 0, 1};
  const std::uint16_t members[] = {0, 0, 1, 0, 2, 1};
  const std::uint16_t counts[] = {3, 2, 3, 1, 3, 2};
  for (std::uint32_t p = 0; p < 6; ++p) {
    gw_group_info info{};
    info.struct_bytes = sizeof(info);
    REQUIRE(gw_group_get_info(job.groups[p], &info) == GW_OK);
    CHECK(info.process == p);
    CHECK(info.processes == 6);
    CHECK(info.rank == ranks[p]);
    CHECK(info.nranks == 3);
    CHECK(info.member == members[p]);
    CHECK(info.member_count == counts[p]);
    for (std::uint32_t other = 0; other < 6; ++other) {
      CHECK(gw_group_rank_of(job.groups[p], other) == ranks[other]);
    }
    CHECK(gw_group_rank_of(job.groups[p], 6) == -1);
  }
}

TEST_CASE("roots and blocks go by the processes' numbers") {
  for (const auto& places : {std::vector<std::size_t>{0, 1, 1, 1}, {1, 0, 1}, {0, 0}, {2, 1, 0}}) {
    Parts job(places, 3);
    job.join();
    const auto count = static_cast<std::uint32_t>(places.size());
    std::vector<std::vector<std::int32_t>> all(count, std::vector<std::int32_t>(count));
    std::vector<std::int32_t> one(count);
    const auto fill = [&] {
      for (std::uint32_t p = 0; p < count; ++p) one[p] = static_cast<std::int32_t>(100 + p);
    };
    fill();
    job.run([&](std::uint32_t p, gw_work** work) {
      return gw_all_gather(job.groups[p], &one[p], all[p].data(), 1, GW_INT32, 0, work);
    });
    for (const auto& gathered : all) CHECK(gathered == one);
    for (std::uint32_t root = 0; root < count; ++root) {
      fill();
      job.run([&](std::uint32_t p, gw_work** work) {
        return gw_broadcast(job.groups[p], &one[p], &one[p], 1, GW_INT32, root, 0, work);
      });
      CHECK(one == std::vector<std::int32_t>(count, static_cast<std::int32_t>(100 + root)));
      fill();
      job.run([&](std::uint32_t p, gw_work** work) {
        return gw_reduce(job.groups[p], &one[p], &one[p], 1, GW_INT32, GW_MAX, root, 0, work);
      });
      for (std::uint32_t p = 0; p < count; ++p) {
        CHECK(one[p] == static_cast<std::int32_t>(100 + (p == root ? count - 1 : p)));
      }
    }
    for (std::uint32_t p = 0; p < count; ++p) {
      for (std::uint32_t block = 0; block < count; ++block) {
        all[p][block] = static_cast<std::int32_t>(10 * block + p);
      }
    }
    job.run([&](std::uint32_t p, gw_work** work) {
      return gw_reduce_scatter(job.groups[p], all[p].data(), &one[p], 1, GW_INT32, GW_MIN, 0, work);
    });
    for (std::uint32_t p = 0; p < count; ++p) CHECK(one[p] == static_cast<std::int32_t>(10 * p));
  }
}

TEST_CASE("groups over parts of a job's processes, each with numbers of its own") {
  Parts job({0, 0, 1, 1}, 2);
  const auto part = [&](std::uint64_t id, const std::vector<std::uint32_t>& processes) {
    std::vector<std::byte> infos;
    for (const std::uint32_t p : processes) {
      const auto first = job.infos.begin() + static_cast<std::ptrdiff_t>(p * GW_RANK_INFO_BYTES);
      infos.insert(infos.end(), first, first + GW_RANK_INFO_BYTES);
    }
    std::vector<gw_group*> groups(processes.size());
    std::vector<std::thread> threads;
    for (std::uint32_t p = 0; p < processes.size(); ++p) {
      threads.emplace_back([&, p] {
        gw_processes_config wanted = job.config(p);
        wanted.group_id = id;
        wanted.processes = static_cast<std::uint32_t>(processes.size());
        wanted.infos = infos.data();
        wanted.infos_bytes = infos.size();
        gw_group_join_processes(job.clients[processes[p]], &wanted, &groups[p]);
      });
    }
    for (auto& thread : threads) thread.join();
    for (gw_group* group : groups) {
      REQUIRE(group != nullptr);
      job.groups.push_back(group);
    }
  };
  part(20, {3, 0, 2});
  part(21, {1, 0});  // one host alone
  part(22, {2});
  gw_group_info info{};
  info.struct_bytes = sizeof(info);
  REQUIRE(gw_group_get_info(job.groups[2], &info) == GW_OK);  // process 2 of the job
  CHECK(info.process == 2);
  CHECK(info.rank == 0);
  CHECK(info.member == 1);
  REQUIRE(gw_group_get_info(job.groups[4], &info) == GW_OK);
  CHECK(info.process == 1);
  CHECK(info.nranks == 1);
}

TEST_CASE("what is wrong with a group's processes is told by number") {
  Parts job({0, 1, 0}, 2);
  const auto refused = [&](gw_processes_config config, gw_status status, const char* says) {
    gw_group* group = nullptr;
    CHECK(gw_group_join_processes(job.clients[0], &config, &group) == status);
    CHECK_THAT(gw_last_error(), Catch::Contains(says));
    CHECK(group == nullptr);
  };
  gw_processes_config config = job.config(3);
  refused(config, GW_INVALID_ARGUMENT, "process is 3 of 3 processes");
  config = job.config(0);
  config.infos_bytes -= 1;
  refused(config, GW_INVALID_ARGUMENT, "infos_bytes is 1535: for processes = 3");
  config = job.config(0);
  config.processes = 0;
  refused(config, GW_INVALID_ARGUMENT, "processes is 0: it must be 1 to 65535");
  config = job.config(0);
  config.infos = nullptr;
  refused(config, GW_INVALID_ARGUMENT, "infos is NULL");
  config = job.config(0);
  config.flags = 2;
  refused(config, GW_UNSUPPORTED, "gw_processes_config.flags is 0x2");
  config.struct_bytes = 8;
  refused(config, GW_INVALID_ARGUMENT, "set it to sizeof(gw_processes_config)");

  job.infos[2 * GW_RANK_INFO_BYTES + 20] ^= std::byte{1};
  refused(job.config(0), GW_MISMATCH, "processes 0 and 2 describe their common daemon");
  job.infos[1 * GW_RANK_INFO_BYTES] ^= std::byte{1};
  refused(job.config(0), GW_INVALID_ARGUMENT, "the info of process 1 is damaged");
  std::vector<std::byte> many;
  for (int i = 0; i < 65; ++i) {
    many.insert(many.end(), job.infos.begin(), job.infos.begin() + GW_RANK_INFO_BYTES);
  }
  config = job.config(0);
  config.processes = 65;
  config.infos = many.data();
  config.infos_bytes = many.size();
  refused(config, GW_INVALID_ARGUMENT, "rank 0 has 65 processes, must have 1 to 64");
}
