// SPDX-License-Identifier: BSD-3-Clause
#include "lane/datapath.h"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "command/create_ring.h"
#include "port/memif/unmap_guard.h"

namespace gradwire::lane {

namespace {

constexpr unsigned kRequests = 1024;
constexpr unsigned kFrames = 256;
// Room for each group's notices (formed, aborted, closed) and for ops that end at the same time.
constexpr unsigned kNotices = 4096;
constexpr unsigned kReports = 8192;
constexpr unsigned kOps = 1024;
// Acknowledgements, hellos and other small packets of one shard that wait to be sent.
constexpr std::uint32_t kControlMbufsPerShard = 64;
// What one shard may send in a round.
constexpr std::uint32_t kOutboxMbufs =
    std::tuple_size_v<decltype(collective::Outbox::boxes)> * collective::OutboxSide::kCapacity;

Result<void> check(const DatapathConfig& config) {
  if (config.lanes < 1 || config.lanes > kMaxLanes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} lanes, must be 1 to {}", config.lanes, kMaxLanes));
  }
  if (config.base_udp_port == 0 || config.base_udp_port > 65535 - config.lanes) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("UDP ports {} to {} of {} lanes must be within 1 to 65535",
                    config.base_udp_port, config.base_udp_port + config.lanes - 1, config.lanes));
  }
  if (config.max_groups < 1 || config.max_groups > 1024 || config.max_transfer_groups > 1024) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} groups, must be 1 to 1024, and {} for transfers alone, must be 0 "
                            "to 1024",
                            config.max_groups, config.max_transfer_groups));
  }
  return {};
}

}  // namespace

/// What the ports take, all of them together.
struct Datapath::Opened {
  std::uint32_t buffer_bytes = 2048;
  std::uint32_t mtu = 0;
  int socket = -1;  ///< of the first port
  port::PacketDemand demand;
  /// As many as the rings of both directions hold. Afterwards a frame to be sent is in lane 0's
  /// backlog, and then in a descriptor of its queue until the driver frees it, perhaps only when it
  /// needs the descriptor again.
  std::uint32_t exchange_mbufs = 2 * kFrames;
};

Result<std::unique_ptr<Datapath>> Datapath::create(const DatapathConfig& config) {
  if (auto good = check(config); !good) return tl::unexpected(good.error());
  std::unique_ptr<Datapath> out(new Datapath);
  Opened opened;
  if (auto done = out->open_ports(config, opened); !done) return tl::unexpected(done.error());
  if (auto done = out->start_ports(config, opened); !done) return tl::unexpected(done.error());
  if (auto done = out->make_rings(config, opened.exchange_mbufs); !done)
    return tl::unexpected(done.error());
  if (auto done = out->make_lanes(config); !done) return tl::unexpected(done.error());
  return out;
}

Result<void> Datapath::open_ports(const DatapathConfig& config, Opened& out) {
  std::uint32_t payload = UINT32_MAX;
  out.demand.shards = config.max_groups;
  // Groups for transfers alone keep none from one of their rounds to the next: together they need
  // what one of them sends in a round.
  if (config.max_transfer_groups != 0) out.demand.backlog += kOutboxMbufs;
  for (const port::PortConfig& port_config : config.ports) {
    auto port = port::Port::open(port_config);
    if (!port) return tl::unexpected(port.error());
    const port::Port& opened = **port;
    if (!config.payload_crc && !opened.row().in_memory) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("port {}: transport.integrity = link leaves payloads without a CRC, "
                              "which is for ports that only move them through this host's memory "
                              "(memif): set it to payload",
                              port_config.device));
    }
    out.buffer_bytes = std::max(out.buffer_bytes, opened.limits().buffer_bytes);
    out.mtu = std::max(out.mtu, opened.limits().mtu);
    payload =
        std::min(payload, wire::max_payload_bytes(opened.limits().mtu, port_config.ip.family));
    if (opened.row().keeps_rx_mbufs) out.demand.descriptors += port_config.rx_descriptors;
    if (!opened.row().tx_copies) {
      out.demand.descriptors += port_config.tx_descriptors;
      out.exchange_mbufs += port_config.tx_descriptors;
    }
    out.exchange_mbufs += opened.row().held_mbufs + TxQueue::kCapacity;
    out.demand.driver_mbufs += opened.row().held_mbufs;
    out.demand.backlog += TxQueue::kCapacity + port::FaultStage::kHeld + port::FaultStage::kBurst;
    if (out.socket < 0) out.socket = opened.socket();
    ports_.push_back(std::move(*port));
  }
  if (!config.ports.empty() && payload < 64) {
    return fail(ErrorCode::kInvalidArgument,
                "the MTU of a port has no room for 64 bytes of payload: raise it to 256 or more");
  }
  // Without ports there are only groups of one rank, and any payload will do.
  if (config.ports.empty()) payload = wire::max_payload_bytes(port::kJumboMtu, 4);
  if (config.max_payload_bytes != 0) {
    if (config.max_payload_bytes > payload || config.max_payload_bytes % 64 != 0) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "payload of {} bytes, must be a multiple of 64 and at most {}, which the ports carry",
              config.max_payload_bytes, payload));
    }
    payload = config.max_payload_bytes;
  }
  max_payload_bytes_ = payload;
  out.demand.mbufs_per_shard = config.mbufs_per_shard(payload);
  return {};
}

