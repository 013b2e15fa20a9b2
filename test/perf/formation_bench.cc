// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What one rank takes to form a group of many, in clear and with keys. It plays rank 0's daemon:
/// what the control thread does for a client (its entry, the join's body read, the table checked,
/// paths and tokens), what the worker does (keys of pairs and of links), and what the control
/// thread does then (a plan: a shard on each lane, frames, seals). CPU time of this thread, since
/// others use the machine too; the median of the rounds, modes in turns. Each round forms a group
/// with daemons never met, then another one with the same, whose pairs are kept.
///
/// Then what the network takes, in virtual time, so without CPU. Hellos: the simulator forms a
/// ring, with the real schedule and cipher, over links with a latency, of 64 ranks at most:
/// neighbors greet each other all at once, so that more take no longer. Addresses: daemons never
/// met have to be asked for their MAC addresses, by the limit that daemons keep (64 at once, then
/// one in 10 ms); behind a router nobody is asked, and a daemon that was met is known. Exchange:
/// the job's store hands a rank all entries, one after the other; nothing unless --exchange-us says
/// how long one takes.
///
/// "own" is the ratio to off of the CPU time alone, "total" that of everything in the row.
/// Not counted, and the same in all modes: messages between client and daemon, requests to lanes.
/// Nor that the worker goes on while the control thread serves others, or that all ranks do the
/// same at once.
///
/// usage: formation_bench [--ranks N...] [--lanes N] [--rounds N] [--latency-us N]
///                        [--exchange-us N]. Hugepages.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "bench_program.h"
#include "collective/shard_config.h"
#include "control/formation/table.h"
#include "control/keys/daemon_keys.h"
#include "control/lanes/datapath_lanes.h"
#include "control/plans/plan_request.h"
#include "cpu_model.h"
#include "port/eal.h"
#include "port/neighbors/reply_limit.h"
#include "sim/world/world.h"
#include "support/ring_ports.h"

namespace gradwire::perf {
namespace {

using security::Mode;

constexpr std::array<Mode, 3> kModes = {Mode::kOff, Mode::kAuthenticate, Mode::kEncrypt};
constexpr wire::MacAddress kMac = {2, 0, 0, 0, 0, 9};
constexpr double kBar = 2;

template <class Work>
double cpu_ms(Work&& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  };
  const double begin = now();
  work();
  return now() - begin;
}

struct Options {
  std::vector<std::uint16_t> ranks = {64, 1024};
  std::uint8_t lanes = 1;
  int rounds = 9;
  std::uint32_t latency_us = 10;
  double exchange_us = 0;  ///< of an entry
};

/// In the order in which they come.
enum Part : std::size_t { kDescribe, kJoin, kKeys, kPlan, kParts };
using Parts = std::array<double, kParts>;

std::string ip_of(std::uint16_t rank) {
  return fmt::format("10.0.{}.{}", (rank + 1) / 256, (rank + 1) % 256);
}

/// Rank 0's daemon as far as groups are formed with it, with ports that lead nowhere.
class Daemon {
 public:
  explicit Daemon(const Options& options) : lanes_(options.lanes), ports_("f", options.lanes) {
    if (!ports_.made()) die("the net_ring ports cannot be had");
    collective::ShardConfig shard(TransportSection{}, LimitsSection{}, TimeoutsSection{});
    lane::DatapathConfig config;
    port::PortConfig port;
    port.device = ports_.a();
    port.ip = *wire::parse_ip(ip_of(0));
    port.prefix_bits = 16;
    port.mtu = 1500;
    config.ports = {port};
    config.lanes = lanes_;
    config.max_groups = 1;
    config.mbufs_per_shard = [shard](std::uint32_t payload) mutable {
      collective::settle_windows(shard, payload);
      return collective::packet_mbufs_needed(shard);
    };
    config.name = "formation";
    datapath_ = need(lane::Datapath::create(config));
    collective::settle_windows(shard, datapath_->max_payload_bytes());
    control::PlanSettings settings;
    settings.shard = shard;
    settings.base_udp_port = config.base_udp_port;
    control_ = std::make_unique<control::DatapathLanes>(*datapath_, settings,
                                                        std::span<const control::StaticNeighbor>());
    // As a NIC's: the ring's port leads to one other alone.
    addresses_.assign(control_->addresses().begin(), control_->addresses().end());
    addresses_[0].single_peer = false;
    self_.max_payload_bytes = datapath_->max_payload_bytes();
    self_.features = collective::features_of(shard);
    self_.base_udp_port = config.base_udp_port;
    const TransportSection keys;
    self_.direct_kib = static_cast<std::uint16_t>(keys.direct_kib);
    self_.two_step_kib = static_cast<std::uint16_t>(keys.two_step_kib);
    self_.gathered_kib = static_cast<std::uint16_t>(keys.gathered_kib);
    self_.gathered_ranks = static_cast<std::uint16_t>(keys.gathered_ranks);
    self_.tiles = true;
    self_.tiles_wanted = control::tiles_wanted(keys.tiles);
    self_.packet_ns = static_cast<std::uint16_t>(keys.packet_ns);
    self_.byte_ps = static_cast<std::uint16_t>(keys.byte_ps);
    self_.hop_ns = static_cast<std::uint32_t>(keys.hop_ns);
    self_.fold_sources = kMaxRanks;
  }

