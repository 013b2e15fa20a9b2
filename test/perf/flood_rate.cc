// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What foreign frames at line rate cost a group, without a NIC: two embedded ranks, both driven by
/// one core, all-reduce over ports of net_ring, while a second core puts frames into rank 0's
/// receive ring at a set rate. In turns of three short rounds: quiet, aside (the second core does
/// the same with a ring of its own, the control) and flood; each round is compared with its
/// neighbors, so that all three meet the machine in the same state; a turn in which another
/// program had one of the cores is not counted. Every op's bits are checked.
///
/// One core runs both lanes, and only one of them is flooded. The time that the flood takes from
/// that core is the time that it would take from a core of that lane's own; so the share of goodput
/// that is lost here is what a group loses whose flooded lane has no idle time. Hugepages; two
/// cores. Prints a Markdown table. Fails if bits or counters are wrong, never for a time.
#include <fmt/core.h>
#include <fmt/ostream.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench_program.h"
#include "cpu_model.h"
#include "embedded/communicator.h"
#include "flood_frames.h"
#include "flood_source.h"
#include "port/eal.h"
#include "quartiles.h"
#include "support/ring_ports.h"

namespace gradwire::perf {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;
constexpr TimeNs kOpTimeout = 20 * kSecond;
constexpr std::uint16_t kUdpPort = 4791;
/// Ops on the same memory between two checks: each doubles it, and fp32 has exponents for 120.
constexpr int kChain = 100;
constexpr int kTriesByTurn = 6;
using Into = FloodSource::Into;

struct Options {
  std::uint32_t payload_bytes = 8192;
  std::uint64_t op_bytes = 1u << 20;
  int turns = 100;
  int round_ms = 10;
  double port_gbps = 0;  ///< the group's own ports are paced to it; 0: the core is the limit
  std::vector<std::string> floods;
};

/// KIND:FRAME_BYTES:FRAMES_PER_SECOND, or KIND:FRAME_BYTES:RATEg for Gbit/s on the wire.
struct Flood {
  const FloodKind* kind = nullptr;
  std::size_t frame_bytes = 0;  ///< without Ethernet's CRC
  double frames_per_second = 0;
  std::string rate;
};

Flood parse_flood(const std::string& text) {
  Flood flood;
  const std::size_t first = text.find(':');
  const std::size_t second = text.find(':', first == std::string::npos ? first : first + 1);
  if (second == std::string::npos) die(text + ": KIND:FRAME_BYTES:RATE is wanted");
  for (const FloodKind& kind : kFloodKinds) {
    if (kind.name == text.substr(0, first)) flood.kind = &kind;
  }
  flood.frame_bytes = std::strtoull(text.c_str() + first + 1, nullptr, 10);
  flood.frames_per_second = std::strtod(text.c_str() + second + 1, nullptr);
  flood.rate = text.substr(second + 1);
  if (!flood.rate.empty() && flood.rate.back() == 'g') {
    // CRC, preamble and the gap between frames.
    flood.frames_per_second *= 1e9 / 8 / static_cast<double>(flood.frame_bytes + 24);
    flood.rate.back() = ' ';
    flood.rate += "Gbit/s";
  }
  if (flood.kind == nullptr || flood.frame_bytes == 0 || flood.frames_per_second <= 0) {
    die(text + ": kind, bytes or rate make no sense");
  }
  return flood;
}

struct Round {
  double seconds = 0;
  std::uint64_t ops = 0;
  std::uint64_t sent = 0;     ///< into the lane's ring
  std::uint64_t lost = 0;     ///< the ring was full
  std::uint64_t reached = 0;  ///< counted by the lane, in that time
  std::uint64_t answers = 0;  ///< frames from rank 0 that were not for rank 1
  long preempted = 0;         ///< how often either core was another program's meanwhile
  [[nodiscard]] double seconds_by_op() const { return seconds / static_cast<double>(ops); }
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), ports_("flood") {
    if (!ports_.made()) die("the net_ring ports cannot be had");
    for (int r = 0; r < 2; ++r) make_rank(r);
    const std::vector<ipc::RankInfo> table = {ranks_[0]->info(), ranks_[1]->info()};
    both([&](int r) {
      need(ranks_[r]->form({0x77, 1}, static_cast<std::uint16_t>(r), table, 30 * kSecond));
    });
    count_ = options.op_bytes / sizeof(float);
    for (int r = 0; r < 2; ++r) {
      for (std::size_t i = 0; i < count_; ++i) {
        // Exact sums, all different from their neighbors.
        inputs_[r].push_back(static_cast<float>((i * 2'654'435'761u + 77u * r) >> 12 & 0xfffff) -
                             static_cast<float>(1 << 18));
      }
      arrays_[r].resize(count_);
    }
    source_ = std::make_unique<FloodSource>(rte_get_next_lcore(-1, 1, 0));
    if (!source_->started()) die("the second lcore cannot be had: pass --lcores 0@0,1@1");
  }
  ~Bench() {
    drain();
    if (source_->abroad() != 0) die("foreign frames have not come back");
    both([&](int r) { need(ranks_[r]->leave(10 * kSecond)); });
    ports_.drain();
    source_.reset();
    for (auto& rank : ranks_) rank.reset();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void set(const Flood& flood) {
    const FloodTarget target{ranks_[0]->datapath().ports()[0]->mac(), *wire::parse_ip("10.0.0.1"),
                             kUdpPort};
    auto frame = flood_frame(flood.kind->name, target, flood.frame_bytes);
    if (!frame) {
      die(fmt::format("a frame of {} bytes is none of kind {}", flood.frame_bytes,
                      flood.kind->name));
    }
    drop_ = flood.kind->drop;
    constexpr std::size_t kHeaders = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
    if (drop_ == wire::Drop::kVersion && flood.frame_bytes < kHeaders + wire::kHeaderBytes) {
      drop_ = wire::Drop::kShort;
    }
    source_->set(std::move(*frame), flood.frames_per_second);
  }

  /// Ops for options.round_ms, the checks not counted.
  Round round(Into into) {
    const std::uint64_t wanted = rte_get_tsc_hz() / 1000 * static_cast<unsigned>(options_.round_ms);
    const std::uint64_t sent = source_->sent();
    const std::uint64_t lost = source_->lost();
    const std::uint64_t dropped = counters(0).drops[static_cast<std::size_t>(drop_)];
    Round out;
    std::uint64_t cycles = 0;
    while (cycles < wanted) {
      for (int r = 0; r < 2; ++r) arrays_[r] = inputs_[r];
      const std::uint64_t reached = foreign(0);
      const std::uint64_t answers = foreign(1);
      const long preempted = times_preempted() + source_->preempted();
      const std::uint64_t begin = rte_get_tsc_cycles();
      source_->run(into);
      int ops = 0;
      for (; ops < kChain && cycles + rte_get_tsc_cycles() - begin < wanted; ++ops) all_reduce();
      cycles += rte_get_tsc_cycles() - begin;
      if (!source_->pause()) die("the source of the flood does not stop");
      out.preempted += times_preempted() + source_->preempted() - preempted;
      out.ops += static_cast<unsigned>(ops);
      out.reached += foreign(0) - reached;
      out.answers += foreign(1) - answers;
      check(ops);
    }
    out.seconds = static_cast<double>(cycles) / static_cast<double>(rte_get_tsc_hz());
    drain();
    out.sent = source_->sent() - sent;
    out.lost = source_->lost() - lost;
    const std::uint64_t counted = counters(0).drops[static_cast<std::size_t>(drop_)] - dropped;
    if (into == Into::kLane && drop_ != wire::Drop::kNone && counted != out.sent) {
      die(fmt::format("{} frames were sent, {} dropped as {}", out.sent, counted,
                      wire::name_of(drop_)));
    }
    return out;
  }

 private:
  template <class Body>
  static void both(Body&& body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  }

  void make_rank(int r) {
    const auto ip = [](int rank) { return *wire::parse_ip(rank == 0 ? "10.0.0.1" : "10.0.0.2"); };
    embedded::Config config;
    port::PortConfig port;
    port.device = r == 0 ? ports_.a() : ports_.b();
    port.ip = ip(r);
    port.mtu = options_.payload_bytes > 1'408 ? 9'000 : 1'500;
    port.rate_bps = static_cast<std::uint64_t>(options_.port_gbps * 1e9);
    config.datapath.ports = {port};
    // These ports have no address: nothing to ask for.
    config.neighbors = {{ip(1 - r), {}}};
    config.datapath.base_udp_port = kUdpPort;
    config.datapath.max_payload_bytes = options_.payload_bytes;
    config.datapath.name = r == 0 ? "fa" : "fb";
    config.datapath.polling.mode = lane::PollingMode::kBusy;
    // Nobody drives the lanes while results are checked.
    config.shard.timeouts.silence_ns = kOpTimeout;
    ranks_[r] = need(embedded::Communicator::create(config));
  }

  const lane::LaneCounters& counters(int r) { return ranks_[r]->datapath().lane(0).counters(); }
  /// Frames that the lane received and that belong to no group.
  std::uint64_t foreign(int r) {
    const lane::LaneCounters& all = counters(r);
    std::uint64_t sum = all.echo_replies + all.neighbor_frames + all.neighbor_drops;
    for (const std::uint64_t drops : all.drops) sum += drops;
    return sum;
  }

  void all_reduce() {
    std::array<std::uint64_t, 2> op{};
    for (int r = 0; r < 2; ++r) {
      float* const data = arrays_[r].data();
      op[r] = need(ranks_[r]->post({data, data, count_, DataType::kFloat32, RedOp::kSum, 0}));
    }
    const std::uint64_t deadline = rte_get_tsc_cycles() + rte_get_tsc_hz() * (kOpTimeout / kSecond);
    for (std::array<bool, 2> done{}; !done[0] || !done[1];) {
      source_->pass_on(ports_.to_a());
      for (int r = 0; r < 2; ++r) done[r] = ranks_[r]->test(op[r]);
      if (rte_get_tsc_cycles() < deadline) continue;
      for (int r = 0; r < 2; ++r) need(ranks_[r]->wait(op[r], 1));  // says why
      die("an op took too long");
    }
    last_op_ = op[0];
  }

  /// In place, each op but the first doubles what is there.
  void check(int ops) {
    if (ops == 0) return;
    const float doubled = std::ldexp(1.0F, ops - 1);
    for (int r = 0; r < 2; ++r) {
      for (std::size_t i = 0; i < count_; ++i) {
        const float want = (inputs_[0][i] + inputs_[1][i]) * doubled;
        if (std::memcmp(&arrays_[r][i], &want, sizeof want) == 0) continue;
        die(fmt::format("rank {}, element {} after {} ops: {}, not {}", r, i, ops, arrays_[r][i],
                        want));
      }
    }
  }

  /// Until nothing of the flood is left anywhere.
  void drain() {
    const std::uint64_t deadline = rte_get_tsc_cycles() + rte_get_tsc_hz();
    for (int quiet = 0; quiet < 4 && rte_get_tsc_cycles() < deadline; ++quiet) {
      source_->pass_on(ports_.to_a());
      if (rte_ring_count(ports_.to_a()) != 0 || rte_ring_count(ports_.to_b()) != 0) quiet = 0;
      for (int r = 0; r < 2; ++r) static_cast<void>(ranks_[r]->test(last_op_ + 1));
    }
  }

  const Options& options_;
  port::RingPorts ports_;
  std::array<std::unique_ptr<embedded::Communicator>, 2> ranks_;
  std::unique_ptr<FloodSource> source_;
  std::size_t count_ = 0;
  std::array<std::vector<float>, 2> inputs_;
  std::array<std::vector<float>, 2> arrays_;
  wire::Drop drop_ = wire::Drop::kNone;
  std::uint64_t last_op_ = 0;
};

std::string spread(const std::vector<double>& values, int digits) {
  const auto [low, middle, high] = quartiles(values);
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", middle, digits, low, digits, high, digits);
}

void print_row(Bench& bench, const Options& options, const Flood& flood) {
  bench.set(flood);
  std::vector<double> quiet_gbps, flood_gbps, generator, cost, per_frame, share;
  Round sum;
  int tries = 0;
  for (; tries < kTriesByTurn * options.turns && static_cast<int>(cost.size()) < options.turns;
       ++tries) {
    // Forth and back, so that drift does not affect one of them alone.
    std::array<Round, 3> rounds;
    const std::array<Into, 3> order = {Into::kNothing, Into::kAside, Into::kLane};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t which = tries % 2 == 0 ? i : 2 - i;
      rounds[which] = bench.round(order[which]);
    }
    // While another program has a core, nothing is measured of this one.
    if (rounds[0].preempted + rounds[1].preempted + rounds[2].preempted != 0) continue;
    const auto& [quiet, aside, flooded] = rounds;
    const double bits = 8e-9 * static_cast<double>(options.op_bytes);
    quiet_gbps.push_back(bits / quiet.seconds_by_op());
    flood_gbps.push_back(bits / flooded.seconds_by_op());
    generator.push_back(100 * (1 - quiet.seconds_by_op() / aside.seconds_by_op()));
    const double lost_share = 1 - aside.seconds_by_op() / flooded.seconds_by_op();
    cost.push_back(100 * lost_share);
    per_frame.push_back(lost_share * flooded.seconds * static_cast<double>(rte_get_tsc_hz()) /
                        static_cast<double>(std::max<std::uint64_t>(flooded.reached, 1)));
    sum.seconds += flooded.seconds;
    sum.sent += flooded.sent;
    sum.lost += flooded.lost;
    sum.reached += flooded.reached;
    sum.answers += flooded.answers;
  }
  if (cost.empty()) die(fmt::format("in {} turns other programs had the cores", tries));
  const auto reached = static_cast<double>(sum.reached);
  fmt::print(
      "| {} | {} | {} | {:.0f} | {:.1f} | {:.2f} | {:.2f} | {} | {} | {} | {:.0f} | {:.3f} | {} of "
      "{} |\n",
      flood.kind->name, flood.frame_bytes, flood.rate, reached / sum.seconds,
      100 * static_cast<double>(sum.lost) / static_cast<double>(sum.sent + sum.lost),
      quartiles(quiet_gbps)[1], quartiles(flood_gbps)[1], spread(generator, 1), spread(cost, 1),
      spread(per_frame, 0), static_cast<double>(sum.answers) / sum.seconds,
      100 * static_cast<double>(sum.answers) / reached, cost.size(), tries);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Options options;
  std::string lcores = "0@0,1@1";
  CLI::App app("What foreign frames at line rate cost a group.");
  app.add_option("--payload", options.payload_bytes, "of a chunk")->check(CLI::Range(64, 8896));
  app.add_option("--bytes", options.op_bytes, "of an op")->check(CLI::Range(64, 64 << 20));
  app.add_option("--turns", options.turns, "quiet, aside, flood")->check(CLI::Range(1, 1000));
  app.add_option("--round-ms", options.round_ms)->check(CLI::Range(1, 1000));
  app.add_option("--port-rate", options.port_gbps,
                 "Gbit/s that the group's ports are paced to; 0: the core is the limit")
      ->check(CLI::Range(0.0, 400.0));
  app.add_option("--lcores", lcores, "the lanes' core and the flood's");
  std::string kinds;
  for (const FloodKind& kind : kFloodKinds) kinds += fmt::format("\n{}: {}", kind.name, kind.what);
  app.add_option(
      "floods", options.floods,
      "KIND:FRAME_BYTES:RATE each; RATE in frames a second, or with g in Gbit/s" + kinds);
  CLI11_PARSE(app, argc, argv);
  if (options.floods.empty()) {
    for (const FloodKind& kind : kFloodKinds) {
      options.floods.push_back(fmt::format("{}:{}:10g", kind.name, 1514));
    }
  }
  std::vector<Flood> floods;
  for (const std::string& text : options.floods) floods.push_back(parse_flood(text));

  auto arguments = need(port::make_eal_arguments("flood_rate",
                                                 {"--lcores=" + lcores, "--in-memory", "--no-pci",
                                                  "--no-telemetry", "-m", "512", "--log-level=4"},
                                                 "flood_rate"));
  need(port::start_eal(std::move(arguments)));
  {
    Bench bench(options);
    fmt::print(
        "{}, TSC {:.2f} GHz; ops of {} bytes fp32, payloads of {} bytes; {} turns of three "
        "rounds of {} ms; median (quartiles)\n\n",
        cpu_model(), static_cast<double>(rte_get_tsc_hz()) / 1e9, options.op_bytes,
        options.payload_bytes, options.turns, options.round_ms);
    fmt::print(
        "| kind | bytes | rate | frames/s into the lane | lost, ring full % | quiet Gbit/s | "
        "flood Gbit/s | second core's own cost % | cost % of goodput | cycles a frame | "
        "answers/s | answered % | turns |\n|{}\n",
        "---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (const Flood& flood : floods) print_row(bench, options, flood);
  }
  std::fflush(nullptr);
  port::leave_eal();
  return 0;
}

}  // namespace
}  // namespace gradwire::perf

int main(int argc, char** argv) { gradwire::perf::run_program(gradwire::perf::run, argc, argv); }
