// SPDX-License-Identifier: BSD-3-Clause
#include "host/isolation.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gradwire::host {
namespace {

using Catch::Matchers::Contains;

/// A sysfs (or procfs) of our own, removed at the end.
class FakeRoot {
 public:
  FakeRoot() {
    char path[] = "/tmp/gradwire-isolation-XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    root_ = path;
  }
  ~FakeRoot() { std::filesystem::remove_all(root_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void make_cpu(int cpu, int node) const {
    std::filesystem::create_directories(root_ / ("devices/system/cpu/cpu" + std::to_string(cpu)) /
                                        ("node" + std::to_string(node)));
  }
  [[nodiscard]] std::string path() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

TEST_CASE("CPU lists are read and written in the kernel's form") {
  CHECK(*parse_cpu_list("0-2,5,7-8\n") == std::vector<int>{0, 1, 2, 5, 7, 8});
  CHECK(*parse_cpu_list("3") == std::vector<int>{3});
  CHECK(*parse_cpu_list("2,1-2") == std::vector<int>{1, 2});
  CHECK(parse_cpu_list("\n")->empty());
  CHECK(parse_cpu_list("(null)\n")->empty());
  CHECK(to_cpu_list(*parse_cpu_list("0-2,5,7-8")) == "0-2,5,7-8");
  CHECK(to_cpu_list({}).empty());
  for (const char* wrong : {"a", "1-", "-1", "3-1", "1,,2", "1,", "1-99999999", "0x1"}) {
    INFO(wrong);
    const auto list = parse_cpu_list(wrong);
    REQUIRE_FALSE(list.has_value());
    CHECK_THAT(list.error().message, Contains(wrong));
  }
}

TEST_CASE("facts of a core come from sysfs") {
  const FakeRoot sys;
  for (const int cpu : {0, 1, 2, 3}) sys.make_cpu(cpu, cpu / 2);
  sys.write("devices/system/cpu/isolated", "2-3\n");
  sys.write("devices/system/cpu/nohz_full", "3\n");

  const auto shared = read_core_facts(0, sys.path());
  REQUIRE(shared.has_value());
  CHECK_FALSE(shared->isolated);
  CHECK_FALSE(shared->nohz_full);
  CHECK(shared->numa_node == 0);

  const auto ticking = read_core_facts(2, sys.path());
  REQUIRE(ticking.has_value());
  CHECK(ticking->isolated);
  CHECK_FALSE(ticking->nohz_full);
  CHECK(ticking->numa_node == 1);

  CHECK(read_core_facts(3, sys.path())->nohz_full);
  CHECK(read_core_facts(4, sys.path()).error().code == ErrorCode::kNotFound);
}

TEST_CASE("a kernel without the lists isolates nothing; a damaged list is an error") {
  const FakeRoot sys;
  std::filesystem::create_directories(sys.path() + "/devices/system/cpu/cpu0");
  const auto facts = read_core_facts(0, sys.path());
  REQUIRE(facts.has_value());
  CHECK_FALSE(facts->isolated);
  CHECK_FALSE(facts->nohz_full);
  CHECK(facts->numa_node == -1);

  sys.write("devices/system/cpu/isolated", "two\n");
  const auto damaged = read_core_facts(0, sys.path());
  REQUIRE_FALSE(damaged.has_value());
  CHECK_THAT(damaged.error().message, Contains("isolated") && Contains("two"));
}

TEST_CASE("problems say what would be right") {
  const CoreFacts perfect{3, true, true, 1};
  CHECK(isolation_problems({{perfect}}, 1).empty());
  CHECK(isolation_problems({{perfect}}, -1).empty());

  const auto far = isolation_problems({{perfect}}, 0);
  REQUIRE(far.size() == 1);
  CHECK_THAT(far[0], Contains("NUMA node 1") && Contains("node 0"));

  const auto shared = isolation_problems({{CoreFacts{2, false, false, 0}}}, 0);
  REQUIRE(shared.size() == 2);
  CHECK_THAT(shared[0], Contains("isolcpus=2"));
  CHECK_THAT(shared[1], Contains("nohz_full=2"));

  const std::vector<CoreFacts> floating = {{0, true, true, 0}, {1, true, true, 0}};
  const auto floats = isolation_problems(floating, 0);
  REQUIRE(floats.size() == 1);
  CHECK_THAT(floats[0], Contains("0-1"));
}

TEST_CASE("involuntary switches are read from the thread's status") {
  const FakeRoot proc;
  proc.write("self/task/7/status",
             "Name:\tlane\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t42\n");
  proc.write("self/task/8/status", "Name:\tlane\n");
  CHECK(*read_involuntary_switches(7, proc.path()) == 42);
  CHECK_FALSE(read_involuntary_switches(8, proc.path()).has_value());
  CHECK_FALSE(read_involuntary_switches(9, proc.path()).has_value());
  CHECK(read_involuntary_switches(getpid()).has_value());
}

}  // namespace
}  // namespace gradwire::host
