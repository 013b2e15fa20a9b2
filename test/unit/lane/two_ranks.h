// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Two ranks in one process, each a whole datapath with a client of its own, joined by net_ring
/// ports. The test plays both control threads, and drives the lanes itself (embedded mode) or lets
/// threads run them.
#pragma once

#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lane/datapath.h"
#include "support/ring_harness.h"
#include "support/ring_ports.h"
#include "unit/command/command_fixture.h"
#include "wire/frame.h"

namespace gradwire::lane {

struct TwoRanksOptions {
  std::uint8_t lanes = 1;
  std::uint32_t payload_bytes = 1024;
  std::uint32_t mtu = 1500;
  bool ipv6 = false;
  std::uint32_t max_active_ops = 16;
  std::uint32_t window_packets = 32;
  std::uint16_t max_groups = 2;
  unsigned ring_entries = 512;
  std::uint16_t tx_descriptors = port::PortConfig{}.tx_descriptors;
  TimeNs silence_ns = 2'000'000'000;
  std::uint64_t token = 0;  ///< of both links
  PollingConfig polling;
  std::uint64_t port_rate_bps = 0;
  std::size_t tx_trace_bursts = 0;
  std::array<std::string, 2> devices;  ///< of the ranks, in place of ports of net_ring
  bool joined = true;  ///< else `carry` takes frames from port to port, after each round
  std::function<void()> carry = [] {};
  reduce::DeviceMemory* payload_memory = nullptr;  ///< of both ranks
  std::uint32_t batch_entries = 1;
  bool payload_crc = true;
  std::uint64_t exchange_bytes = collective::ShardConfig{}.exchange_bytes;
  /// Of the group. Those from 2 on are nowhere: it does not form, see add_client_and_group().
  std::uint16_t nranks = 2;
  std::uint64_t direct_bytes = 0;
  std::uint32_t pairs_max = 0;
  bool tiles = false;  ///< what neither is exchanged nor direct goes by tiles
  /// For direct ops of a backend that does not work at once.
  std::function<std::shared_ptr<std::byte[]>(std::uint64_t bytes)> direct_memory;
  std::function<std::unique_ptr<reduce::Backend>(std::uint16_t rank)> backend = [](std::uint16_t) {
    return reduce::make_cpu_backend(256);
  };
};

class TwoRanks {
 public:
  static constexpr std::uint64_t kGroup = 7;
  static constexpr std::uint16_t kPort = 4791;

  struct Rank {
    std::unique_ptr<Datapath> datapath;
    std::unique_ptr<command::TestClient> client;
    command::GroupPlan plan;
    std::vector<std::unique_ptr<command::GroupPlan>>
        earlier_plans;  // of groups that nobody has left
    std::vector<std::uint32_t> ids;
    std::vector<std::unique_ptr<command::Request>> requests;
    std::vector<command::Notice> notices;
    std::map<const command::Request*, int> back;  // requests that came back, and how often
    std::size_t back_once = 0;                    // how many came back, and not again
    std::uint32_t next_memory = 1;
    std::uint64_t next_op = 1;
  };

  explicit TwoRanks(const TwoRanksOptions& options = {})
      : options_(options),
        name_("pair" + std::to_string(++instances())),
        ports_(name_, options.lanes, options.ring_entries, options.joined) {
    REQUIRE(ports_.made());
    for (std::uint16_t r = 0; r < 2; ++r) make_datapath(r);
    for (std::uint16_t r = 0; r < 2; ++r) make_plan(r);
  }
  ~TwoRanks() {
    for (Rank& rank : ranks_) {
      rank.plan.shards.clear();
      rank.earlier_plans.clear();
    }
    // A port's frames may come from the other rank's mempools.
    ports_.drain();
    for (Rank& rank : ranks_) rank.datapath.reset();
  }

  Rank& rank(std::uint16_t r) { return ranks_[r]; }
  port::RingPorts& ports() { return ports_; }
  TimeNs now = 1'000'000'000;

