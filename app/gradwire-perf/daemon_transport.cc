// SPDX-License-Identifier: BSD-3-Clause
#include "daemon_transport.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/gradwire.h"
#include "cpu_time.h"
#include "pattern.h"
#include "rendezvous.h"
#include "status/daemon_status.h"

namespace gradwire::perf {
namespace {

using nlohmann::json;

template <auto kFree>
struct Release {
  template <class Handle>
  void operator()(Handle* handle) const noexcept {
    static_cast<void>(kFree(handle));
  }
};
using ClientPtr = std::unique_ptr<gw_client, Release<gw_close>>;
using GroupPtr = std::unique_ptr<gw_group, Release<gw_group_free>>;
using MemoryPtr = std::unique_ptr<gw_memory, Release<gw_memory_free>>;
using WorkPtr = std::unique_ptr<gw_work, Release<gw_work_free>>;

Result<void> succeed(gw_status status, const char* what) {
  if (status == GW_OK) return {};
  return fail(static_cast<ErrorCode>(status), fmt::format("{}: {}", what, gw_last_error()));
}

/// Members in the order in which they must be destroyed: the last first.
gw_security security_of(const std::string& name) noexcept {
  if (name.empty()) return GW_SECURITY_DEFAULT;
  if (name == "off") return GW_SECURITY_OFF;
  return name == "encrypt" ? GW_SECURITY_ENCRYPT : GW_SECURITY_AUTHENTICATE;
}

class DaemonTransport final : public Transport {
 public:
  explicit DaemonTransport(const Options& options)
      : options_(options), timeout_ms_(static_cast<std::uint32_t>(options.timeout_s * 1000)) {}

  Result<Buffers> open() override;
  Result<void> all_reduce(const std::byte* input, std::byte* output, std::uint64_t count,
                          DataType datatype, RedOp redop) override {
    CollectiveCall call;
    call.count = count;
    call.datatype = datatype;
    call.redop = redop;
    return run(call, input, output);
  }
  Result<void> run(const CollectiveCall& call, const std::byte* input, std::byte* output) override;
  Result<std::uint64_t> sum_over_all(std::uint64_t value) override {
    return sum_by_all_reduce(*this, scratch_, value);
  }
  Result<Counters> counters() override;
  Result<void> close() override;

 private:
  Result<void> join();
  gw_status post(const CollectiveCall& call, const std::byte* input, std::byte* output,
                 gw_work** work, bool more = false);
  [[nodiscard]] const char* socket_path() const {
    return options_.socket.empty() ? nullptr : options_.socket.c_str();
  }

