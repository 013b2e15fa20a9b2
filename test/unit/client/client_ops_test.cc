// SPDX-License-Identifier: BSD-3-Clause
// Posting ops: where memory lies, what is copied, what is refused, how ops end.
#include <cstring>
#include <numeric>

#include "fixture.h"
#include "sim/reference/ring_reference.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

struct SharedFloats {
  gw_memory* memory = nullptr;
  float* values = nullptr;
  SharedFloats(gw_client* client, std::size_t count) {
    REQUIRE(gw_memory_alloc(client, count * sizeof(float), &memory) == GW_OK);
    values = static_cast<float*>(gw_memory_address(memory));
  }
};

gw_status reduce_floats(gw_group* group, const float* input, float* output, std::size_t count) {
  gw_work* work = nullptr;
  gw_status status = gw_all_reduce(group, input, output, count, GW_FLOAT32, GW_SUM, 0, &work);
  if (status == GW_OK) status = gw_wait(work, kLong);
  gw_work_free(work);
  return status;
}

}  // namespace

namespace {

/// What gw_post() refuses of a call's fields.
void check_calls(gw_group* group, float* x) {
  gw_work* work = nullptr;
  gw_call good{};
  good.struct_bytes = sizeof good;
  good.collective = GW_ALL_REDUCE;
  good.input = good.output = x;
  good.count = 1;
  const auto refused = [&](auto change, const char* text) {
    gw_call call = good;
    change(call);
    CHECK(gw_post(group, &call, &work) == GW_INVALID_ARGUMENT);
    CHECK_THAT(gw_last_error(), Catch::Contains(text));
  };
  CHECK(gw_post(group, nullptr, &work) == GW_INVALID_ARGUMENT);
  refused([](gw_call& c) { c.struct_bytes = 8; }, "sizeof(gw_call)");
  refused([](gw_call& c) { c.collective = 257; }, "collective is 257");
  refused([](gw_call& c) { c.collective = -1; }, "collective is -1");
  refused([](gw_call& c) { c.on_stream = 2; }, "on_stream is 2");
  refused([](gw_call& c) { c.root = 1; }, "what all-reduce does not take");
  refused([](gw_call& c) { c.datatype = GW_INT32, c.redop = GW_PREMUL_SUM; },
          "redop premul_sum multiplies floats: int32");
  refused([](gw_call& c) { c.collective = GW_ALL_GATHER, c.redop = GW_MAX; },
          "what all-gather does not take");
  CHECK(work == nullptr);
}

}  // namespace

TEST_CASE("shared memory is reduced where it lies, without a copy") {
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0), fixture.open(1)};
  const auto groups = join_all({clients[0], clients[1]});
  constexpr std::size_t kCount = 1000;
  SharedFloats a(clients[0], kCount);
  SharedFloats b(clients[1], 2 * kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    a.values[i] = static_cast<float>(i) * 0.1f;
    b.values[i] = static_cast<float>(i) * 0.7f;
  }
  gw_work* works[2];
  // In place on one rank, out of place on the other.
  REQUIRE(gw_all_reduce(groups[0], a.values, a.values, kCount, GW_FLOAT32, GW_SUM, 3, &works[0]) ==
          GW_OK);
  REQUIRE(gw_all_reduce(groups[1], b.values, b.values + kCount, kCount, GW_FLOAT32, GW_SUM, 3,
                        &works[1]) == GW_OK);
  for (gw_work* work : works) {
    CHECK(gw_wait(work, kLong) == GW_OK);
    CHECK(gw_work_is_done(work) == 1);
    CHECK(gw_work_op_seq(work) == 1);
    gw_work_free(work);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    const float x = static_cast<float>(i) * 0.1f;
    REQUIRE(a.values[i] == x + static_cast<float>(i) * 0.7f);
  }
  CHECK(std::memcmp(a.values, b.values + kCount, kCount * sizeof(float)) == 0);
  CHECK(b.values[10] == 10 * 0.7f);
  for (gw_client* client : clients) {
    const gw_counters counters = counters_of(client);
    CHECK(counters.ops_posted == 1);
    CHECK(counters.ops_done == 1);
    CHECK(counters.copies == 0);
    CHECK(counters.staging_bytes == 0);
  }
  for (gw_group* group : groups) gw_group_free(group);
  CHECK(gw_memory_free(a.memory) == GW_OK);
  CHECK(gw_memory_free(b.memory) == GW_OK);
  CHECK(fixture.daemon().frees == 2);
  for (gw_client* client : clients) gw_close(client);
}