  command::Request* send(std::uint16_t r, std::uint8_t lane, command::Request request) {
    Rank& rank = ranks_[r];
    rank.requests.push_back(std::make_unique<command::Request>(std::move(request)));
    REQUIRE(rank.datapath->send(lane, rank.requests.back().get()));
    return rank.requests.back().get();
  }
  void send_all_lanes(std::uint16_t r, const command::Request& request) {
    for (std::uint8_t lane = 0; lane < options_.lanes; ++lane) send(r, lane, request);
  }
  void take_notices(std::uint16_t r) {
    command::Notice notice;
    while (ranks_[r].datapath->receive(notice)) {
      if (notice.type == command::NoticeType::kRequestDone) {
        const int times = ++ranks_[r].back[notice.request];
        if (times == 1) ++ranks_[r].back_once;
        if (times == 2) --ranks_[r].back_once;
      }
      ranks_[r].notices.push_back(notice);
    }
  }
  int count_notices(std::uint16_t r, command::NoticeType type) {
    int n = 0;
    for (const command::Notice& notice : ranks_[r].notices) n += notice.type == type ? 1 : 0;
    return n;
  }
  bool all_back(std::uint16_t r) { return ranks_[r].back_once == ranks_[r].requests.size(); }

  /// One round of every lane of both ranks, `step` ns apart.
  void round(TimeNs step = 5'000) {
    for (std::uint16_t r = 0; r < 2; ++r) {
      for (std::uint8_t lane = 0; lane < options_.lanes; ++lane) {
        ranks_[r].datapath->lane(lane).poll_once(now);
      }
      take_notices(r);
    }
    options_.carry();
    now += step;
  }
  /// Rounds `step` ns apart until the clients have so many completions. @return whether all ended
  /// well.
  bool run_until_completed(int open, TimeNs step) {
    for (int round = 0; round < 1'000'000 && open > 0; ++round) {
      this->round(step);
      for (std::uint16_t r = 0; r < 2; ++r) {
        const auto entry = ranks_[r].client->completion();
        if (!entry) continue;
        if (static_cast<ErrorCode>(entry->status) != ErrorCode::kOk) return false;
        --open;
      }
    }
    return open == 0;
  }
  bool run_until(const std::function<bool()>& done, TimeNs limit = 10'000'000'000,
                 TimeNs step = 5'000) {
    for (const TimeNs end = now + limit; now < end; round(step)) {
      if (done()) return true;
    }
    return done();
  }

  void add_client_and_group(std::uint16_t r) {
    command::Request client;
    client.type = command::RequestType::kAddClient;
    client.client_id = 1;
    client.client = &ranks_[r].client->port;
    send(r, 0, client);
    add_group(r);
  }
  bool form() {
    for (std::uint16_t r = 0; r < 2; ++r) add_client_and_group(r);
    return run_until([&] { return all_formed(1); });
  }
  /// Another group of the same ranks and clients; nobody has left the one before.
  bool form_another() {
    for (std::uint16_t r = 0; r < 2; ++r) {
      Rank& rank = ranks_[r];
      rank.earlier_plans.push_back(std::make_unique<command::GroupPlan>(std::move(rank.plan)));
      rank.plan = command::GroupPlan{};
      rank.next_op = 1;
    }
    ++group_;
    for (std::uint16_t r = 0; r < 2; ++r) {
      make_plan(r);
      add_group(r);
    }
    return run_until([&] { return all_formed(static_cast<int>(group_ - kGroup) + 1); });
  }
  void abort(std::uint16_t r) {
    command::Request abort;
    abort.type = command::RequestType::kAbortGroup;
    abort.group_handle = group_;
    abort.reason.code = AbortCode::kClientAbort;
    send_all_lanes(r, abort);
  }

