// SPDX-License-Identifier: BSD-3-Clause
#include "options.h"

#include <catch2/catch.hpp>

#include "config/daemon_config.h"

using namespace gradwire;
using namespace gradwire::perf;

namespace {

Result<CommandLine> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "gradwire-perf");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

std::vector<std::uint64_t> bytes_of(const Options& options) {
  std::vector<std::uint64_t> bytes;
  for (const SizePlan& plan : sizes_of(options)) bytes.push_back(plan.bytes);
  return bytes;
}

}  // namespace

TEST_CASE("the bench's own lanes use the daemon's UDP ports, and not RoCEv2's") {
  const auto parsed = parse({"-b", "4K"});
  REQUIRE(parsed.has_value());
  CHECK(parsed->options.embedded.base_udp_port == config::DaemonConfig{}.lanes.base_udp_port);
  CHECK(parsed->options.embedded.base_udp_port != 4791);
}

TEST_CASE("sizes take K, M and G as powers of 1024") {
  const auto parsed = parse({"-b", "4K", "-e", "1G", "-f", "4", "-n", "7", "-w", "0", "-d", "bf16",
                             "-o", "max", "--no-check"});
  REQUIRE(parsed.has_value());
  const Options& options = parsed->options;
  CHECK(options.begin_bytes == 4096);
  CHECK(options.end_bytes == 1u << 30);
  CHECK(options.factor == 4.0);
  CHECK(options.iterations == 7);
  CHECK(options.warmup == 0);
  CHECK(options.datatype == DataType::kBfloat16);
  CHECK(options.redop == RedOp::kMax);
  CHECK_FALSE(options.check);
  CHECK_FALSE(options.in_place);
}

TEST_CASE("sizes go up by the factor, in whole elements, each once") {
  Options options;
  options.begin_bytes = 1000;
  options.end_bytes = 9000;
  options.factor = 3;
  options.datatype = DataType::kFloat64;
  CHECK(bytes_of(options) == std::vector<std::uint64_t>{1000, 3000, 9000});
  options.begin_bytes = 0;
  options.end_bytes = 40;
  options.factor = 2;
  CHECK(bytes_of(options) == std::vector<std::uint64_t>{0, 8, 16, 32});
  options.begin_bytes = options.end_bytes = 7;
  CHECK(bytes_of(options) == std::vector<std::uint64_t>{0});
}

TEST_CASE("sizes can be named one by one, with iterations of their own") {
  const auto parsed = parse({"--sizes", "64:2000,1M,7", "-n", "9"});
  REQUIRE(parsed.has_value());
  CHECK(sizes_of(parsed->options) ==
        std::vector<SizePlan>{{64, 2000}, {1u << 20, 9}, {4, 9}});  // whole elements
  CHECK(parsed->options.check);
  for (const char* bad : {"64:", "64:0", "x", "64:2x", ":5", "-4"}) {
    INFO(bad);
    CHECK_FALSE(parse({"--sizes", bad}).has_value());
  }
}

TEST_CASE("a size is that of the larger buffer, whole elements of each process") {
  const auto parsed =
      parse({"--collective", "all-gather", "--nranks", "3", "--rank", "2", "--members", "2",
             "--member", "1", "--rendezvous", "x", "-b", "1000", "-e", "5000", "-f", "4"});
  REQUIRE(parsed.has_value());
  const Options& options = parsed->options;
  CHECK(bytes_of(options) == std::vector<std::uint64_t>{984, 3984});  // multiples of 6 x 4
  CHECK(call_of(options, 984).count == 41);
  CHECK(call_of(options, 984).collective == Collective::kAllGather);
  CHECK(place_of(options).process == 5);
  CHECK(place_of(options).processes == 6);
  const auto barrier = parse({"--collective", "barrier", "-n", "7"});
  REQUIRE(barrier.has_value());
  CHECK(sizes_of(barrier->options) == std::vector<SizePlan>{{0, 7}});
  CHECK(call_of(barrier->options, 0) ==
        CollectiveCall{Collective::kBarrier, DataType::kFloat32, RedOp::kSum, 0, 0, 0});
}

