// SPDX-License-Identifier: BSD-3-Clause
#include "embedded_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "base/profile.h"
#include "bench_eal.h"
#include "client/gradwire.h"
#include "embedded/communicator.h"
#include "port/xdp/xdp_steering.h"
#include "rendezvous.h"

namespace gradwire::perf {
namespace {

static_assert(sizeof(ipc::RankInfo) == GW_RANK_INFO_BYTES);

/// Records XDP programs, so that those of a killed bench can be removed; see port/xdp_steering.h.
constexpr const char* kXdpRecord = "/run/gradwire-perf.xdp";

class EmbeddedTransport final : public Transport {
 public:
  explicit EmbeddedTransport(const Options& options)
      : options_(options), timeout_ns_(static_cast<TimeNs>(options.timeout_s * 1e9)) {}

  Result<Buffers> open() override;
  Result<void> all_reduce(const std::byte* input, std::byte* output, std::uint64_t count,
                          DataType datatype, RedOp redop) override {
    return communicator_->all_reduce({input, output, count, datatype, redop, 0}, timeout_ns_);
  }
  Result<std::uint64_t> sum_over_all(std::uint64_t value) override {
    return sum_by_all_reduce(*this, scratch_, value);
  }
  Result<Counters> counters() override;
  Result<void> close() override;

 private:
  Result<void> start();
  Result<void> join();

  const Options& options_;
  const TimeNs timeout_ns_;
  HugeMemory memory_;
  std::byte* scratch_ = nullptr;
  std::optional<port::XdpSteering> steering_;  ///< outlives the ports
  std::unique_ptr<embedded::Communicator> communicator_;
};

Result<void> EmbeddedTransport::start() {
  const EmbeddedOptions& wanted = options_.embedded;
  auto arguments = bench_eal_arguments(options_.eal_arguments);
  if (!arguments) return tl::unexpected(arguments.error());
  std::vector<port::XdpPort> steered;
  for (const PortOption& port : wanted.ports) {
    const port::XdpTraffic traffic{*wire::parse_ip(port.ip), wanted.base_udp_port, wanted.lanes, 0};
    steered.push_back({port.device, traffic, true});
  }
  auto steering = port::XdpSteering::prepare(steered, *arguments, kXdpRecord);
  if (!steering) return tl::unexpected(steering.error());
  steering_.emplace(std::move(*steering));
  if (auto started = start_bench_eal(std::move(*arguments), wanted.lanes); !started) {
    return started;
  }

  embedded::Config config;
  for (const PortOption& port : wanted.ports) {
    port::PortConfig added = port_config(port, wanted);
    added.rate_bps = static_cast<std::uint64_t>(wanted.port_rate_gbps * 1e9);
    added.faults = wanted.faults;
    config.datapath.ports.push_back(added);
  }
  if (!wanted.tx_trace.empty()) config.datapath.tx_trace_bursts = std::size_t{1} << 20;
  config.datapath.lanes = wanted.lanes;
  config.datapath.base_udp_port = wanted.base_udp_port;
  config.datapath.max_payload_bytes = wanted.payload_bytes;
  config.datapath.polling.mode =
      wanted.busy ? lane::PollingMode::kBusy : lane::PollingMode::kAdaptive;
  config.shard.window_packets = wanted.window_packets;
  config.shard.transit_packets = wanted.transit_packets;
  config.shard.eager_packets = wanted.eager_packets;
  config.shard.payload_crc = config.datapath.payload_crc = wanted.payload_crc;
  config.shard.exchange_bytes = wanted.exchange_bytes;
  config.shard.direct.op_bytes = wanted.direct_bytes;
  config.shard.sender.rate_bps = static_cast<std::uint64_t>(wanted.rate_gbps * 1e9);
  // A rank that checks its results does not drive its lane for seconds: it is late, but not dead.
  config.shard.timeouts.silence_ns = timeout_ns_;
  if (!options_.key_file.empty()) {
    auto keys = control::read_cluster_keys({options_.key_file, ""});
    if (!keys) return tl::unexpected(keys.error());
    config.keys.cluster = std::move(*keys);
    config.keys.mode = control::parse_mode(options_.security);
  }
  auto made = embedded::Communicator::create(config);
  if (!made) return tl::unexpected(made.error());
  communicator_ = std::move(*made);
  return steering_->write_record();
}

Result<void> EmbeddedTransport::join() {
  std::byte info[GW_RANK_INFO_BYTES];
  std::memcpy(info, &communicator_->info(), sizeof info);
  const auto meeting = meet(options_, info);
  if (!meeting) return tl::unexpected(meeting.error());
  std::vector<ipc::RankInfo> table(options_.nranks);
  std::memcpy(table.data(), meeting->rank_infos.data(), meeting->rank_infos.size());
  auto formed =
      communicator_->form({meeting->group_id, options_.epoch}, options_.rank, table, timeout_ns_);
  leave(options_, formed);
  return formed;
}

Result<Buffers> EmbeddedTransport::open() {
  const auto memory = memory_.allocate(bytes_with_scratch(options_));
  if (!memory) return tl::unexpected(memory.error());
  scratch_ = *memory;
  if (auto started = start(); !started) return tl::unexpected(started.error());
  if (auto joined = join(); !joined) return tl::unexpected(joined.error());
  return behind_scratch(scratch_, options_);
}

Result<void> EmbeddedTransport::close() {
  if (auto left = communicator_->leave(timeout_ns_); !left) return left;
  const std::string& path = options_.embedded.tx_trace;
  if (path.empty()) return {};
  std::ofstream file(path);
  for (std::uint16_t port = 0; port < options_.embedded.ports.size(); ++port) {
    for (const lane::TxTrace::Burst& burst :
         communicator_->datapath().lane(0).tx_trace(port).bursts()) {
      file << port << ',' << burst.at << ',' << burst.bytes << '\n';
    }
  }
  file.flush();
  if (!file) return fail(ErrorCode::kSystem, fmt::format("{}: cannot be written", path));
  return {};
}

Result<Counters> EmbeddedTransport::counters() {
  Counters counters;
  std::uint64_t tx_packets = 0;
  std::uint64_t rx_packets = 0;
  std::uint64_t rounds = 0;
  std::uint64_t busy_rounds = 0;
  for (std::uint8_t i = 0; i < communicator_->datapath().lanes(); ++i) {
    const lane::LaneCounters& lane = communicator_->datapath().lane(i).counters();
    tx_packets += read_counter(lane.tx_packets);
    rx_packets += read_counter(lane.rx_packets);
    rounds += read_counter(lane.rounds);
    busy_rounds += read_counter(lane.busy_rounds);
  }
  const collective::ShardCounters shards = communicator_->counters();
  counters = {{kTxPackets, tx_packets},
              {kRxPackets, rx_packets},
              {kRetransmissions, shards.retransmissions},
              {"data_packets", shards.data_packets_sent},
              {"acknowledgements", shards.acks_sent},
              {"probes", shards.probes},
              {"spills", shards.spills},
              {"early_packets", shards.early_packets},
              {"copies", shards.copies},
              {"rounds", rounds},
              {"busy_rounds", busy_rounds}};
  if (profile::kEnabled) {  // of this thread: lane 0
    const profile::Account& account = profile::account();
    for (std::size_t i = 0; i < profile::kStages; ++i) {
      counters.push_back({fmt::format("cycles_{}", profile::kStageNames[i]), account.cycles[i]});
    }
  }
  return counters;
}

}  // namespace

std::unique_ptr<Transport> make_embedded_transport(const Options& options) {
  return std::make_unique<EmbeddedTransport>(options);
}

}  // namespace gradwire::perf