  /// An entry without keys, as rank `rank`'s daemon makes it.
  [[nodiscard]] ipc::RankInfo entry(std::uint16_t rank) const {
    control::DaemonInfo info = self_;
    info.incarnation = 100 + rank;
    control::LocalAddress address = addresses_[0];
    address.ip = *wire::parse_ip(ip_of(rank));
    ipc::RankInfo made = control::make_rank_info(info, lanes_, {&address, 1});
    made.secret = control::secret_for({info.incarnation, 77}, ::geteuid());
    made.checksum = control::checksum_of(made);
    return made;
  }

  /// Forms a group, without its lanes.
  /// @param table  all entries; rank 0's is made anew.
  Parts form(control::DaemonKeys& keys, std::vector<ipc::RankInfo>& table, std::uint32_t epoch) {
    Parts parts{};
    const ipc::RankInfo own = entry(0);
    parts[kDescribe] = cpu_ms([&] {
      table[0] = entry(0);
      need(keys.write(table[0], ::geteuid(), keys.mode(), {}));
      table[0].checksum = control::checksum_of(table[0]);
    });
    ipc::JoinRequest request;
    request.group_id = 0xfeed;
    request.epoch = epoch;
    const std::vector<std::byte> body = ipc::encode_join(request, table);
    control::PlanRequest wanted;
    parts[kJoin] = cpu_ms([&] {
      const ipc::JoinBody join = need(ipc::parse_join(body));
      wanted = need(
          control::plan_request(join, own, addresses_, keys.for_join(::geteuid(), join.wants)));
    });
    if (wanted.security.mode != keys.mode()) die("the group has another mode");
    if (wanted.peers.size() + 2 < table.size() - 1)
      die(fmt::format("the group has links to {} ranks alone: {}", wanted.peers.size(),
                      wanted.why_not_direct));
    if (wanted.security.mode != Mode::kOff) {
      parts[kKeys] = cpu_ms([&] {
        const auto making = need(keys.making_for(wanted, ::geteuid(), table, nullptr));
        while (!making->work()) {
        }
        if (making->error()) die(making->error()->message);
        keys.keep_pairs_of(*making, ::geteuid());
        control::put_keys(wanted, making->take());
      });
    }
    answer(wanted.downstream);
    answer(wanted.upstream);
    for (control::PeerPaths& peer : wanted.peers) answer(peer.paths);
    wanted.formation_ns = 30'000'000'000;
    command::GroupPlan* plan = nullptr;
    parts[kPlan] = cpu_ms([&] { plan = need(control_->create_plan(1, wanted)); });
    control_->destroy_plan(plan);
    return parts;
  }

