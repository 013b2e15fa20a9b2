// SPDX-License-Identifier: BSD-3-Clause
// The collectives besides all-reduce: what each process gets, where memory may lie, what is copied
// and what is refused. Two ranks of two members, so that processes are not ranks.
#include <cstring>
#include <functional>

#include "fixture.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

constexpr std::uint32_t kProcesses = 4;
constexpr std::size_t kCount = 37;
constexpr std::size_t kAll = kProcesses * kCount;

/// Element i of what process p gives. Integers, so that no order of summation matters.
std::int32_t given(std::size_t process, std::size_t i) {
  return static_cast<std::int32_t>(1000 * (process + 1) + i);
}
std::int32_t sum_at(std::size_t i) {
  std::int32_t sum = 0;
  for (std::size_t p = 0; p < kProcesses; ++p) sum += given(p, i);
  return sum;
}

struct Job {
  Fixture fixture{2};
  std::vector<gw_client*> clients;
  std::vector<gw_group*> groups;
  std::vector<gw_memory*> memories;
  std::vector<std::int32_t*> shared;           // by process: two buffers of kAll each
  std::vector<std::vector<std::int32_t>> own;  // the same, not shared

  Job() {
    for (std::uint32_t i = 0; i < kProcesses; ++i) clients.push_back(fixture.open(i / 2));
    groups = join_all(clients, 2);
    for (gw_client* client : clients) {
      memories.push_back(nullptr);
      REQUIRE(gw_memory_alloc(client, 2 * kAll * sizeof(std::int32_t), &memories.back()) == GW_OK);
      shared.push_back(static_cast<std::int32_t*>(gw_memory_address(memories.back())));
      own.emplace_back(2 * kAll);
    }
  }
  ~Job() {
    for (gw_group* group : groups) gw_group_free(group);
    for (gw_memory* memory : memories) CHECK(gw_memory_free(memory) == GW_OK);
    for (gw_client* client : clients) gw_close(client);
  }

  /// Posts on every process, waits for all; each has to end well.
  void run(const std::function<gw_status(std::uint32_t, gw_work**)>& post) {
    run_everywhere(kProcesses, post);
  }
  std::uint64_t copied_bytes() {
    std::uint64_t sum = 0;
    for (gw_client* client : clients) sum += counters_of(client).copied_bytes;
    return sum;
  }
};

/// How input and output lie: in memory of gw_memory_alloc() or not, apart or in place.
struct Layout {
  bool shared_input;
  bool shared_output;
  bool in_place;
};
const Layout kLayouts[] = {{true, true, false},  {true, true, true},   {false, false, false},
                           {false, false, true}, {true, false, false}, {false, true, false}};

/// Where process `p` has its input and output, of so many elements each.
struct Place {
  std::int32_t* input;
  std::int32_t* output;
};
Place place(Job& job, const Layout& layout, std::uint32_t p, std::size_t inputs,
            std::size_t outputs) {
  std::int32_t* const from = layout.shared_input ? job.shared[p] : job.own[p].data();
  std::int32_t* const to = (layout.shared_output ? job.shared[p] : job.own[p].data()) + kAll;
  if (!layout.in_place) return {from, to};
  if (inputs < outputs) return {to + p * kCount, to};
  if (inputs > outputs) return {from, from + p * kCount};
  return {from, from};
}

}  // namespace

TEST_CASE("an all-gather gives every process all blocks, in the order of processes") {
  Job job;
  for (const Layout& layout : kLayouts) {
    std::vector<Place> places;
    for (std::uint32_t p = 0; p < kProcesses; ++p) {
      places.push_back(place(job, layout, p, kCount, kAll));
      std::fill_n(places[p].output, kAll, -1);
      for (std::size_t i = 0; i < kCount; ++i) places[p].input[i] = given(p, i);
    }
    job.run([&](std::uint32_t p, gw_work** work) {
      return gw_all_gather(job.groups[p], places[p].input, places[p].output, kCount, GW_INT32, 5,
                           work);
    });
    for (const Place& at : places) {
      for (std::size_t i = 0; i < kAll; ++i) REQUIRE(at.output[i] == given(i / kCount, i % kCount));
    }
  }
}