TEST_CASE("memory of the caller's is copied, each way counted, and as little as may be") {
  Single single;
  constexpr std::size_t kCount = 3000;
  std::vector<float> input(kCount), output(kCount);
  std::iota(input.begin(), input.end(), 1.0f);
  SharedFloats shared(single.client, kCount);

  CHECK(reduce_floats(single.group, input.data(), output.data(), kCount) == GW_OK);
  CHECK(output == input);
  gw_counters counters = counters_of(single.client);
  CHECK(counters.copies == 2);
  CHECK(counters.copied_bytes == 2 * kCount * sizeof(float));
  CHECK(counters.staging_bytes > 0);

  // The input goes straight to the shared output: one copy.
  CHECK(reduce_floats(single.group, input.data(), shared.values, kCount) == GW_OK);
  CHECK(std::memcmp(shared.values, input.data(), kCount * sizeof(float)) == 0);
  CHECK(counters_of(single.client).copies == 3);

  std::fill(output.begin(), output.end(), 0.0f);
  CHECK(reduce_floats(single.group, shared.values, output.data(), kCount) == GW_OK);
  CHECK(output == input);
  CHECK(counters_of(single.client).copies == 4);
  CHECK(counters_of(single.client).staging_bytes == counters.staging_bytes);
  CHECK(gw_memory_free(shared.memory) == GW_OK);
}

TEST_CASE("a large op is staged whole; its memory is kept and used again") {
  gw_open_options options{};
  options.staging_cache_bytes = 8u << 20;
  Single single(options);
  std::vector<float> large(1u << 20, 1.0f);  // 4 MiB
  REQUIRE(reduce_floats(single.group, large.data(), large.data(), large.size()) == GW_OK);
  const std::uint64_t held = counters_of(single.client).staging_bytes;
  CHECK(held == large.size() * sizeof(float));
  REQUIRE(reduce_floats(single.group, large.data(), large.data(), large.size()) == GW_OK);
  CHECK(counters_of(single.client).staging_bytes == held);
  CHECK(single.fixture.daemon().frees == 0);
  // More than the cache may keep goes back at once.
  std::vector<float> larger(5u << 20, 1.0f);
  REQUIRE(reduce_floats(single.group, larger.data(), larger.data(), larger.size()) == GW_OK);
  CHECK(counters_of(single.client).staging_bytes == held);
  CHECK(soon([&] { return single.fixture.daemon().frees == 1; }));
}

TEST_CASE("staging that is kept makes room when memory is short") {
  Single single;
  single.fixture.daemon().memory_limit = 20u << 20;
  std::vector<float> a(2u << 20, 1.0f);  // 8 MiB
  std::vector<float> b(4u << 20, 2.0f);  // 16 MiB: with the 8 it is too much
  REQUIRE(reduce_floats(single.group, a.data(), a.data(), a.size()) == GW_OK);
  REQUIRE(reduce_floats(single.group, b.data(), b.data(), b.size()) == GW_OK);
  std::vector<float> c(6u << 20, 2.0f);
  CHECK(reduce_floats(single.group, c.data(), c.data(), c.size()) == GW_RESOURCE_EXHAUSTED);
  CHECK_THAT(gw_last_error(), Catch::Contains("to copy an op of 25165824 bytes through"));
}

TEST_CASE("staging that is kept makes room for memory that is asked for") {
  Single single;
  single.fixture.daemon().memory_limit = 20u << 20;
  std::vector<float> a(3u << 20, 1.0f);  // 12 MiB
  REQUIRE(reduce_floats(single.group, a.data(), a.data(), a.size()) == GW_OK);
  gw_memory* memory = nullptr;
  REQUIRE(gw_memory_alloc(single.client, 16u << 20, &memory) == GW_OK);
  CHECK(counters_of(single.client).staging_bytes == 0);
  gw_memory* more = nullptr;
  CHECK(gw_memory_alloc(single.client, 16u << 20, &more) == GW_RESOURCE_EXHAUSTED);
  CHECK(gw_memory_free(memory) == GW_OK);
}