 private:
  /// As if the neighbors had told their MAC addresses.
  static void answer(std::vector<control::NeighborPath>& paths) {
    for (control::NeighborPath& path : paths) {
      path.hop = path.remote_ip;
      path.remote_mac = kMac;
    }
  }

  const std::uint8_t lanes_;
  port::RingPorts ports_;
  std::unique_ptr<lane::Datapath> datapath_;
  std::unique_ptr<control::DatapathLanes> control_;
  std::vector<control::LocalAddress> addresses_;
  control::DaemonInfo self_;
};

control::KeyOptions key_options(Mode mode, const control::ClusterKeysPtr& cluster) {
  control::KeyOptions options;
  options.mode = mode;
  if (mode != Mode::kOff) options.cluster = cluster;
  options.sealed_payload_bytes = 1344;
  return options;
}

/// All entries of a group that wants the mode.
std::vector<ipc::RankInfo> table_of(const Daemon& daemon, std::uint16_t ranks,
                                    const control::KeyOptions& options) {
  std::vector<ipc::RankInfo> table;
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    control::DaemonKeys keys(options, 100 + rank);
    ipc::RankInfo& entry = table.emplace_back(daemon.entry(rank));
    need(keys.write(entry, ::geteuid(), options.mode, {}));
    entry.checksum = control::checksum_of(entry);
  }
  return table;
}

/// Virtual time until the answers of all ranks that were never met are there.
double addresses_ms(std::uint16_t ranks, const Options& options) {
  constexpr TimeNs kInTurnNs = 10'000'000;  // DatapathLanes'
  port::ReplyLimit in_turn(kInTurnNs);
  TimeNs now = 3'600'000'000'000;
  const TimeNs start = now;
  // Both neighbors are asked at once, whatever the limit.
  for (int left = ranks - 3; left > 0;) {
    if (in_turn.allow(now)) {
      --left;
    } else {
      now += 100'000;
    }
  }
  return static_cast<double>(now - start) * 1e-6 + 2e-3 * options.latency_us;
}