TEST_CASE("a reduce-scatter gives each process its own block of the sum") {
  Job job;
  for (const Layout& layout : kLayouts) {
    std::vector<Place> places;
    for (std::uint32_t p = 0; p < kProcesses; ++p) {
      places.push_back(place(job, layout, p, kAll, kCount));
      if (!layout.in_place) std::fill_n(places[p].output, kCount, -1);
      for (std::size_t i = 0; i < kAll; ++i) places[p].input[i] = given(p, i);
    }
    job.run([&](std::uint32_t p, gw_work** work) {
      return gw_reduce_scatter(job.groups[p], places[p].input, places[p].output, kCount, GW_INT32,
                               GW_SUM, 0, work);
    });
    for (std::size_t p = 0; p < kProcesses; ++p) {
      for (std::size_t i = 0; i < kCount; ++i) {
        REQUIRE(places[p].output[i] == sum_at(p * kCount + i));
      }
      // The other blocks of an input are its owner's again.
      const std::size_t other = (p + 1) % kProcesses * kCount;
      REQUIRE(places[p].input[other] == given(p, other));
    }
  }
}

TEST_CASE("a broadcast reads the root alone, and a reduce writes the root alone") {
  Job job;
  for (const Layout& layout : kLayouts) {
    for (std::uint32_t root = 0; root < kProcesses; ++root) {
      INFO("root " << root);
      std::vector<Place> places;
      for (std::uint32_t p = 0; p < kProcesses; ++p) {
        places.push_back(place(job, layout, p, kCount, kCount));
        std::fill_n(places[p].output, kCount, -1);
        for (std::size_t i = 0; i < kCount; ++i) places[p].input[i] = given(p, i);
      }
      job.run([&](std::uint32_t p, gw_work** work) {
        return gw_reduce(job.groups[p], places[p].input, p == root ? places[p].output : nullptr,
                         kCount, GW_INT32, GW_SUM, root, 1, work);
      });
      for (std::size_t p = 0; p < kProcesses; ++p) {
        for (std::size_t i = 0; i < kCount; ++i) {
          if (p == root) {
            REQUIRE(places[p].output[i] == sum_at(i));
          } else {
            REQUIRE(places[p].input[i] == given(p, i));
          }
        }
      }
      job.run([&](std::uint32_t p, gw_work** work) {
        const std::int32_t* input = p == root ? places[p].input : nullptr;
        return gw_broadcast(job.groups[p], input, places[p].output, kCount, GW_INT32, root, 2,
                            work);
      });
      for (const Place& at : places) {
        REQUIRE(std::memcmp(at.output, places[root].input, kCount * sizeof(std::int32_t)) == 0);
      }
    }
  }
}

TEST_CASE("collectives in shared memory copy nothing; others copy each side once") {
  Job job;
  const auto gather = [&](bool shared_input, bool shared_output) {
    const std::uint64_t before = job.copied_bytes();
    job.run([&](std::uint32_t p, gw_work** work) {
      const Place at = place(job, {shared_input, shared_output, false}, p, kCount, kAll);
      return gw_all_gather(job.groups[p], at.input, at.output, kCount, GW_INT32, 0, work);
    });
    return job.copied_bytes() - before;
  };
  const auto scatter = [&](bool shared_input, bool shared_output) {
    const std::uint64_t before = job.copied_bytes();
    job.run([&](std::uint32_t p, gw_work** work) {
      const Place at = place(job, {shared_input, shared_output, false}, p, kAll, kCount);
      return gw_reduce_scatter(job.groups[p], at.input, at.output, kCount, GW_INT32, GW_SUM, 0,
                               work);
    });
    return job.copied_bytes() - before;
  };
  constexpr std::uint64_t kBlock = kProcesses * kCount * sizeof(std::int32_t);
  CHECK(gather(true, true) == 0);
  CHECK(gather(false, true) == kBlock);
  CHECK(gather(true, false) == kProcesses * kBlock);
  CHECK(gather(false, false) == (kProcesses + 1) * kBlock);
  CHECK(scatter(true, true) == 0);
  CHECK(scatter(false, true) == kProcesses * kBlock);
  CHECK(scatter(true, false) == kBlock);
  CHECK(scatter(false, false) == (kProcesses + 1) * kBlock);
}