TEST_CASE("bad arguments are refused by name") {
  Single single;
  SharedFloats shared(single.client, 1024);
  float* x = shared.values;
  gw_work* work = nullptr;
  CHECK(gw_all_reduce(single.group, x, x + 10, 100, GW_FLOAT32, GW_SUM, 0, &work) ==
        GW_INVALID_ARGUMENT);
  CHECK_THAT(gw_last_error(), Catch::Contains("overlap"));
  const std::uint64_t room = gw_memory_bytes(shared.memory) / sizeof(float);
  CHECK(gw_all_reduce(single.group, x, x, room + 1, GW_FLOAT32, GW_SUM, 0, &work) ==
        GW_INVALID_ARGUMENT);
  CHECK_THAT(gw_last_error(), Catch::Contains("end of its shared memory"));
  CHECK(gw_all_reduce(single.group, x, x, UINT64_MAX / 2, GW_FLOAT32, GW_SUM, 0, &work) ==
        GW_INVALID_ARGUMENT);
  CHECK(gw_all_reduce(single.group, x, x, 1, static_cast<gw_datatype>(8), GW_SUM, 0, &work) ==
        GW_INVALID_ARGUMENT);
  CHECK_THAT(gw_last_error(), Catch::Contains("datatype is 8: it must be 0 to 7"));
  CHECK(gw_all_reduce(single.group, x, x, 1, GW_INT8, static_cast<gw_redop>(9), 0, &work) ==
        GW_INVALID_ARGUMENT);
  CHECK(gw_all_reduce(single.group, x, x, 1, GW_FLOAT16, GW_BXOR, 0, &work) == GW_INVALID_ARGUMENT);
  CHECK_THAT(gw_last_error(), Catch::Contains("redop bxor combines the bits of integers: fp16"));
  CHECK(gw_all_reduce(single.group, x, x, 1, GW_FLOAT32, GW_PREMUL_SUM, 0, &work) ==
        GW_INVALID_ARGUMENT);
  CHECK_THAT(gw_last_error(), Catch::Contains("call gw_post()"));
  check_calls(single.group, x);
  CHECK(gw_all_reduce(single.group, nullptr, x, 1, GW_INT8, GW_SUM, 0, &work) ==
        GW_INVALID_ARGUMENT);
  CHECK(work == nullptr);
  // Nothing to touch is an op too.
  REQUIRE(gw_all_reduce(single.group, nullptr, nullptr, 0, GW_INT8, GW_SUM, 0, &work) == GW_OK);
  CHECK(gw_wait(work, kLong) == GW_OK);
  gw_work_free(work);
  CHECK(counters_of(single.client).ops_posted == 1);
  CHECK(gw_memory_free(shared.memory) == GW_OK);
}

TEST_CASE("an op that overlaps an unfinished one is refused, unless both only read") {
  Single single;
  single.fixture.daemon().hold_ops = true;
  SharedFloats shared(single.client, 4096);
  float* x = shared.values;
  std::vector<gw_work*> works(2);
  REQUIRE(gw_all_reduce(single.group, x, x + 1000, 1000, GW_FLOAT32, GW_SUM, 9, &works[0]) ==
          GW_OK);
  gw_work* none = nullptr;
  CHECK(gw_all_reduce(single.group, x + 999, x + 999, 1, GW_FLOAT32, GW_SUM, 0, &none) == GW_BUSY);
  CHECK_THAT(gw_last_error(), Catch::Contains("tag 9"));
  CHECK(gw_all_reduce(single.group, x + 1999, x + 3000, 1, GW_FLOAT32, GW_SUM, 0, &none) ==
        GW_BUSY);
  REQUIRE(gw_all_reduce(single.group, x, x + 2000, 1000, GW_FLOAT32, GW_SUM, 0, &works[1]) ==
          GW_OK);
  CHECK(gw_memory_free(shared.memory) == GW_BUSY);
  // An op in place, or with both ends in this memory, is one.
  CHECK_THAT(gw_last_error(), Catch::StartsWith("2 unfinished ops use"));
  single.fixture.daemon().hold_ops = false;
  for (gw_work* work : works) {
    CHECK(gw_wait(work, kLong) == GW_OK);
    gw_work_free(work);
  }
  CHECK(gw_memory_free(shared.memory) == GW_OK);
}