/// Makes the lanes' mempools, into which the ports receive.
Result<void> Datapath::start_ports(const DatapathConfig& config, const Opened& opened) {
  std::vector<rte_mempool*> rx_pools;
  std::vector<rte_mempool*> payload_pools;
  for (std::uint8_t lane = 0; lane < config.lanes; ++lane) {
    port::PoolPlan plan{.lane = lane,
                        .socket = opened.socket,
                        .buffer_bytes = opened.buffer_bytes,
                        .packet_mbufs = port::packet_pool_mbufs(opened.demand),
                        .control_mbufs = kControlMbufsPerShard * config.max_groups +
                                         opened.demand.descriptors + opened.demand.backlog,
                        .name_prefix = config.name};
    auto pools = port::LanePools::create(plan);
    if (!pools) return tl::unexpected(pools.error());
    rx_pools.push_back((*pools)->packet());
    pools_.push_back(std::move(*pools));
    if (config.payload_memory == nullptr) continue;
    // Anything that can follow a header fits into one mbuf.
    auto payloads =
        port::PayloadPool::create({.name = fmt::format("{}_payload_{}", config.name, lane),
                                   .mbufs = plan.packet_mbufs,
                                   .room = std::min((opened.mtu + 63) / 64 * 64, 65'472u),
                                   .socket = opened.socket},
                                  *config.payload_memory, ports_);
    if (!payloads) return tl::unexpected(payloads.error());
    payload_pools.push_back((*payloads)->mempool());
    payloads_.push_back(std::move(*payloads));
  }
  for (auto& port : ports_) {
    auto started = port->start(rx_pools, config.base_udp_port, payload_pools);
    if (!started) return tl::unexpected(started.error());
  }
  return {};
}

Result<void> Datapath::make_lanes(const DatapathConfig& config) {
  SipHashKey hash_secret;
  if (getrandom(&hash_secret, sizeof hash_secret, 0) != sizeof hash_secret) {
    return fail(ErrorCode::kSystem, "getrandom failed, so the lanes have no key for their hashes");
  }
  for (std::uint8_t lane = 0; lane < config.lanes; ++lane) {
    LaneConfig lane_config;
    lane_config.lane = lane;
    lane_config.udp_port = static_cast<std::uint16_t>(config.base_udp_port + lane);
    for (const auto& port : ports_) lane_config.ports.push_back(port.get());
    lane_config.payloads = payloads(lane);
    lane_config.rings = lane_rings_[lane];
    lane_config.shared = shared_;
    lane_config.hash_secret = hash_secret;
    lane_config.command_lane = lane == 0 && config.command_lane;
    if (lane_config.command_lane) lane_config.all_lanes = lane_rings_;
    lane_config.max_groups =
        static_cast<std::uint16_t>(config.max_groups + config.max_transfer_groups);
    lane_config.polling = config.polling;
    lane_config.lanes = config.lanes;
    lane_config.tx_trace_bursts = config.tx_trace_bursts;
    lanes_.push_back(std::make_unique<Lane>(lane_config));
    port::watch_rounds(&lanes_.back()->counters().rounds);
  }
  return {};
}

Result<rte_ring*> Datapath::make_ring(const std::string& name, std::size_t element, unsigned count,
                                      unsigned flags) {
  rte_ring* ring = command::create_ring(name, element, count, flags);
  if (ring == nullptr) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("ring {} of {} elements of {} bytes could not be allocated: {}", name,
                            count, element, rte_strerror(rte_errno)));
  }
  owned_rings_.push_back(ring);
  return ring;
}

