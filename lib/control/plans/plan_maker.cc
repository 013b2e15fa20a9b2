// SPDX-License-Identifier: BSD-3-Clause
#include "control/plans/plan_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "control/lanes/gpu_lanes.h"
#include "ipc/control_messages.h"
#include "reduce/backend.h"
#include "reduce/gpu/gpu_backend.h"

namespace gradwire::control {
namespace {

/// How many completions a shard's backend can hold; the shard submits no more at once.
constexpr std::size_t kBackendEntries = 128;
constexpr std::uint8_t kEct0 = 2;

}  // namespace

Result<wire::FrameTemplate> PlanMaker::frames_to(const NeighborPath& neighbor,
                                                 std::uint8_t lane) const {
  const port::Port& port = *datapath_.ports()[neighbor.port];
  wire::FrameAddresses addresses;
  addresses.source_mac = port.mac();
  addresses.destination_mac = *neighbor.remote_mac;
  addresses.vlan_id = port.config().vlan_id;
  addresses.source_ip = neighbor.local_ip;
  addresses.destination_ip = neighbor.remote_ip;
  addresses.source_port = static_cast<std::uint16_t>(settings_.base_udp_port + lane);
  addresses.destination_port = static_cast<std::uint16_t>(neighbor.remote_base_udp_port + lane);
  addresses.dscp = settings_.dscp;
  addresses.ecn = settings_.ecn ? kEct0 : 0;
  const auto made = wire::FrameTemplate::make(addresses);
  if (!made) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{} cannot reach rank {} at {}: both addresses must be IPv4, or both IPv6",
                    wire::to_string(neighbor.local_ip), neighbor.rank,
                    wire::to_string(neighbor.remote_ip)));
  }
  return *made;
}

collective::SourcePorts PlanMaker::sources_to(const NeighborPath& neighbor) const noexcept {
  const std::uint16_t there = neighbor.remote_source_ports;
  const bool any = there == ipc::RankInfo::kAnySourcePort;
  // A daemon that may not change its ports says nothing of them, and looks for nothing.
  return {any ? settings_.source_ports : std::uint8_t{1}, there != 0 && settings_.source_ports > 1};
}

Result<command::ShardPlacement> PlanMaker::place(const PlanRequest& request,
                                                 const ProcessLayout* layout, std::uint8_t lane) {
  collective::ShardConfig config = settings_.shard;
  config.key = request.key;
  config.rank = request.rank;
  config.nranks = request.nranks;
  config.folding_ranks = request.folding_ranks;
  config.member_count = request.member_count;
  config.layout = layout;
  config.lane = lane;
  config.lanes = request.lanes;
  config.payload_bytes = request.payload_bytes;
  config.table_digest = request.table_digest;
  config.incarnation = request.incarnation;
  config.packet_pool = datapath_.pools(lane).packet();
  config.control_pool = datapath_.pools(lane).control();
  if (const port::PayloadPool* payloads = datapath_.payloads(lane); payloads != nullptr) {
    config.payload_pool = payloads->mempool();
  }
  config.timeouts.formation_ns = request.formation_ns;
  config.direct.op_bytes = request.direct_bytes;
  config.direct.two_step_bytes = request.two_step_bytes;
  config.direct.owners = request.owners;
  config.direct.gathered_bytes = request.gathered_bytes;
  config.direct.gathered_ranks = request.gathered_ranks;
  config.transfers.pairs_max = request.pairs_max;
  config.transfers.streams = request.streams;
  config.tiles.used = request.tiles;
  config.tiles.for_formats_alone = request.tiles_for_formats_alone;
  config.tiles.shares = request.tile_shares;
  config.tiles.costs = request.tile_costs;
  if (request.keys != nullptr) config.seals = request.keys->make_seals(lane);

  command::ShardPlacement placement;
  if (request.nranks > 1) {
    if (request.downstream.empty() || request.upstream.empty() || lane >= request.tokens.size()) {
      return fail(ErrorCode::kInternal, "a group of several ranks was planned without a neighbor");
    }
    auto down = address_of(request.downstream, request.tokens[lane].downstream, lane);
    if (!down) return tl::unexpected(down.error());
    auto up = address_of(request.upstream, request.tokens[lane].upstream, lane);
    if (!up) return tl::unexpected(up.error());
    placement.down_port = down->port;
    // With two ranks, one link carries both directions, and everything is sent downstream.
    const bool one_link = request.nranks == 2 || request.folds_only();
    placement.up_port = one_link ? down->port : up->port;
    config.downstream = std::move(*down);
    config.upstream = std::move(*up);
    const NeighborPath& upstream = path_of(request.upstream, lane);
    config.received_mbufs_are_exclusive = true;
    for (const auto* paths : {&request.downstream, &request.upstream}) {
      // Data comes from upstream alone, which with two ranks is the same rank.
      for (const NeighborPath& path : *paths) {
        if (path.rank != upstream.rank) break;
        config.received_mbufs_are_exclusive &= datapath_.ports()[path.port]->row().rx_exclusive;
      }
    }
  }
  if (request.transfers_alone) settle_transfers_alone(config);
  if (auto added = add_peers(config, request, lane); !added) return tl::unexpected(added.error());
  // What is encrypted is opened where it lies, whoever sent it and by whichever port it came.
  if (request.keys != nullptr) {
    for (const auto& each : datapath_.ports()) {
      config.received_mbufs_are_exclusive &= each->row().rx_exclusive;
    }
  }
  // Nothing is reduced where there are transfers alone.
  auto backend = request.transfers_alone ? reduce::make_cpu_backend(1) : make_backend(lane);
  if (backend == nullptr) {
    return fail(ErrorCode::kInternal, "the CPU backend has no kernels for this CPU");
  }
  if (gpu_ != nullptr && config.direct.op_bytes != 0 && config.nranks > 1) {
    auto memory =
        gpu_->make_shared_memory(collective::direct_memory_bytes(config, backend->runs_at_once()));
    if (!memory) return tl::unexpected(memory.error());
    config.direct.memory = std::move(*memory);
  }
  try {
    auto shard = collective::Shard::create(config, std::move(backend));
    if (!shard) return tl::unexpected(shard.error());
    placement.shard = std::move(*shard);
  } catch (const std::bad_alloc&) {
    return fail(
        ErrorCode::kResourceExhausted,
        fmt::format("there is no memory for lane {} of a group of {} ranks, {} KiB of it "
                    "for direct ops and those in two steps: lower rank 0's transport.direct_kib, "
                    "which is {}, or its transport.two_step_kib",
                    lane, request.nranks,
                    collective::direct_memory_bytes(config, gpu_ == nullptr) >> 10,
                    request.direct_bytes >> 10));
  }
  return placement;
}

