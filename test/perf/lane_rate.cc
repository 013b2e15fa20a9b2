// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a lane carries that has a core of its own, without a driver that copies: two embedded ranks
/// in one process, a thread and a core each, all-reduce over ports of net_ring, which pass mbufs by
/// pointer as a NIC's DMA passes them. One row for each payload, integrity and size of an op:
/// Gbit/s of payload that each lane sends (with two ranks it receives as much), and its cycles for
/// each packet that it sends and receives. What a NIC would spare is printed too: a net_ring mbuf
/// stays the sender's until it is acknowledged, so a chunk that goes on is copied once.
///
/// In turns, one op of each row after another, so that all rows meet the machine in the same state.
/// Every op's bits are checked. Hugepages; two cores. Prints a Markdown table. Fails if bits are
/// wrong, never for a time.
#include <fmt/core.h>
#include <fmt/ostream.h>
#include <pthread.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench_program.h"
#include "cpu_model.h"
#include "embedded/communicator.h"
#include "port/eal.h"
#include "security/secret.h"
#include "support/ring_ports.h"

namespace gradwire::perf {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;
constexpr TimeNs kOpTimeout = 20 * kSecond;
constexpr std::uint16_t kUdpPort = 4791;

struct Options {
  std::vector<std::uint32_t> payloads = {1408, 8896};
  std::vector<std::uint64_t> sizes = {std::uint64_t{1} << 20, std::uint64_t{64} << 20};
  std::vector<std::string> security = {"off"};
  std::array<int, 2> cores = {0, 1};
  int turns = 20;
};

/// How packets are sealed. What an MTU carries then is 64 bytes less (doc/security.md, Payload).
struct Sealing {
  security::Mode mode = security::Mode::kOff;
  control::ClusterKeysPtr keys;
};
Sealing sealing_of(const std::string& mode) {
  if (mode == "off") return {};
  security::Secret32 key;
  need(security::draw(key.span()));
  return {control::parse_mode(mode), std::make_shared<control::ClusterKeys>(key)};
}

wire::IpAddress ip_of(int rank) { return *wire::parse_ip(rank == 0 ? "10.0.0.1" : "10.0.0.2"); }

/// Each rank's thread keeps its core while it does `body(rank)`.
template <class Body>
void on_both_cores(const Options& options, Body&& body) {
  std::array<std::thread, 2> threads;
  for (int r = 0; r < 2; ++r) {
    threads[r] = std::thread([&, r] {
      cpu_set_t cores;
      CPU_ZERO(&cores);
      CPU_SET(options.cores[r], &cores);
      if (pthread_setaffinity_np(pthread_self(), sizeof cores, &cores) != 0) {
        die(fmt::format("core {} cannot be had: name two others with --cores", options.cores[r]));
      }
      body(r);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Two ranks whose packets have one payload and one integrity.
class Pair {
 public:
  Pair(const Options& options, std::uint32_t payload, bool payload_crc, const Sealing& sealing)
      : options_(options),
        name_(fmt::format("l{}{}{}", payload, payload_crc ? "p" : "l",
                          static_cast<int>(sealing.mode))),
        ports_(name_) {
    if (!ports_.made()) die("the net_ring ports cannot be had");
    for (int r = 0; r < 2; ++r) {
      embedded::Config config;
      port::PortConfig port;
      port.device = r == 0 ? ports_.a() : ports_.b();
      port.ip = ip_of(r);
      port.mtu = payload > 1408 ? 9000 : 1500;
      config.datapath.ports = {port};
      config.neighbors = {{ip_of(1 - r), {}}};  // these ports have no address to ask for
      config.datapath.base_udp_port = kUdpPort;
      config.datapath.max_payload_bytes = payload;
      config.datapath.name = name_ + (r == 0 ? "a" : "b");
      config.datapath.polling.mode = lane::PollingMode::kBusy;
      config.keys.mode = sealing.mode;
      config.keys.cluster = sealing.keys;
      config.keys.sealed_payload_bytes = payload - 64;
      config.datapath.payload_crc = config.shard.payload_crc = payload_crc;
      // Nobody drives the lanes while other rows are measured, and results checked.
      config.shard.timeouts.silence_ns = 600 * kSecond;
      ranks_[r] = need(embedded::Communicator::create(config));
    }
    const std::vector<ipc::RankInfo> table = {ranks_[0]->info(), ranks_[1]->info()};
    on_both_cores(options_, [&](int r) {
      need(ranks_[r]->form({0x77, 1}, static_cast<std::uint16_t>(r), table, 30 * kSecond));
    });
  }
  ~Pair() {
    on_both_cores(options_, [&](int r) { need(ranks_[r]->leave(10 * kSecond)); });
    ports_.drain();
    for (auto& rank : ranks_) rank.reset();
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  /// `arrays` in place. @return seconds of the slower rank.
  double all_reduce(std::array<std::vector<float>, 2>& arrays) {
    std::array<double, 2> seconds{};
    std::barrier<> start(2);
    on_both_cores(options_, [&](int r) {
      embedded::Communicator& rank = *ranks_[r];
      float* const data = arrays[r].data();
      start.arrive_and_wait();
      const std::uint64_t begin = rte_get_tsc_cycles();
      const std::uint64_t op =
          need(rank.post({data, data, arrays[r].size(), DataType::kFloat32, RedOp::kSum, 0}));
      need(rank.wait(op, kOpTimeout));
      seconds[r] =
          static_cast<double>(rte_get_tsc_cycles() - begin) / static_cast<double>(rte_get_tsc_hz());
      // The other may still want to hear from us.
      for (done_[r] = true; !done_[1 - r];) static_cast<void>(rank.test(op));
    });
    for (auto& done : done_) done = false;
    return std::max(seconds[0], seconds[1]);
  }
  [[nodiscard]] collective::ShardCounters counters() const { return ranks_[0]->counters(); }

 private:
  const Options& options_;
  std::string name_;
  port::RingPorts ports_;
  std::array<std::unique_ptr<embedded::Communicator>, 2> ranks_;
  std::array<std::atomic<bool>, 2> done_{};
};

struct Row {
  Pair* pair = nullptr;
  std::uint32_t payload = 0;
  bool payload_crc = true;
  std::string security;
  std::uint64_t bytes = 0;
  std::vector<double> seconds;
  std::uint64_t packets = 0;  ///< sent and received by rank 0, in all ops
  std::uint64_t copies = 0;   ///< chunks that rank 0 copied
};

float input(int rank, std::size_t i) {
  return static_cast<float>((i * 2'654'435'761u + 77u * static_cast<unsigned>(rank)) >> 12 &
                            0xfffff) -
         static_cast<float>(1 << 18);
}

void measure(Row& row, std::array<std::vector<float>, 2>& arrays, bool counts) {
  const std::size_t count = row.bytes / sizeof(float);
  for (int r = 0; r < 2; ++r) {
    arrays[r].resize(count);
    for (std::size_t i = 0; i < count; ++i) arrays[r][i] = input(r, i);
  }
  const collective::ShardCounters before = row.pair->counters();
  const double seconds = row.pair->all_reduce(arrays);
  const collective::ShardCounters after = row.pair->counters();
  for (int r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      const float want = input(0, i) + input(1, i);
      if (std::memcmp(&arrays[r][i], &want, sizeof want) == 0) continue;
      die(fmt::format("rank {}, element {}: {}, not {}", r, i, arrays[r][i], want));
    }
  }
  if (!counts) return;
  row.seconds.push_back(seconds);
  row.packets += after.data_packets_sent - before.data_packets_sent + after.data_packets_received -
                 before.data_packets_received;
  row.copies += after.copies - before.copies;
}

void print(Row& row) {
  std::sort(row.seconds.begin(), row.seconds.end());
  const double best = row.seconds.front();
  const double median = row.seconds[row.seconds.size() / 2];
  const auto packets = static_cast<double>(row.packets) / static_cast<double>(row.seconds.size());
  // With two ranks each byte of the op leaves each rank once.
  const double gigabits = 8e-9 * static_cast<double>(row.bytes);
  fmt::print("| {} | {} | {} | {} | {:.1f} | {:.1f} | {:.0f} | {:.0f} | {:.2f} |\n",
             row.security == "off" ? row.payload : row.payload - 64,
             row.payload_crc ? "payload" : "link", row.security, row.bytes, gigabits / median,
             gigabits / best, median * static_cast<double>(rte_get_tsc_hz()) / packets * 2,
             best * static_cast<double>(rte_get_tsc_hz()) / packets * 2,
             static_cast<double>(row.copies) * 2 / static_cast<double>(row.packets));
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Gbit/s that a lane with a core of its own carries between buffers passed by pointer");
  app.add_option("--payloads", options.payloads, "bytes of a chunk, a multiple of 64")
      ->check(CLI::Range(64, 8896));
  app.add_option("--sizes", options.sizes, "bytes of an op")->check(CLI::Range(64, 256 << 20));
  app.add_option("--security", options.security, "off, authenticate, encrypt")
      ->check(CLI::IsMember({"off", "authenticate", "encrypt"}));
  app.add_option("--cores", options.cores, "one for each rank");
  app.add_option("--turns", options.turns, "ops of each row")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);

  auto arguments = need(port::make_eal_arguments(
      "lane_rate",
      {fmt::format("--lcores=0@{},1@{}", options.cores[0], options.cores[1]), "--in-memory",
       "--no-pci", "--no-telemetry", "-m", "512", "--log-level=4"},
      "lane_rate"));
  need(port::start_eal(std::move(arguments)));
  {
    std::vector<std::unique_ptr<Pair>> pairs;
    std::vector<Row> rows;
    for (const std::uint32_t payload : options.payloads) {
      for (const bool payload_crc : {true, false}) {
        for (const std::string& security : options.security) {
          pairs.push_back(
              std::make_unique<Pair>(options, payload, payload_crc, sealing_of(security)));
          for (const std::uint64_t bytes : options.sizes) {
            Row& row = rows.emplace_back();
            row.pair = pairs.back().get();
            row.payload = payload;
            row.payload_crc = payload_crc;
            row.security = security;
            row.bytes = bytes / sizeof(float) * sizeof(float);
          }
        }
      }
    }
    std::array<std::vector<float>, 2> arrays;
    for (Row& row : rows) measure(row, arrays, false);
    for (int turn = 0; turn < options.turns; ++turn) {
      for (Row& row : rows) measure(row, arrays, true);
    }
    fmt::print("{}, TSC {:.2f} GHz, cores {} and {}; {} ops of each row, in turns\n\n", cpu_model(),
               static_cast<double>(rte_get_tsc_hz()) / 1e9, options.cores[0], options.cores[1],
               options.turns);
    fmt::print(
        "| payload | integrity | security | bytes of an op | Gbit/s, median | best | cycles for a "
        "packet "
        "sent and one received, median | best | copies for each |\n|{}\n",
        "---|---|---|---|---|---|---|---|---|");
    for (Row& row : rows) print(row);
  }
  std::fflush(nullptr);
  port::leave_eal();
  return 0;
}

}  // namespace
}  // namespace gradwire::perf

int main(int argc, char** argv) { gradwire::perf::run_program(gradwire::perf::run, argc, argv); }