Result<void> Datapath::make_rings(const DatapathConfig& config, std::uint32_t exchange_mbufs) {
  auto exchange = port::make_exchange_pool(config.name, exchange_mbufs);
  if (!exchange) return tl::unexpected(exchange.error());
  shared_.exchange_pool = *exchange;
  shared_.control_bell = &control_bell_;

  struct Wanted {
    rte_ring** ring;
    std::string name;
    std::size_t element;
    unsigned count;
    unsigned flags;
  };
  lane_rings_.resize(config.lanes);
  std::vector<Wanted> wanted = {
      {&shared_.notices, "notices", sizeof(command::Notice), kNotices, RING_F_SC_DEQ},
      {&shared_.reports, "reports", sizeof(command::LaneReport), kReports, RING_F_SC_DEQ},
      {&shared_.neighbor_frames, "arp", sizeof(void*), kFrames, RING_F_SC_DEQ},
  };
  constexpr unsigned kOneToOne = RING_F_SP_ENQ | RING_F_SC_DEQ;
  for (std::uint8_t lane = 0; lane < config.lanes; ++lane) {
    bells_.push_back(std::make_unique<command::WakeBell>());
    command::LaneRings& rings = lane_rings_[lane];
    rings.bell = bells_.back().get();
    wanted.push_back(
        {&rings.requests, fmt::format("requests_{}", lane), sizeof(void*), kRequests, kOneToOne});
    wanted.push_back(
        {&rings.frames, fmt::format("frames_{}", lane), sizeof(void*), kFrames, kOneToOne});
    wanted.push_back(
        {&rings.ops, fmt::format("ops_{}", lane), sizeof(command::LaneOps), kOps, kOneToOne});
    wanted.push_back({&rings.transfers, fmt::format("transfers_{}", lane),
                      sizeof(command::LaneTransfer), kOps, kOneToOne});
  }
  shared_.command_bell = bells_.front().get();
  for (const Wanted& each : wanted) {
    auto ring = make_ring(fmt::format("{}_{}", config.name, each.name), each.element, each.count,
                          each.flags);
    if (!ring) return tl::unexpected(ring.error());
    *each.ring = *ring;
  }
  return {};
}

Datapath::~Datapath() {
  for (const auto& lane : lanes_) port::forget_rounds(&lane->counters().rounds);
  lanes_.clear();
  ControlFrame frame;
  if (shared_.neighbor_frames != nullptr) {
    while (receive_frame(frame)) {
    }
  }
  for (const command::LaneRings& rings : lane_rings_) {
    void* object = nullptr;
    while (rings.frames != nullptr && rte_ring_sc_dequeue(rings.frames, &object) == 0) {
      rte_pktmbuf_free(static_cast<rte_mbuf*>(object));
    }
  }
  // Ports must free their mbufs before the mempools are freed.
  ports_.clear();
  payloads_.clear();
  pools_.clear();
  for (rte_ring* ring : owned_rings_) rte_ring_free(ring);
  rte_mempool_free(shared_.exchange_pool);
}

bool Datapath::send(std::uint8_t lane, command::Request* request) noexcept {
  if (rte_ring_sp_enqueue(lane_rings_[lane].requests, request) != 0) return false;
  bells_[lane]->ring();
  return true;
}

bool Datapath::receive(command::Notice& notice) noexcept {
  return rte_ring_sc_dequeue_elem(shared_.notices, &notice, sizeof notice) == 0;
}

bool Datapath::post_ops(std::uint8_t lane, command::LaneOps ops) noexcept {
  if (rte_ring_sp_enqueue_elem(lane_rings_[lane].ops, &ops, sizeof ops) != 0) return false;
  bells_[lane]->ring();
  return true;
}

bool Datapath::next_report(command::LaneReport& report) noexcept {
  return rte_ring_sc_dequeue_elem(shared_.reports, &report, sizeof report) == 0;
}

bool Datapath::receive_frame(ControlFrame& frame) noexcept {
  void* object = nullptr;
  if (rte_ring_sc_dequeue(shared_.neighbor_frames, &object) != 0) return false;
  auto* mbuf = static_cast<rte_mbuf*>(object);
  frame.port = mbuf->port;
  frame.size = std::min<std::size_t>(rte_pktmbuf_data_len(mbuf), frame.bytes.size());
  std::memcpy(frame.bytes.data(), rte_pktmbuf_mtod(mbuf, const void*), frame.size);
  rte_pktmbuf_free(mbuf);
  return true;
}

std::size_t Datapath::frames_waiting() const noexcept {
  return rte_ring_count(shared_.neighbor_frames);
}

bool Datapath::send_frame(std::uint16_t port, std::span<const std::byte> frame) noexcept {
  rte_mbuf* mbuf = rte_pktmbuf_alloc(shared_.exchange_pool);
  if (mbuf == nullptr) return false;
  char* room = frame.size() > UINT16_MAX
                   ? nullptr
                   : rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(frame.size()));
  if (room != nullptr) {
    std::memcpy(room, frame.data(), frame.size());
    mbuf->port = port;
    if (rte_ring_sp_enqueue(lane_rings_[0].frames, mbuf) == 0) {
      bells_[0]->ring();
      return true;
    }
  }
  rte_pktmbuf_free(mbuf);
  return false;
}

std::vector<std::uint64_t> Datapath::lane_rounds() const {
  std::vector<std::uint64_t> rounds;
  for (const auto& lane : lanes_) rounds.push_back(read_counter(lane->counters().rounds));
  return rounds;
}

std::vector<std::string> Datapath::tend_links(TimeNs now) {
  const std::vector<std::uint64_t> rounds = lane_rounds();
  std::vector<std::string> happened;
  for (const auto& port : ports_) {
    if (std::string text = port->tend(now, rounds); !text.empty()) {
      happened.push_back(std::move(text));
    }
  }
  return happened;
}

void Datapath::set_sleeping(bool sleeping) noexcept {
  control_bell_.set_sleeping(sleeping);
  if (!sleeping) control_bell_.drain();
}

}  // namespace gradwire::lane