TEST_CASE("an output that is still to be copied belongs to its op") {
  Single single;
  std::vector<float> x(100, 1.0f);
  gw_work* first = nullptr;
  gw_work* second = nullptr;
  REQUIRE(gw_all_reduce(single.group, x.data(), x.data(), 100, GW_FLOAT32, GW_SUM, 0, &first) ==
          GW_OK);
  REQUIRE(soon([&] { return counters_of(single.client).ops_posted == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // finished there by now
  CHECK(gw_all_reduce(single.group, x.data(), x.data(), 100, GW_FLOAT32, GW_SUM, 0, &second) ==
        GW_BUSY);
  CHECK(gw_wait(first, kLong) == GW_OK);
  gw_work_free(first);
  REQUIRE(gw_all_reduce(single.group, x.data(), x.data(), 100, GW_FLOAT32, GW_SUM, 0, &second) ==
          GW_OK);
  // Nobody asks: the output is never written, and the memory is free again.
  gw_work_free(second);
  CHECK(soon([&] {
    gw_work* third = nullptr;
    if (gw_all_reduce(single.group, x.data(), x.data(), 1, GW_FLOAT32, GW_SUM, 0, &third) != GW_OK)
      return false;
    const bool good = gw_wait(third, kLong) == GW_OK;
    gw_work_free(third);
    return good;
  }));
}

TEST_CASE("no more ops are outstanding than there is room for") {
  Single single;
  single.fixture.daemon().hold_ops = true;
  std::vector<gw_work*> works(GW_MAX_OUTSTANDING);
  for (gw_work*& work : works) {
    REQUIRE(gw_all_reduce(single.group, nullptr, nullptr, 0, GW_FLOAT32, GW_SUM, 0, &work) ==
            GW_OK);
  }
  gw_work* more = nullptr;
  CHECK(gw_all_reduce(single.group, nullptr, nullptr, 0, GW_FLOAT32, GW_SUM, 0, &more) == GW_BUSY);
  CHECK_THAT(gw_last_error(), Catch::Contains("256 ops are unfinished"));
  single.fixture.daemon().hold_ops = false;
  for (gw_work* work : works) {
    REQUIRE(gw_wait(work, kLong) == GW_OK);
    gw_work_free(work);
  }
  REQUIRE(gw_all_reduce(single.group, nullptr, nullptr, 0, GW_FLOAT32, GW_SUM, 0, &more) == GW_OK);
  CHECK(gw_wait(more, kLong) == GW_OK);
  gw_work_free(more);
}

TEST_CASE("a timeout leaves the op running, and says which one and for whom it waits") {
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0), fixture.open(1)};
  const auto groups = join_all({clients[0], clients[1]}, 1, 0xabc);
  std::vector<float> x(10, 1.0f), y(10, 2.0f);
  gw_work* works[2];
  REQUIRE(gw_all_reduce(groups[0], x.data(), x.data(), 10, GW_FLOAT32, GW_SUM, 5, &works[0]) ==
          GW_OK);
  CHECK(gw_wait(works[0], 60) == GW_TIMED_OUT);
  CHECK(gw_work_is_done(works[0]) == 0);
  const std::string text = gw_last_error();
  CHECK_THAT(text, Catch::Contains("all-reduce 1 of rank 0 in group 0000000000000abc") &&
                       Catch::Contains("tag 5") &&
                       Catch::Matches(".*is not done 0\\.[0-9]+ s after.*") &&
                       Catch::Contains("upstream rank 1"));
  CHECK(gw_wait(works[0], 0) == GW_TIMED_OUT);
  REQUIRE(gw_all_reduce(groups[1], y.data(), y.data(), 10, GW_FLOAT32, GW_SUM, 5, &works[1]) ==
          GW_OK);
  CHECK(gw_wait(works[0], kLong) == GW_OK);
  CHECK(gw_wait(works[0], 0) == GW_OK);  // the same answer each time
  CHECK(gw_wait(works[1], kLong) == GW_OK);
  CHECK(x == std::vector<float>(10, 3.0f));
  CHECK(x == y);
  for (int i = 0; i < 2; ++i) {
    gw_work_free(works[i]);
    gw_group_free(groups[i]);
    gw_close(clients[i]);
  }
}

TEST_CASE("what members call apart is told to each") {
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0), fixture.open(1)};
  const auto groups = join_all({clients[0], clients[1]});
  gw_work* works[2];
  float x = 1.0f;
  float y = 1.0f;
  REQUIRE(gw_all_reduce(groups[0], &x, &x, 1, GW_FLOAT32, GW_SUM, 1, &works[0]) == GW_OK);
  REQUIRE(gw_all_reduce(groups[1], &y, &y, 1, GW_FLOAT32, GW_SUM, 2, &works[1]) == GW_OK);
  for (int i = 0; i < 2; ++i) {
    int done = 0;
    CHECK(gw_wait(works[i], kLong) == GW_MISMATCH);
    CHECK_THAT(gw_last_error(), Catch::Contains("tag 1") && Catch::Contains("tag 2"));
    CHECK(gw_test(works[i], &done) == GW_MISMATCH);
    CHECK(done == 1);
    gw_work_free(works[i]);
    CHECK(counters_of(clients[i]).ops_failed == 1);
  }
  CHECK(x == 1.0f);
  for (gw_group* group : groups) gw_group_free(group);
  for (gw_client* client : clients) gw_close(client);
}

