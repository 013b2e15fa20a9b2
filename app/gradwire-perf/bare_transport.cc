// SPDX-License-Identifier: BSD-3-Clause
#include "bare_transport.h"

#include <fmt/format.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "base/window.h"
#include "bench_eal.h"
#include "collective/shapes/partition.h"
#include "port/driver_table.h"
#include "port/pools.h"
#include "port/port.h"
#include "reduce/backend.h"
#include "rendezvous.h"
#include "ring_op.h"

namespace gradwire::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kBurst = 32;
/// How many bytes one receive burst takes: like the lanes, as many as stay in the L1 cache.
constexpr std::uint32_t kBurstBytes = 32 * 1024;
/// How many rounds without progress pass between two readings of the clock.
constexpr std::uint32_t kIdleRounds = 1 << 12;
/// Larger outputs are written past the cache, like the lanes do.
constexpr std::uint64_t kStreamingBytes = 8u << 20;

/// An mbuf's own buffer has room for it while the mbuf points elsewhere.
rte_mbuf_ext_shared_info* shared_info_of(rte_mbuf* mbuf) {
  auto* const info = reinterpret_cast<rte_mbuf_ext_shared_info*>(rte_mbuf_to_baddr(mbuf));
  info->free_cb = [](void*, void*) {};
  info->fcb_opaque = nullptr;
  rte_mbuf_ext_refcnt_set(info, 1);
  return info;
}

class BareTransport final : public Transport {
 public:
  explicit BareTransport(const Options& options)
      : options_(options),
        timeout_(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(options.timeout_s))),
        backend_(reduce::make_cpu_backend(1)) {}
  ~BareTransport() override { end_port(); }

  Result<Buffers> open() override;
  Result<void> all_reduce(const std::byte* input, std::byte* output, std::uint64_t count,
                          DataType datatype, RedOp redop) override;
  Result<std::uint64_t> sum_over_all(std::uint64_t value) override {
    return sum_by_all_reduce(*this, scratch_, value);
  }
  Result<Counters> counters() override {
    return Counters{{kTxPackets, tx_packets_}, {kRxPackets, rx_packets_}};
  }
  Result<void> close() override;

 private:
  struct Op {
    const std::byte* input;
    std::byte* output;
    std::uint64_t bytes;
    DataType datatype;
    RedOp redop;
    collective::Partition partition;
    std::uint32_t lag;
    StreamCursor sending;
    StreamCursor receiving;
  };

  Result<void> start_port();
  Result<void> wait_for_link();
  void end_port() noexcept;
  bool send(Op& op) noexcept;
  bool receive(Op& op) noexcept;
  void take(Op& op, const rte_mbuf* mbuf) noexcept;

  const Options& options_;
  const Clock::duration timeout_;
  const std::unique_ptr<reduce::Backend> backend_;
  HugeMemory memory_;
  std::byte* scratch_ = nullptr;
  std::unique_ptr<port::LanePools> pools_;
  std::unique_ptr<port::Port> port_;
  std::uint32_t payload_bytes_ = 0;
  std::array<rte_mbuf*, kBurst> unsent_{};
  std::uint16_t unsent_count_ = 0;
  std::array<rte_mbuf*, kBurst> arrived_{};
  std::uint16_t arrived_next_ = 0;  ///< all before it have been handled
  std::uint16_t arrived_count_ = 0;
  std::uint16_t rx_burst_ = kBurst;
  std::uint64_t tx_packets_ = 0;
  std::uint64_t rx_packets_ = 0;
};

void BareTransport::end_port() noexcept {
  rte_pktmbuf_free_bulk(unsent_.data(), unsent_count_);
  rte_pktmbuf_free_bulk(arrived_.data() + arrived_next_, arrived_count_ - arrived_next_);
  unsent_count_ = arrived_next_ = arrived_count_ = 0;
  if (port_) port_->stop();
  port_.reset();
  pools_.reset();
}