  /// Registers the case's memory with the rank's client and posts it, to the last group unless
  /// another is named.
  void post(std::uint16_t r, test::AllReduceCase& all_reduce, std::uint64_t group = 0) {
    Rank& rank = ranks_[r];
    const collective::OpSpec spec = all_reduce.spec(r, rank.next_op);
    const std::uint64_t bytes = spec.count * element_bytes(spec.datatype);
    ipc::CommandEntry command;
    command.request_id = 1'000 + rank.next_op++;
    command.group_handle = group != 0 ? group : group_;
    command.count = spec.count;
    command.tag = spec.tag;
    command.datatype = static_cast<std::uint8_t>(spec.datatype);
    command.redop = static_cast<std::uint8_t>(spec.redop);
    command.input_memory = rank.next_memory++;
    add_memory(r, command.input_memory, const_cast<std::byte*>(spec.inputs[0]), bytes);
    command.output_memory = rank.next_memory++;
    add_memory(r, command.output_memory, spec.outputs[0], bytes);
    if (spec.inputs[0] == spec.outputs[0]) command.output_memory = command.input_memory;
    REQUIRE(rank.client->queue.push_command(command));
  }
  void add_memory(std::uint16_t r, std::uint32_t handle, std::byte* base, std::uint64_t bytes) {
    command::Request memory;
    memory.type = command::RequestType::kAddMemory;
    memory.client_id = memory.region.client_id = 1;
    memory.memory = memory.region.memory = handle;
    memory.region.base = base;
    memory.region.bytes = bytes;
    command::Request* sent = send(r, 0, memory);
    if (threads_) {
      while (ranks_[r].back[sent] == 0) take_notices(r);
    } else {
      REQUIRE(run_until([&] { return ranks_[r].back[sent] != 0; }));
    }
  }
  void leave(std::uint16_t r) {
    for (std::uint64_t group = kGroup; group <= group_; ++group) {
      command::Request leave;
      leave.type = command::RequestType::kLeaveGroup;
      leave.group_handle = group;
      send_all_lanes(r, leave);
    }
  }
  /// Both ranks leave; then everything must be back, every mbuf too.
  void leave_and_check() {
    for (std::uint16_t r = 0; r < 2; ++r) leave(r);
    REQUIRE(run_until([&] { return all_back(0) && all_back(1); }));
    for (Rank& rank : ranks_) {
      command::Request remove;
      remove.type = command::RequestType::kRemoveClient;
      remove.client_id = 1;
      send(static_cast<std::uint16_t>(&rank - ranks_), 0, remove);
    }
    REQUIRE(run_until([&] { return all_back(0) && all_back(1); }));
    for (Rank& rank : ranks_) {
      rank.plan.shards.clear();
      rank.earlier_plans.clear();
    }
    ports_.drain();
    for (std::uint16_t r = 0; r < 2; ++r) {
      for (std::uint8_t lane = 0; lane < options_.lanes; ++lane) {
        const port::LanePools& pools = ranks_[r].datapath->pools(lane);
        CHECK(rte_mempool_in_use_count(pools.packet()) == 0);
        CHECK(rte_mempool_in_use_count(pools.control()) == 0);
        const port::PayloadPool* payloads = ranks_[r].datapath->payloads(lane);
        if (payloads != nullptr) CHECK(rte_mempool_in_use_count(payloads->mempool()) == 0);
      }
    }
  }
  void set_threads(bool threads) { threads_ = threads; }
  /// Taken from the rank's client.
  std::uint64_t commands(std::uint16_t r) {
    return read_counter(ranks_[r].datapath->lane(0).counters().command.commands);
  }
  std::uint64_t counter(std::uint16_t r, std::uint64_t LaneCounters::*which) {
    std::uint64_t sum = 0;
    for (std::uint8_t lane = 0; lane < options_.lanes; ++lane) {
      sum += read_counter(ranks_[r].datapath->lane(lane).counters().*which);
    }
    return sum;
  }
  [[nodiscard]] wire::IpAddress ip_of(std::uint16_t r) const {
    return *wire::parse_ip((options_.ipv6 ? "fd00::" : "10.0.0.") + std::to_string(r + 1));
  }

 private:
  static int& instances() {
    static int count = 0;
    return count;
  }

  void add_group(std::uint16_t r) {
    command::Request group;
    group.type = command::RequestType::kAddGroup;
    group.group_handle = group_;
    group.plan = &ranks_[r].plan;
    send_all_lanes(r, group);
  }
  bool all_formed(int groups) {
    return count_notices(0, command::NoticeType::kGroupFormed) == groups * options_.lanes &&
           count_notices(1, command::NoticeType::kGroupFormed) == groups * options_.lanes;
  }