TEST_CASE("a collective is refused by name where it, its root or its redop cannot be") {
  const auto says = [](std::vector<const char*> arguments) {
    const auto parsed = parse(std::move(arguments));
    return parsed.has_value() ? std::string{} : parsed.error().message;
  };
  CHECK_THAT(says({"--collective", "send"}), Catch::Contains("'send': must be all-reduce"));
  for (const char* transport : {"tcp", "rdma", "gradwire", "bare"}) {
    CHECK_THAT(says({"--collective", "reduce-scatter", "--transport", transport}),
               Catch::Contains("--collective reduce-scatter: transport " + std::string(transport) +
                               " does all-reduce only"));
  }
  CHECK_THAT(says({"--collective", "reduce", "--root", "1"}),
             Catch::Contains("--root 1: must be one of the 1 processes"));
  CHECK_THAT(says({"--root", "1", "--nranks", "2", "--rendezvous", "x"}),
             Catch::Contains("all-reduce has no root"));
  CHECK_THAT(says({"-o", "band"}), Catch::Contains("--op band: it combines the bits of integers"));
  CHECK(says({"-o", "band", "-d", "int32"}).empty());
  CHECK_THAT(says({"--collective", "broadcast", "-o", "max"}),
             Catch::Contains("--op max: broadcast reduces nothing"));
  CHECK(says({"--collective", "reduce", "-o", "max", "--root", "1", "--nranks", "2", "--rendezvous",
              "x"})
            .empty());
}

TEST_CASE("what stands before the dashes is the EAL's, and for lanes of the bench's own alone") {
  const auto parsed = parse({"-l", "1", "--no-pci", "--", "--transport", "gradwire", "-b", "8"});
  REQUIRE(parsed.has_value());
  CHECK(parsed->options.eal_arguments == std::vector<std::string>{"-l", "1", "--no-pci"});
  CHECK(parsed->options.begin_bytes == 8);
  const auto plain = parse({"--", "-b", "8"});
  REQUIRE(plain.has_value());
  CHECK(plain->options.eal_arguments.empty());
  CHECK_FALSE(parse({"--no-pci", "--", "--transport", "tcp"}).has_value());
}

TEST_CASE("packets are sealed by daemons alone") {
  CHECK(parse({})->options.security.empty());
  CHECK(parse({"--security", "encrypt"})->options.security == "encrypt");
  CHECK_FALSE(parse({"--security", "tls"}).has_value());
  const auto tcp = parse({"--security", "off", "--transport", "tcp"});
  REQUIRE_FALSE(tcp.has_value());
  CHECK_THAT(tcp.error().message, Catch::Contains("--security off: transport tcp seals no packet"));
}

TEST_CASE("a port may have an MTU") {
  const auto parsed = parse({"--transport", "gradwire", "--port", "net_memif0=10.9.0.1/24,4096"});
  REQUIRE(parsed.has_value());
  CHECK(parsed->options.embedded.ports.at(0).mtu == 4096);
  CHECK_FALSE(parse({"--transport", "gradwire", "--port", "a=10.9.0.1/24,big"}).has_value());
}

TEST_CASE("an unknown transport is refused, and members where there can be none") {
  const auto unknown = parse({"--transport", "x"});
  REQUIRE_FALSE(unknown.has_value());
  CHECK(unknown.error().code == ErrorCode::kInvalidArgument);
  for (const char* name : {"daemon", "tcp", "rdma", "gradwire"}) {
    CHECK(parse({"--transport", name}).has_value());
  }
  for (const char* name : {"tcp", "rdma"}) {
    CHECK_FALSE(parse({"--transport", name, "--members", "2", "--rendezvous", "x"}).has_value());
  }
  CHECK(parse({"--transport", "daemon", "--members", "2", "--rendezvous", "x"}).has_value());
}