/// Virtual time until all ranks of a ring have formed.
double hellos_ms(const Options& options, Mode mode) {
  constexpr std::uint16_t ranks = 64;
  struct Formed final : sim::Observer {
    void on_formed(sim::GroupId, std::uint16_t) override { ++ranks; }
    void on_failed(sim::GroupId, std::uint16_t, const AbortReason&) override {
      die("a simulated group does not form");
    }
    int ranks = 0;
  };
  Formed formed;
  sim::Trace trace;
  sim::WorldOptions world_options;
  world_options.hosts = ranks;
  world_options.one_pool = true;
  world_options.link.delay_ns = TimeNs{options.latency_us} * 1'000;
  world_options.host.rx_stock = 4;
  sim::World world(world_options, trace, formed);
  sim::GroupOptions group;
  for (sim::HostId host = 0; host < ranks; ++host) group.hosts.push_back(host);
  group.lanes = options.lanes;
  group.mode = mode;
  // Little memory for each of many hosts; links here have no rate, so length takes no time.
  group.shard.payload_bytes = 64;
  group.shard.max_chunks = 64;
  group.shard.window_packets = group.shard.transit_packets = 4;
  const sim::GroupId id = world.add_group(group);
  const TimeNs start = world.now();
  for (std::uint16_t rank = 0; rank < ranks; ++rank) world.start(id, rank);
  constexpr TimeNs kLimit = 30'000'000'000;
  if (!world.run_until([&] { return formed.ranks == ranks; }, kLimit)) {
    die("the simulated group has not formed in 30 s");
  }
  const double ms = static_cast<double>(world.now() - start) * 1e-6;
  for (std::uint16_t rank = 0; rank < ranks; ++rank) world.crash(rank);
  return ms;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(Daemon& daemon, std::uint16_t ranks, const Options& options) {
  security::Secret32 file;
  need(security::draw(file.span()));
  const auto cluster = std::make_shared<control::ClusterKeys>(file);
  std::vector<control::KeyOptions> keys;
  std::vector<std::vector<ipc::RankInfo>> tables;
  for (const Mode mode : kModes) {
    keys.push_back(key_options(mode, cluster));
    tables.push_back(table_of(daemon, ranks, keys.back()));
  }
  // [first or again][mode][part][round]
  std::array<std::array<std::array<std::vector<double>, kParts + 1>, kModes.size()>, 2> found;
  std::uint32_t epoch = 0;
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
      control::DaemonKeys own(keys[mode], 100);
      for (const std::size_t again : {0u, 1u}) {
        const Parts parts = daemon.form(own, tables[mode], ++epoch);
        double all = 0;
        for (std::size_t part = 0; part < kParts; ++part) {
          found[again][mode][part].push_back(parts[part]);
          all += parts[part];
        }
        found[again][mode][kParts].push_back(all);
      }
    }
  }
  for (const std::size_t again : {0u, 1u}) {
    double in_clear = 0;
    double own_in_clear = 0;
    for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
      const auto& parts = found[again][mode];
      const double own = median(parts[kParts]);
      const double hellos = hellos_ms(options, kModes[mode]);
      const double addresses = again == 0 ? addresses_ms(ranks, options) : 0;
      const double exchange = ranks * options.exchange_us * 1e-3;
      const double total = own + hellos + addresses + exchange;
      if (mode == 0) {
        in_clear = total;
        own_in_clear = own;
      }
      fmt::print(
          "| {} | {} | {} | {} | {:.3f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | "
          "{:.2f} | {:.2f} | {:.2f} | {:.2f} | {} |\n",
          ranks, options.lanes, again == 0 ? "first" : "again", security::name_of(kModes[mode]),
          median(parts[kDescribe]), median(parts[kJoin]), median(parts[kKeys]),
          median(parts[kPlan]), own, own / own_in_clear, hellos, addresses, exchange, total,
          total / in_clear,
          mode == 0                  ? "-"
          : total <= kBar * in_clear ? "reached"
                                     : "MISSED");
      std::fflush(stdout);
    }
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("What forming a group takes a rank, in clear and with keys");
  app.add_option("--ranks", options.ranks, "of a group")->check(CLI::Range(4, 1024));
  app.add_option("--lanes", options.lanes, "of each rank")->check(CLI::Range(1, 16));
  app.add_option("--rounds", options.rounds, "of all modes")->check(CLI::Range(1, 1000));
  app.add_option("--latency-us", options.latency_us, "of a link, one way, for the hellos")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--exchange-us", options.exchange_us, "of an entry, by the job's store")
      ->check(CLI::Range(0.0, 1e6));
  CLI11_PARSE(app, argc, argv);
  auto arguments =
      need(port::make_eal_arguments("formation_bench",
                                    {"--lcores=0@(0-1),1@(0-1)", "--in-memory", "--no-pci",
                                     "--no-telemetry", "-m", "1024", "--log-level=4"},
                                    "formation_bench"));
  need(port::start_eal(std::move(arguments)));
  fmt::print(
      "{}; ms of CPU time, medians of {} rounds in turns; hellos: virtual time over links of {} "
      "us\n\n"
      "| ranks | lanes | | security | entry | join | keys | plan | own | of off | hellos | "
      "addresses | exchange | total | of off | at most {}x |\n|{}\n",
      cpu_model(), options.rounds, options.latency_us, kBar,
      "---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
  {
    Daemon daemon(options);
    for (const std::uint16_t ranks : options.ranks) measure(daemon, ranks, options);
  }
  std::fflush(nullptr);
  port::leave_eal();
  return 0;
}

}  // namespace
}  // namespace gradwire::perf

int main(int argc, char** argv) { gradwire::perf::run_program(gradwire::perf::run, argc, argv); }