  [[nodiscard]] collective::ShardConfig shard_config(std::uint16_t r, std::uint8_t lane) {
    collective::ShardConfig config;
    config.key = {0x1234, static_cast<std::uint32_t>(group_ - kGroup) + 1};
    config.rank = r;
    config.nranks = options_.nranks;
    config.lane = lane;
    config.lanes = options_.lanes;
    config.payload_bytes = options_.payload_bytes;
    config.incarnation = 100u + r;
    config.upstream.incarnation = config.downstream.incarnation = 101u - r;
    config.window_packets = config.transit_packets = options_.window_packets;
    config.eager_packets = 8;
    config.upstream.tokens = config.downstream.tokens = {options_.token, options_.token};
    config.max_active_ops = options_.max_active_ops;
    config.max_chunks = 1u << 16;
    config.timeouts.silence_ns = options_.silence_ns;
    config.batch_entries = options_.batch_entries;
    config.exchange_bytes = options_.exchange_bytes;
    config.direct.op_bytes = options_.direct_bytes;
    config.transfers.pairs_max = options_.pairs_max;
    config.tiles.used = options_.tiles;
    if (options_.tiles) config.tiles.scratch_bytes = 8 << 20;
    if (needs_all_ranks(config)) config.peers.resize(config.nranks);
    config.payload_crc = options_.payload_crc;
    return config;
  }
  void make_datapath(std::uint16_t r) {
    DatapathConfig config;
    port::PortConfig port;
    port.device = r == 0 ? ports_.a() : ports_.b();
    if (!options_.devices[r].empty()) port.device = options_.devices[r];
    port.ip = ip_of(r);
    port.prefix_bits = options_.ipv6 ? 64 : 24;
    port.mtu = options_.mtu;
    port.tx_descriptors = options_.tx_descriptors;
    port.rate_bps = options_.port_rate_bps;
    config.ports = {port};
    config.lanes = options_.lanes;
    config.base_udp_port = kPort;
    config.max_groups = options_.max_groups;
    config.max_payload_bytes = options_.payload_bytes;
    config.mbufs_per_shard = [this, r](std::uint32_t) {
      return collective::packet_mbufs_needed(shard_config(r, 0));
    };
    config.polling = options_.polling;
    config.tx_trace_bursts = options_.tx_trace_bursts;
    config.payload_memory = options_.payload_memory;
    config.name = name_ + std::to_string(r);
    auto made = Datapath::create(config);
    if (!made) FAIL(made.error().message);
    ranks_[r].datapath = std::move(*made);
    ranks_[r].client = std::make_unique<command::TestClient>(1);
    ranks_[r].client->port.doorbell_fd = eventfd(0, EFD_NONBLOCK);
  }
  void make_plan(std::uint16_t r) {
    Rank& rank = ranks_[r];
    rank.plan.group_handle = group_;
    rank.plan.member_clients = {1};
    const port::Port& own = *rank.datapath->ports()[0];
    const port::Port& other = *ranks_[1 - r].datapath->ports()[0];
    for (std::uint8_t lane = 0; lane < options_.lanes; ++lane) {
      collective::ShardConfig config = shard_config(r, lane);
      wire::FrameAddresses addresses;
      addresses.source_mac = own.mac();
      addresses.destination_mac = other.mac();
      addresses.source_ip = ip_of(r);
      addresses.destination_ip = ip_of(1 - r);
      addresses.source_port = addresses.destination_port = static_cast<std::uint16_t>(kPort + lane);
      config.downstream.frame = config.upstream.frame = *wire::FrameTemplate::make(addresses);
      config.downstream.ip = config.upstream.ip = ip_of(1 - r);
      for (std::uint16_t peer = 2; peer < config.peers.size(); ++peer) {
        config.peers[peer].ip = ip_of(peer);
        config.peers[peer].frame = config.downstream.frame;
        config.peers[peer].tokens = {options_.token, options_.token};
      }
      config.packet_pool = rank.datapath->pools(lane).packet();
      config.control_pool = rank.datapath->pools(lane).control();
      if (const port::PayloadPool* payloads = rank.datapath->payloads(lane); payloads != nullptr) {
        config.payload_pool = payloads->mempool();
      }
      config.received_mbufs_are_exclusive = own.row().rx_exclusive;
      if (options_.direct_memory) {
        config.direct.memory =
            options_.direct_memory(collective::direct_memory_bytes(config, false));
      }
      auto shard = collective::Shard::create(config, options_.backend(r));
      if (!shard) FAIL(shard.error().message);
      command::ShardPlacement placement;
      placement.shard = std::move(*shard);
      rank.plan.shards.push_back(std::move(placement));
    }
  }

  TwoRanksOptions options_;
  std::string name_;
  port::RingPorts ports_;
  Rank ranks_[2];
  std::uint64_t group_ = kGroup;
  bool threads_ = false;
};

}  // namespace gradwire::lane