TEST_CASE("the bench's own lanes may lose frames on purpose") {
  const auto parsed = parse({"--transport", "gradwire", "--port", "net_memif0=10.9.0.1/24",
                             "--drop", "0.01", "--fault-seed", "7"});
  REQUIRE(parsed.has_value());
  CHECK(parsed->options.embedded.faults == FaultSettings{.seed = 7, .drop = 0.01});
  CHECK_FALSE(parse({"--drop", "1.5"}).has_value());
}

TEST_CASE("the RDMA ring's options are taken, and refused by name") {
  const auto parsed = parse({"--transport", "rdma", "--rdma-address", "fd00::1", "--rdma-device",
                             "rxe0", "--rdma-chunk", "64K", "--rdma-lag", "3", "--rdma-exchange",
                             "0", "--rdma-retry-ms", "20", "--rdma-wait", "sleep"});
  REQUIRE(parsed.has_value());
  const RdmaOptions& rdma = parsed->options.rdma;
  CHECK(rdma.address == "fd00::1");
  CHECK(rdma.device == "rxe0");
  CHECK(rdma.chunk_bytes == 64 << 10);
  CHECK(rdma.lag == 3);
  CHECK(rdma.exchange_bytes == 0);
  CHECK(rdma.retry_ms == 20);
  CHECK_FALSE(rdma.busy);
  CHECK(parse({"--transport", "rdma"})->options.rdma.busy);
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"--rdma-address", "host-a"}, {"--rdma-chunk", "100"},   {"--rdma-chunk", "0"},
      {"--rdma-chunk", "4G"},       {"--rdma-exchange", "4G"}, {"--rdma-lag", "0"},
      {"--rdma-lag", "1025"},       {"--rdma-retry-ms", "0"},  {"--rdma-wait", "poll"},
  };
  for (const auto& [option, value] : bad) {
    INFO(option << " " << value);
    const auto refused = parse({"--transport", "rdma", option, value});
    REQUIRE_FALSE(refused.has_value());
    CHECK_THAT(refused.error().message, Catch::Contains(option));
  }
}

TEST_CASE("TLS is the TCP ring's alone, and only by system calls") {
  CHECK_FALSE(parse({"--transport", "tcp"})->options.tcp.tls);
  CHECK(parse({"--transport", "tcp", "--tls"})->options.tcp.tls);
  const std::vector<std::vector<const char*>> bad = {
      {"--tls"},
      {"--transport", "rdma", "--tls"},
      {"--transport", "tcp", "--tls", "--tcp-io", "uring"},
      {"--transport", "tcp", "--tls", "--tcp-io", "uring-multishot"},
      {"--transport", "tcp", "--tls", "--tcp-zerocopy"},
  };
  for (const auto& arguments : bad) {
    const auto refused = parse(arguments);
    REQUIRE_FALSE(refused.has_value());
    CHECK_THAT(refused.error().message, Catch::Contains("--tls is for --transport tcp"));
  }
}

TEST_CASE("the bench's own lanes seal packets by a key file, which daemons have by themselves") {
  const auto parsed =
      parse({"--transport", "gradwire", "--security", "encrypt", "--key-file", "a.key"});
  REQUIRE(parsed.has_value());
  CHECK(parsed->options.key_file == "a.key");
  CHECK(parse({"--transport", "gradwire", "--security", "off"}).has_value());
  const auto none = parse({"--transport", "gradwire", "--security", "authenticate"});
  REQUIRE_FALSE(none.has_value());
  CHECK_THAT(none.error().message, Catch::Contains("needs --key-file"));
  const auto daemon = parse({"--security", "encrypt", "--key-file", "a.key"});
  REQUIRE_FALSE(daemon.has_value());
  CHECK_THAT(daemon.error().message, Catch::Contains("--key-file a.key: transport daemon"));
}