TEST_CASE("a barrier is done when the last process has called it") {
  Job job;
  gw_work* works[kProcesses];
  for (std::uint32_t p = 0; p + 1 < kProcesses; ++p) {
    REQUIRE(gw_barrier(job.groups[p], 9, &works[p]) == GW_OK);
  }
  CHECK(gw_wait(works[0], 20) == GW_TIMED_OUT);
  CHECK_THAT(gw_last_error(), Catch::Contains("barrier 1 of rank 0 in group") &&
                                  Catch::Contains("(tag 9) is not done"));
  REQUIRE(gw_barrier(job.groups[3], 9, &works[3]) == GW_OK);
  for (gw_work* work : works) {
    CHECK(gw_wait(work, kLong) == GW_OK);
    gw_work_free(work);
  }
}

TEST_CASE("what a collective cannot take is refused by name, and posts nothing") {
  Job job;
  gw_group* const group = job.groups[1];  // process 1
  std::int32_t* const memory = job.shared[1];
  gw_work* work = nullptr;
  const auto refused = [&](gw_status status, const std::string& says) {
    CHECK(status == GW_INVALID_ARGUMENT);
    CHECK_THAT(gw_last_error(), Catch::Contains(says));
  };
  refused(gw_broadcast(group, memory, memory, 8, GW_INT32, 4, 0, &work),
          "root of broadcast is 4: it must be one of the group's 4 processes, 0 to 3");
  refused(gw_reduce(group, memory, memory, 8, GW_INT32, GW_SUM, UINT32_MAX, 0, &work),
          "root of reduce is 4294967295");
  refused(gw_reduce(group, memory, nullptr, 8, GW_INT32, GW_SUM, 1, 0, &work), "output is NULL");
  refused(gw_broadcast(group, nullptr, memory, 8, GW_INT32, 1, 0, &work), "input is NULL");
  refused(gw_all_gather(group, nullptr, memory, 8, GW_INT32, 0, &work), "input is NULL");
  refused(gw_reduce_scatter(group, memory, nullptr, 8, GW_INT32, GW_SUM, 0, &work),
          "output is NULL");
  refused(gw_all_gather(group, memory, memory, 8, GW_INT32, 0, &work),
          "the input must be this process's own block of the output");
  refused(gw_reduce_scatter(group, memory, memory, 8, GW_INT32, GW_SUM, 0, &work),
          "the output must be this process's own block of the input");
  refused(gw_all_gather(group, memory, memory + 8, 8, 99, 0, &work), "datatype is 99");
  refused(gw_reduce_scatter(group, memory, memory, 8, GW_INT32, 17, 0, &work), "redop is 17");
  refused(gw_all_gather(group, memory, memory, std::uint64_t{1} << 46, GW_INT32, 0, &work),
          "70368744177664 elements of int32 for each of 4 processes are more than an op can have");
  refused(gw_reduce_scatter(group, memory, memory, UINT64_MAX / 2, GW_INT8, GW_SUM, 0, &work),
          "for each of 4 processes are more than an op can have");
  std::int32_t* const end = memory + gw_memory_bytes(job.memories[1]) / sizeof(std::int32_t);
  refused(gw_all_gather(group, memory, end - 16, 5, GW_INT32, 0, &work),
          "the output needs 80 bytes and starts 64 bytes before the end of its shared memory");
  CHECK(gw_barrier(nullptr, 0, &work) == GW_INVALID_ARGUMENT);
  CHECK(gw_barrier(group, 0, nullptr) == GW_INVALID_ARGUMENT);
  CHECK(counters_of(job.clients[1]).ops_posted == 0);
  CHECK(counters_of(job.clients[1]).staging_bytes == 0);
}