TEST_CASE("members of a rank are summed in member order, every datatype and redop through") {
  Fixture fixture(2);
  std::vector<gw_client*> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(fixture.open(static_cast<std::size_t>(i / 2)));
  const auto groups = join_all(clients, 2);
  constexpr std::size_t kCount = 77;
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int redop = 0; redop < kRedOpCount; ++redop) {
      if (!fits(static_cast<RedOp>(redop), static_cast<DataType>(type))) continue;
      const std::size_t bytes = kCount * element_bytes(static_cast<DataType>(type));
      std::vector<std::vector<std::byte>> inputs(4), outputs(4);
      std::vector<const std::byte*> pointers;
      std::uint32_t state = 12345;
      for (auto& input : inputs) {
        for (std::size_t i = 0; i < bytes; ++i) {
          state = state * 1664525 + 1013904223;
          input.push_back(static_cast<std::byte>(state >> 24));
        }
        pointers.push_back(input.data());
      }
      const std::vector<double> factors{0.3333333333333333, -2.5, 1.0, 7e-5};
      const bool multiplies = redop == GW_PREMUL_SUM;
      std::vector<gw_work*> works(4);
      for (std::size_t i = 0; i < 4; ++i) {
        outputs[i].resize(bytes);
        gw_call call{};
        call.struct_bytes = sizeof call;
        call.collective = GW_ALL_REDUCE;
        call.input = inputs[i].data();
        call.output = outputs[i].data();
        call.count = kCount;
        call.datatype = type;
        call.redop = redop;
        if (multiplies) call.factor = factors[i];
        REQUIRE(gw_post(groups[i], &call, &works[i]) == GW_OK);
      }
      std::vector<std::byte> expected(bytes);
      sim::ring_all_reduce(static_cast<DataType>(type), static_cast<RedOp>(redop), pointers, 2, 2,
                           kCount, expected.data(),
                           multiplies ? std::span(factors) : std::span<const double>{});
      for (std::size_t i = 0; i < 4; ++i) {
        REQUIRE(gw_wait(works[i], kLong) == GW_OK);
        REQUIRE(outputs[i] == expected);
        gw_work_free(works[i]);
      }
    }
  }
  for (gw_group* group : groups) gw_group_free(group);
  for (gw_client* client : clients) gw_close(client);
}