  const Options& options_;
  const std::uint32_t timeout_ms_;
  ClientPtr client_;
  GroupPtr group_;
  MemoryPtr memory_;
  std::byte* scratch_ = nullptr;
};

Result<Buffers> DaemonTransport::open() {
  gw_client* client = nullptr;
  if (auto ok = succeed(gw_open(socket_path(), nullptr, &client), "open"); !ok) {
    return tl::unexpected(ok.error());
  }
  client_.reset(client);

  gw_memory* memory = nullptr;
  if (auto ok = succeed(gw_memory_alloc(client, bytes_with_scratch(options_), &memory), "allocate");
      !ok) {
    return tl::unexpected(ok.error());
  }
  memory_.reset(memory);
  scratch_ = static_cast<std::byte*>(gw_memory_address(memory));
  if (auto joined = join(); !joined) return tl::unexpected(joined.error());
  return behind_scratch(scratch_, options_);
}

Result<void> DaemonTransport::join() {
  std::byte info[GW_RANK_INFO_BYTES];
  gw_describe_options wanted{};
  wanted.struct_bytes = sizeof(wanted);
  wanted.security = security_of(options_.security);
  auto described =
      succeed(gw_client_describe_for(client_.get(), &wanted, info, sizeof(info)), "describe");
  if (!described) return described;
  const auto meeting = meet(options_, info);
  if (!meeting) return tl::unexpected(meeting.error());
  gw_group_config config{};
  config.struct_bytes = sizeof(config);
  config.epoch = options_.epoch;
  config.group_id = meeting->group_id;
  config.rank = options_.rank;
  config.nranks = static_cast<std::uint16_t>(options_.nranks + options_.folding_ranks);
  config.folding_ranks = options_.folding_ranks;
  config.member = options_.member;
  config.member_count = options_.members;
  config.timeout_ms = timeout_ms_;
  config.rank_infos = meeting->rank_infos.data();
  config.rank_infos_bytes = meeting->rank_infos.size();
  config.security = security_of(options_.security);
  gw_group* group = nullptr;
  const auto joined = succeed(gw_group_join(client_.get(), &config, &group), "join");
  leave(options_, joined);
  group_.reset(group);
  return joined;
}

gw_status DaemonTransport::post(const CollectiveCall& call, const std::byte* input,
                                std::byte* output, gw_work** work, bool more) {
  gw_call known{};
  known.struct_bytes = sizeof known;
  known.collective = static_cast<gw_collective>(call.collective);
  if (call.collective != Collective::kBarrier) {
    known.input = input;
    known.output = output;
  }
  known.count = call.count;
  known.datatype = static_cast<gw_datatype>(call.datatype);
  known.redop = static_cast<gw_redop>(call.redop);
  known.root = call.root;
  known.wire = static_cast<gw_wire>(call.wire);
  if (call.redop == RedOp::kPremulSum) known.factor = factor_of(place_of(options_).process);
  return (more ? gw_post_more : gw_post)(group_.get(), &known, work);
}

Result<void> DaemonTransport::run(const CollectiveCall& call, const std::byte* input,
                                  std::byte* output) {
  gw_work* work = nullptr;
  const char* const name = name_of(call.collective).data();  // of a literal: it ends with NUL
  WorkPtr receiving;
  if (has_partner(call.collective)) {
    const ProcessPlace place = place_of(options_);
    CollectiveCall recv = call;
    recv.collective = Collective::kRecv;
    recv.root = (place.process + place.processes - 1) % place.processes;
    if (auto ok = succeed(post(recv, nullptr, output, &work, true), "recv"); !ok) return ok;
    receiving.reset(work);
    output = nullptr;
  }
  if (auto ok = succeed(post(call, input, output, &work), name); !ok) return ok;
  const WorkPtr owner(work);
  if (auto ok = succeed(gw_wait(work, timeout_ms_), name); !ok || receiving == nullptr) return ok;
  return succeed(gw_wait(receiving.get(), timeout_ms_), "recv");
}

Result<Counters> DaemonTransport::counters() {
  std::string text(1 << 16, '\0');
  std::size_t needed = 0;
  auto status = gw_daemon_status(socket_path(), timeout_ms_, text.data(), text.size(), &needed);
  if (status == GW_RESOURCE_EXHAUSTED) {
    text.resize(2 * needed);  // twice as long, because it may have grown by the next call
    status = gw_daemon_status(socket_path(), timeout_ms_, text.data(), text.size(), &needed);
  }
  if (auto ok = succeed(status, "status"); !ok) return tl::unexpected(ok.error());
  const auto parsed = json::parse(text.c_str(), nullptr, false).get<status::DaemonStatus>();
  if (parsed.daemon.pid == 0) {
    return fail(ErrorCode::kMismatch,
                "the daemon's status is not the JSON that this bench knows: use the gradwire-perf "
                "of the daemon's release");
  }
  status::LaneCounters sum;
  for (const status::Lane& lane : parsed.lanes) {
    sum.tx_packets += lane.counters.tx_packets;
    sum.rx_packets += lane.counters.rx_packets;
    sum.tx_bytes += lane.counters.tx_bytes;
    sum.rx_bytes += lane.counters.rx_bytes;
    sum.tx_refused += lane.counters.tx_refused;
    sum.sleeps += lane.counters.sleeps;
    sum.sleep_ns += lane.counters.sleep_ns;
    sum.rounds += lane.counters.rounds;
    sum.busy_rounds += lane.counters.busy_rounds;
  }
  std::uint64_t retransmissions = 0;
  for (const status::Group& group : parsed.groups) retransmissions += group.retransmissions;
  Counters counters = {{kTxPackets, sum.tx_packets},     {kRxPackets, sum.rx_packets},
                       {"tx_bytes", sum.tx_bytes},       {"rx_bytes", sum.rx_bytes},
                       {"tx_refused", sum.tx_refused},   {"sleeps", sum.sleeps},
                       {"sleep_ns", sum.sleep_ns},       {"rounds", sum.rounds},
                       {"busy_rounds", sum.busy_rounds}, {kRetransmissions, retransmissions}};
  if (const auto cpu_ns = process_cpu_ns(static_cast<pid_t>(parsed.daemon.pid))) {
    counters.push_back({kOtherCpuNs, *cpu_ns});
  }
  return counters;
}

Result<void> DaemonTransport::close() {
  auto left = succeed(gw_group_leave(group_.get()), "leave");
  group_.reset();
  return left;
}

}  // namespace

std::unique_ptr<Transport> make_daemon_transport(const Options& options) {
  return std::make_unique<DaemonTransport>(options);
}

}  // namespace gradwire::perf
