// SPDX-License-Identifier: BSD-3-Clause
// A client whose gradient memory is on a CUDA device: the fake daemon is a process of its own,
// since CUDA opens nothing where it was made, and the fake CUDA's memory can be looked at from
// here.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "client/gradwire.h"
#include "fake_cuda_control.h"

namespace {

using namespace gradwire;
using namespace gradwire::test;
using Catch::Matchers::Contains;

/// A fake daemon of one rank.
class DaemonProcess {
 public:
  DaemonProcess() {
    char pattern[] = "/tmp/gradwire-gpu-XXXXXX";
    directory_ = ::mkdtemp(pattern);
    path_ = directory_ + "/0";
    int in[2];
    int out[2];
    REQUIRE(::pipe(in) == 0);
    REQUIRE(::pipe(out) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      const char* program = std::getenv("GRADWIRE_FAKE_DAEMON");
      ::execl(program, program, path_.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
    REQUIRE(line() == "ready");
    tell("gpu");
    CHECK(held() == "0 allocations, 0 events");
  }
  ~DaemonProcess() {
    std::fclose(to_);
    std::fclose(from_);
    ::waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(directory_);
  }
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  void tell(const std::string& command) {
    std::fprintf(to_, "%s\n", command.c_str());
    std::fflush(to_);
  }
  std::string held() {
    tell("held");
    return line();
  }
  bool soon_holds(const std::string& what) {
    for (int i = 0; i < 200 && held() != what; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return held() == what;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string line() {
    char text[256] = {};
    if (std::fgets(text, sizeof text, from_) == nullptr) return "";
    std::string out = text;
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
  }
  std::string directory_;
  std::string path_;
  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

gw_client* open_client(const DaemonProcess& daemon, std::uint64_t cache_bytes = 0) {
  gw_open_options options{};
  options.struct_bytes = sizeof options;
  options.staging_cache_bytes = cache_bytes;
  gw_client* client = nullptr;
  REQUIRE(gw_open(daemon.path().c_str(), &options, &client) == GW_OK);
  return client;
}

/// A client in a group of one rank: an op's result is its input.
struct Alone {
  DaemonProcess daemon;
  gw_client* client = nullptr;
  gw_group* group = nullptr;

  explicit Alone(std::uint64_t cache_bytes = 0) : client(open_client(daemon, cache_bytes)) {
    std::vector<std::byte> info(GW_RANK_INFO_BYTES);
    REQUIRE(gw_client_describe(client, info.data(), info.size()) == GW_OK);
    gw_group_config config{};
    config.struct_bytes = sizeof config;
    config.group_id = 9;
    config.nranks = 1;
    config.rank_infos = info.data();
    config.rank_infos_bytes = info.size();
    REQUIRE(gw_group_join(client, &config, &group) == GW_OK);
  }
  ~Alone() {
    hold_fake_streams(false);
    gw_group_free(group);
    gw_close(client);
  }
  gw_work* post(const void* input, void* output, std::uint64_t count, void* stream = nullptr) {
    gw_work* work = nullptr;
    const gw_status posted =
        gw_all_reduce_on_stream(group, input, output, count, GW_FLOAT32, GW_SUM, 0, stream, &work);
    INFO(gw_last_error());
    REQUIRE(posted == GW_OK);
    return work;
  }
};

gw_memory* allocate(gw_client* client, std::uint64_t bytes) {
  gw_memory* memory = nullptr;
  const gw_status made = gw_memory_alloc(client, bytes, &memory);
  INFO(gw_last_error());
  REQUIRE(made == GW_OK);
  return memory;
}

TEST_CASE("gradient memory on a GPU is opened by its handle and closed before it is freed") {
  Alone alone;
  gw_memory* memory = allocate(alone.client, 3'000'000);
  CHECK(gw_memory_device(memory) == 0);
  CHECK(gw_memory_bytes(memory) == 4u << 20);
  CHECK(fake_cuda_held_here().imports == 1);
  CHECK(alone.daemon.held() == "1 allocations, 0 events");
  auto* values = static_cast<float*>(gw_memory_address(memory));
  CHECK(values[700'000] == 0.0f);
  std::iota(values, values + 1000, 0.0f);
  gw_work* work = nullptr;
  REQUIRE(gw_all_reduce(alone.group, values, values + 1000, 1000, GW_FLOAT32, GW_SUM, 0, &work) ==
          GW_OK);
  REQUIRE(gw_wait(work, 5000) == GW_OK);
  gw_work_free(work);
  CHECK(values[1999] == 999.0f);
  gw_counters counters{};
  counters.struct_bytes = sizeof counters;
  REQUIRE(gw_client_get_counters(alone.client, &counters) == GW_OK);
  CHECK(counters.copies == 0);
  REQUIRE(gw_memory_free(memory) == GW_OK);
  CHECK(fake_cuda_held_here().imports == 0);
  CHECK(alone.daemon.held() == "0 allocations, 0 events");
}

TEST_CASE("memory elsewhere is copied through the GPU's") {
  Alone alone(1);
  std::vector<float> values(2'000'000);
  std::iota(values.begin(), values.end(), 0.0f);
  std::vector<float> sums(values.size());
  gw_work* work = nullptr;
  REQUIRE(gw_all_reduce(alone.group, values.data(), sums.data(), values.size(), GW_FLOAT32, GW_SUM,
                        0, &work) == GW_OK);
  REQUIRE(gw_wait(work, 5000) == GW_OK);
  gw_work_free(work);
  CHECK(sums == values);
  // More than the cache keeps: closed here, freed there.
  CHECK(alone.daemon.soon_holds("0 allocations, 0 events"));
  CHECK(fake_cuda_held_here().imports == 0);
}

TEST_CASE("an op on a stream is posted at once and read when the stream has come to it") {
  Alone alone;
  gw_memory* memory = allocate(alone.client, 1);
  auto* values = static_cast<float*>(gw_memory_address(memory));
  const bool in_place = GENERATE(true, false);
  std::vector<float> elsewhere(1000, 3.0f);
  std::vector<float> result(1000);
  hold_fake_streams(true);
  gw_work* work = in_place ? alone.post(values, values, 1000)
                           : alone.post(elsewhere.data(), result.data(), 1000);
  CHECK(alone.daemon.held() == (in_place ? "1 allocations, 1 events" : "2 allocations, 1 events"));
  CHECK(gw_wait(work, 50) == GW_TIMED_OUT);
  // What the stream has not done yet is still to be seen.
  values[0] = 5.0f;
  elsewhere[0] = 4.0f;
  hold_fake_streams(false);
  REQUIRE(gw_wait(work, 5000) == GW_OK);
  gw_work_free(work);
  CHECK((in_place ? values[0] : result[0]) == (in_place ? 5.0f : 4.0f));
  // The event serves again.
  work = alone.post(values, values + 1000, 1000);
  REQUIRE(gw_wait(work, 5000) == GW_OK);
  gw_work_free(work);
  CHECK_THAT(alone.daemon.held(), Contains("1 events"));
  work = alone.post(nullptr, nullptr, 0);
  REQUIRE(gw_wait(work, 5000) == GW_OK);
  gw_work_free(work);
  REQUIRE(gw_memory_free(memory) == GW_OK);
}

TEST_CASE(
    "a stream that CUDA does not know is an error with CUDA's text, and the op is not posted") {
  Alone alone;
  gw_memory* memory = allocate(alone.client, 1);
  auto* values = static_cast<float*>(gw_memory_address(memory));
  gw_work* work = nullptr;
  int no_stream = 0;
  CHECK(gw_all_reduce_on_stream(alone.group, values, values, 10, GW_FLOAT32, GW_SUM, 0, &no_stream,
                                &work) == GW_SYSTEM);
  CHECK_THAT(gw_last_error(), Contains("cuStreamIsCapturing") && Contains("CUDA_ERROR"));
  CHECK(gw_memory_free(memory) == GW_OK);
}

TEST_CASE("an op on a stream that is captured is refused, where gradient memory is a GPU's too") {
  Alone alone;
  gw_memory* memory = allocate(alone.client, 1);
  auto* values = static_cast<float*>(gw_memory_address(memory));
  gw_work* work = nullptr;
  const FakeStream graph;
  graph.begin_capture();
  std::vector<float> elsewhere(10, 1);
  for (float* input : {values, elsewhere.data()}) {
    CHECK(gw_all_reduce_on_stream(alone.group, input, values, 10, GW_FLOAT32, GW_SUM, 0,
                                  graph.get(), &work) == GW_UNSUPPORTED);
    CHECK_THAT(gw_last_error(), Contains("captured into a CUDA graph"));
  }
  CHECK(graph.end_capture());
  work = alone.post(values, values, 10, graph.get());
  CHECK(gw_wait(work, 5000) == GW_OK);
  gw_work_free(work);
  CHECK(gw_memory_free(memory) == GW_OK);
}

TEST_CASE("what only moves bytes is refused by name on a stream, if gradient memory is a GPU's") {
  Alone alone;
  gw_memory* memory = allocate(alone.client, 1);
  auto* values = static_cast<float*>(gw_memory_address(memory));
  gw_call call{};
  call.struct_bytes = sizeof call;
  call.collective = GW_ALL_TO_ALL;
  call.input = values;
  call.output = values + 1000;
  call.count = 10;
  call.datatype = GW_FLOAT32;
  call.on_stream = 1;
  gw_work* work = nullptr;
  CHECK(gw_post(alone.group, &call, &work) == GW_UNSUPPORTED);
  CHECK_THAT(gw_last_error(), Contains("all-to-all is not there for gradient memory of a GPU"));
  call.collective = GW_ALL_REDUCE;
  REQUIRE(gw_post(alone.group, &call, &work) == GW_OK);
  CHECK(gw_wait(work, 5000) == GW_OK);
  gw_work_free(work);
  CHECK(gw_memory_free(memory) == GW_OK);
}

TEST_CASE("memory that cannot be opened is an error, and both ends have nothing left of it") {
  Alone alone;
  const auto refused = [&](const std::string& lie, gw_status status, const std::string& says) {
    alone.daemon.tell("lie " + lie);
    CHECK(alone.daemon.held() == "0 allocations, 0 events");
    gw_memory* memory = nullptr;
    CHECK(gw_memory_alloc(alone.client, 1, &memory) == status);
    CHECK_THAT(gw_last_error(), Contains(says));
    CHECK(fake_cuda_held_here().imports == 0);
    CHECK(alone.daemon.soon_holds("0 allocations, 0 events"));
  };
  refused("1", GW_INVALID_ARGUMENT, "should have 2097153 bytes");
  refused("2", GW_SYSTEM, "cuIpcOpenMemHandle");
  refused("3", GW_NOT_FOUND, "CUDA_VISIBLE_DEVICES");
  alone.daemon.tell("lie 0");
  gw_memory* memory = allocate(alone.client, 1);
  CHECK(gw_memory_free(memory) == GW_OK);
}

TEST_CASE("a client that dies with memory open leaves nothing at the daemon") {
  DaemonProcess daemon;
  int told[2];
  REQUIRE(::pipe(told) == 0);
  OtherProcess client([&]() -> std::string {
    gw_client* opened = nullptr;
    gw_memory* memory = nullptr;
    if (gw_open(daemon.path().c_str(), nullptr, &opened) != GW_OK) return gw_last_error();
    if (gw_memory_alloc(opened, 1, &memory) != GW_OK) return gw_last_error();
    (void)!::write(told[1], "x", 1);
    ::pause();
    return "";
  });
  char byte = 0;
  REQUIRE(::read(told[0], &byte, 1) == 1);
  CHECK(daemon.held() == "1 allocations, 0 events");
  client.kill();
  client.wait();
  CHECK(daemon.soon_holds("0 allocations, 0 events"));
  ::close(told[0]);
  ::close(told[1]);
}

}  // namespace