TEST_CASE("an op of one collective that overlaps one of another is refused") {
  Job job;
  job.fixture.daemon().hold_ops = true;
  std::int32_t* const memory = job.shared[0];
  gw_work* gather = nullptr;
  gw_work* other = nullptr;
  REQUIRE(gw_all_gather(job.groups[0], memory, memory + kCount, kCount, GW_INT32, 0, &gather) ==
          GW_OK);
  // Its output has four blocks: the last is its own too.
  CHECK(gw_reduce_scatter(job.groups[0], memory + 4 * kCount, memory + 2 * kAll - 1, 1, GW_INT32,
                          GW_SUM, 0, &other) == GW_BUSY);
  CHECK_THAT(gw_last_error(), Catch::Contains("all-gather 1 of rank 0"));
  // Both only read the input.
  REQUIRE(gw_all_reduce(job.groups[0], memory, memory + kAll + kCount, kCount, GW_INT32, GW_SUM, 0,
                        &other) == GW_OK);
  gw_work_free(gather);
  gw_work_free(other);
  // Ends the ops, so that the memory can be given back.
  job.fixture.daemon().hold_ops = false;
  for (std::uint32_t p = 1; p < kProcesses; ++p) {
    std::int32_t* const start = job.shared[p];
    REQUIRE(gw_all_gather(job.groups[p], start, start + kCount, kCount, GW_INT32, 0, &gather) ==
            GW_OK);
    gw_work_free(gather);
    REQUIRE(gw_all_reduce(job.groups[p], start, start + kAll + kCount, kCount, GW_INT32, GW_SUM, 0,
                          &other) == GW_OK);
    if (p + 1 < kProcesses) gw_work_free(other);
  }
  CHECK(gw_wait(other, kLong) == GW_OK);
  gw_work_free(other);
}

TEST_CASE("different collectives, or roots, are told with both calls") {
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0), fixture.open(1)};
  const auto run = [&](std::uint32_t epoch, auto first, auto second, const char* one,
                       const char* two) {
    const auto groups = join_all({clients[0], clients[1]}, 1, 7, epoch);
    gw_work* works[2];
    REQUIRE(first(groups[0], &works[0]) == GW_OK);
    REQUIRE(second(groups[1], &works[1]) == GW_OK);
    for (gw_work* work : works) {
      CHECK(gw_wait(work, kLong) == GW_MISMATCH);
      CHECK_THAT(gw_last_error(), Catch::Contains(one) && Catch::Contains(two));
      gw_work_free(work);
    }
    for (gw_group* group : groups) gw_group_free(group);
  };
  std::int32_t x[4] = {};
  run(
      1, [&](gw_group* g, gw_work** w) { return gw_all_gather(g, x, x + 1, 1, GW_INT32, 0, w); },
      [&](gw_group* g, gw_work** w) { return gw_barrier(g, 0, w); },
      "rank 0 called all-gather of 1 int32 with tag 0", "rank 1 called barrier with tag 0");
  run(
      2, [&](gw_group* g, gw_work** w) { return gw_broadcast(g, x, x, 2, GW_INT32, 0, 3, w); },
      [&](gw_group* g, gw_work** w) { return gw_broadcast(g, x, x, 2, GW_INT32, 1, 3, w); },
      "rank 0 called broadcast of 2 int32 from process 0 with tag 3",
      "rank 1 called broadcast of 2 int32 from process 1 with tag 3");
  for (gw_client* client : clients) gw_close(client);
}