Result<void> BareTransport::start_port() {
  const EmbeddedOptions& wanted = options_.embedded;
  const PortOption& option = wanted.ports.front();
  auto opened = port::Port::open(port_config(option, wanted));
  if (!opened) return tl::unexpected(opened.error());
  port_ = std::move(*opened);
  if (!port_->row().tx_copies) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("port {}: transport bare overwrites gradient memory that it has sent, "
                            "and the driver {} may still read it: use a memif port, which copies",
                            option.device, port_->row().driver));
  }
  const std::uint32_t room = port_->limits().frame_bytes / 64 * 64;
  payload_bytes_ = wanted.payload_bytes != 0 ? wanted.payload_bytes : room;
  if (payload_bytes_ > room) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--payload {}: port {} carries at most {}",
                                                         payload_bytes_, option.device, room));
  }
  rx_burst_ = static_cast<std::uint16_t>(
      std::clamp<std::uint32_t>(kBurstBytes / payload_bytes_, 1, kBurst));
  const port::PoolPlan plan{.socket = port_->socket(),
                            .buffer_bytes = port_->limits().buffer_bytes,
                            .packet_mbufs = 4u * kBurst + 2u * wanted.descriptors,
                            .control_mbufs = kBurst,
                            .name_prefix = "bare"};
  auto pools = port::LanePools::create(plan);
  if (!pools) return tl::unexpected(pools.error());
  pools_ = std::move(*pools);
  rte_mempool* const pool = pools_->packet();
  return port_->start({&pool, 1}, wanted.base_udp_port);
}