Result<collective::PeerAddress> PlanMaker::address_of(std::span<const NeighborPath> paths,
                                                      const collective::LinkTokens& tokens,
                                                      std::uint8_t lane) const {
  const NeighborPath& path = path_of(paths, lane);
  const auto frame = frames_to(path, lane);
  if (!frame) return tl::unexpected(frame.error());
  return collective::PeerAddress{path.incarnation, tokens,    path.remote_ip,
                                 *frame,           path.port, others(paths, lane, *frame),
                                 sources_to(path)};
}

std::vector<collective::LinkPath> PlanMaker::others(std::span<const NeighborPath> paths,
                                                    std::uint8_t lane,
                                                    const wire::FrameTemplate& first) const {
  // Frames of other paths may begin with a longer header, by a VLAN tag or an IPv6 address: before
  // a payload that is sent again there is an mbuf's headroom, but beside GPU memory there is not.
  static_assert(RTE_PKTMBUF_HEADROOM >= wire::kMaxFrameHeaderBytes);
  const bool any_length = datapath_.payloads(lane) == nullptr;
  std::vector<collective::LinkPath> others;
  const std::size_t begun_with = first_path(paths, lane);
  for (std::size_t i = 1; i < paths.size(); ++i) {
    const NeighborPath& path = paths[(begun_with + i) % paths.size()];
    const auto frame = frames_to(path, lane);
    if (frame && (any_length || frame->bytes() == first.bytes())) {
      others.push_back({path.remote_ip, *frame, path.port});
    }
  }
  return others;
}

/// The ring's links know of their neighbors all that is said of others here.
Result<void> PlanMaker::add_peers(collective::ShardConfig& config, const PlanRequest& request,
                                  std::uint8_t lane) const {
  if (!collective::needs_all_ranks(config)) return {};
  config.peers.assign(config.all_ranks(), {});
  for (const PeerPaths& peer : request.peers) {
    auto address = address_of(peer.paths, peer.tokens[lane], lane);
    if (!address) return tl::unexpected(address.error());
    config.peers[peer.rank] = std::move(*address);
  }
  return {};
}

std::unique_ptr<reduce::Backend> PlanMaker::make_backend(std::uint8_t lane) const {
  if (gpu_ != nullptr) return std::make_unique<reduce::GpuBackend>(gpu_->queue(lane));
  return reduce::make_cpu_backend(kBackendEntries);
}

void add_to(std::vector<ReduceTotal>& totals, const char* backend, const char* path,
            const reduce::BackendCounters& counters) {
  auto found = std::find_if(totals.begin(), totals.end(), [&](const ReduceTotal& total) {
    return total.backend == backend && total.path == path;
  });
  if (found == totals.end()) found = totals.insert(found, ReduceTotal{backend, path, {}});
  found->counters.chunks_reduced += counters.chunks_reduced;
  found->counters.chunks_moved += counters.chunks_moved;
  found->counters.bytes += counters.bytes;
  found->counters.batches += counters.batches;
}

Result<command::GroupPlan*> PlanMaker::create(std::uint64_t handle, const PlanRequest& request) {
  if (request.lanes < 1 || request.lanes > datapath_.lanes()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the group needs {} lanes, but this daemon has {}", request.lanes,
                            datapath_.lanes()));
  }
  if (request.security.mode != security::Mode::kOff && request.keys == nullptr) {
    return fail(ErrorCode::kInternal, "a group whose packets are to be sealed has no keys");
  }
  auto plan = std::make_unique<command::GroupPlan>();
  plan->group_handle = handle;
  plan->layout = request.layout;
  plan->why_no_transfers = request.why_no_transfers;
  plan->why_no_formats = request.why_no_formats;
  for (std::uint8_t lane = 0; lane < request.lanes; ++lane) {
    auto placement = place(request, plan->layout ? &*plan->layout : nullptr, lane);
    if (!placement) return tl::unexpected(placement.error());
    plan->shards.push_back(std::move(*placement));
  }
  return plan.release();
}

void PlanMaker::destroy(command::GroupPlan* plan) noexcept {
  const std::unique_ptr<command::GroupPlan> owned(plan);
  if (owned == nullptr) return;
  for (const command::ShardPlacement& placement : owned->shards) {
    if (placement.shard == nullptr) continue;
    const collective::ShardStatus status = placement.shard->status(0);
    add_to(totals_, status.backend_name, status.backend_path, status.backend);
    shard_totals_[placement.shard->config().lane] += status.counters;
  }
}

}  // namespace gradwire::control