Result<void> BareTransport::wait_for_link() {
  const auto give_up = Clock::now() + timeout_;
  while (!port_->is_running() || !port_->link_up()) {
    const std::array<std::uint64_t, 1> no_lane{};
    static_cast<void>(port_->tend(Clock::now().time_since_epoch().count(), no_lane));
    if (Clock::now() >= give_up) {
      return fail(ErrorCode::kTimedOut, fmt::format("port {}: no link within {:.0f} s",
                                                    port_->config().device, options_.timeout_s));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

Result<Buffers> BareTransport::open() {
  const auto memory = memory_.allocate(bytes_with_scratch(options_));
  if (!memory) return tl::unexpected(memory.error());
  scratch_ = *memory;
  auto arguments = bench_eal_arguments(options_.eal_arguments);
  if (!arguments) return tl::unexpected(arguments.error());
  if (auto started = start_bench_eal(std::move(*arguments), 1); !started) {
    return tl::unexpected(started.error());
  }
  if (auto started = start_port(); !started) return tl::unexpected(started.error());
  const std::array<std::byte, 8> nothing{};
  if (const auto meeting = meet(options_, nothing); !meeting) {
    return tl::unexpected(meeting.error());
  }
  if (auto up = wait_for_link(); !up) return tl::unexpected(up.error());
  if (auto both = sum_over_all(0); !both) return tl::unexpected(both.error());
  leave_no_trace(options_);
  return behind_scratch(scratch_, options_);
}

Result<void> BareTransport::close() {
  if (auto both = sum_over_all(0); !both) return tl::unexpected(both.error());
  // One element goes from rank 0 to rank 1 and comes back: rank 0 has all. What rank 1 sent last
  // may be on its way, and goes with the link; so it waits for rank 0 to take the link down.
  const auto give_up = Clock::now() + std::chrono::seconds(1);
  while (options_.rank == 1 && port_->link_up() && Clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  end_port();
  return {};
}

bool BareTransport::send(Op& op) noexcept {
  while (unsent_count_ < kBurst && !op.sending.at_end()) {
    const StreamItem item = op.sending.item();
    if (item.hop > 0 && !op.receiving.is_past(item.tick - op.lag, item.hop - 1)) break;
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(pools_->packet());
    if (mbuf == nullptr) break;
    const collective::ChunkSpan span = op.partition.span_of(item.chunk);
    const std::uint32_t element = element_bytes(op.datatype);
    const auto bytes = static_cast<std::uint16_t>(span.elements * element);
    const std::byte* const from =
        (item.hop == 0 ? op.input : op.output) + span.first_element * element;
    rte_pktmbuf_attach_extbuf(mbuf, const_cast<std::byte*>(from), RTE_BAD_IOVA, bytes,
                              shared_info_of(mbuf));
    mbuf->data_len = bytes;
    mbuf->pkt_len = bytes;
    unsent_[unsent_count_++] = mbuf;
    op.sending.advance();
  }
  if (unsent_count_ == 0) return false;
  const std::uint16_t sent = port_->transmit({unsent_.data(), unsent_count_});
  std::copy(unsent_.begin() + sent, unsent_.begin() + unsent_count_, unsent_.begin());
  unsent_count_ = static_cast<std::uint16_t>(unsent_count_ - sent);
  tx_packets_ += sent;
  return sent > 0;
}

void BareTransport::take(Op& op, const rte_mbuf* mbuf) noexcept {
  const StreamItem& item = op.receiving.item();
  const collective::ChunkSpan span = op.partition.span_of(item.chunk);
  reduce::Entry entry;
  // With two ranks hop 0 is the last reducing hop, and hop 1 the only gathering one.
  entry.kind = item.hop == 0 ? reduce::Kind::kReduceToOutput : reduce::Kind::kStore;
  entry.datatype = op.datatype;
  entry.redop = op.redop;
  entry.finalize = true;
  // A sum is sent from the output next.
  entry.streaming = item.hop != 0 && op.bytes >= kStreamingBytes;
  entry.count = span.elements;
  entry.divisor = 2;
  entry.packet = rte_pktmbuf_mtod(mbuf, std::byte*);
  entry.inputs = &op.input;
  entry.outputs = &op.output;
  entry.offset_bytes = span.first_element * element_bytes(op.datatype);
  // The other end sent something unexpected, or the entry is wrong: a bug.
  if (mbuf->pkt_len != span.elements * element_bytes(op.datatype) || !backend_->run(entry)) {
    std::abort();
  }
  op.receiving.advance();
}

bool BareTransport::receive(Op& op) noexcept {
  if (arrived_next_ == arrived_count_) {
    arrived_next_ = 0;
    arrived_count_ = port_->receive({arrived_.data(), rx_burst_});
    rx_packets_ += arrived_count_;
  }
  const std::uint16_t first = arrived_next_;
  // After the last frame of this op the first of the next may come: it waits.
  while (arrived_next_ < arrived_count_ && !op.receiving.at_end()) {
    rte_mbuf* const mbuf = arrived_[arrived_next_++];
    take(op, mbuf);
    rte_pktmbuf_free(mbuf);
  }
  return arrived_next_ > first;
}

Result<void> BareTransport::all_reduce(const std::byte* input, std::byte* output,
                                       std::uint64_t count, DataType datatype, RedOp redop) {
  const collective::Partition partition(count, datatype, 2, payload_bytes_);
  const std::uint32_t wanted = options_.embedded.window_packets;
  const auto lag = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(partition.chunks_per_segment(), 1,
                                wanted != 0 ? wanted : window_packets_for(payload_bytes_)));
  Op op{input, output, count * element_bytes(datatype), datatype, redop, partition, lag, {}, {}};
  op.sending = StreamCursor(op.partition, options_.rank, 2, lag);
  op.receiving = StreamCursor(op.partition, static_cast<std::uint16_t>(1 - options_.rank), 2, lag);
  std::uint32_t idle = 0;
  Clock::time_point give_up{};
  while (!op.sending.at_end() || !op.receiving.at_end() || unsent_count_ > 0) {
    const bool sent = send(op);
    const bool received = !op.receiving.at_end() && receive(op);
    if (sent || received) {
      idle = 0;
    } else if (++idle % kIdleRounds == 0) {
      const auto now = Clock::now();
      if (idle == kIdleRounds) give_up = now + timeout_;
      if (now >= give_up) {
        return fail(ErrorCode::kTimedOut, fmt::format("rank {} sent nothing for {:.0f} s",
                                                      1 - options_.rank, options_.timeout_s));
      }
    }
  }
  return {};
}

}  // namespace

std::unique_ptr<Transport> make_bare_transport(const Options& options) {
  return std::make_unique<BareTransport>(options);
}

}  // namespace gradwire::perf
