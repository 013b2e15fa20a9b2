// SPDX-License-Identifier: BSD-3-Clause
#include "tcp/tcp_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "exchange_op.h"
#include "neighbors.h"
#include "pages.h"
#include "rendezvous.h"
#include "ring_op.h"
#include "tcp/stream_mover.h"
#include "tcp/tcp_socket.h"

namespace gradwire::perf {
namespace {

/// Two ranks use one connection for both directions, so that acknowledgements ride on data.
class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const Options& options)
      : options_(options),
        shape_{static_cast<std::uint32_t>(options.tcp.chunk_bytes), options.tcp.lag} {}

  Result<Buffers> open() override;
  Result<void> all_reduce(const std::byte* input, std::byte* output, std::uint64_t count,
                          DataType datatype, RedOp redop) override;
  Result<std::uint64_t> sum_over_all(std::uint64_t value) override;
  Result<Counters> counters() override;
  Result<void> close() override;
  std::string note() const override { return downstream_.tls_text(); }

 private:
  Result<void> connect(Clock::time_point deadline);
  Result<Buffers> allocate();
  Result<void> secure(Clock::time_point deadline);
  /// Once connected.
  Result<void> make_mover();

  [[nodiscard]] TcpSocket& downstream() noexcept { return downstream_; }
  [[nodiscard]] TcpSocket& upstream() noexcept {
    return options_.nranks == 2 ? downstream_ : upstream_;
  }

  const Options& options_;
  const RingShape shape_;
  Folder folder_;
  Pages pages_;
  std::span<std::byte> staging_;   ///< of one chunk
  std::span<std::byte> gathered_;  ///< of an exchange: all ranks' inputs
  TcpSocket downstream_;
  TcpSocket upstream_;                  ///< none with two ranks
  std::unique_ptr<StreamMover> mover_;  ///< refers to the sockets and the pages
};

Result<Buffers> TcpTransport::open() {
  auto buffers = allocate();
  if (!buffers || options_.nranks == 1) return buffers;
  if (auto connected = connect(deadline_of(options_)); !connected) {
    return tl::unexpected(connected.error());
  }
  return buffers;
}

Result<Buffers> TcpTransport::allocate() {
  const std::size_t room = std::max(whole_huge_pages(largest_bytes(options_)), kHugePageBytes);
  // sum_over_all() is exchanged too, however small it is.
  const std::size_t gathered_bytes =
      2 * options_.tcp.exchange_bytes + std::size_t{options_.nranks} * sizeof(std::uint64_t);
  const std::size_t staged_bytes = whole_huge_pages(shape_.chunk_bytes + gathered_bytes);
  const auto start = pages_.allocate(staged_bytes + (options_.in_place ? room : 2 * room));
  if (!start) return tl::unexpected(start.error());
  staging_ = {*start, shape_.chunk_bytes};
  gathered_ = {*start + shape_.chunk_bytes, gathered_bytes};
  Buffers buffers;
  buffers.input = *start + staged_bytes;
  buffers.output = options_.in_place ? buffers.input : buffers.input + room;
  return buffers;
}

Result<void> TcpTransport::connect(Clock::time_point deadline) {
  // io_uring has a zero-copy send of its own.
  const bool zerocopy = options_.tcp.zerocopy && options_.tcp.io == TcpIo::kPoll;
  const TcpTuning tuning{options_.tcp.buffer_bytes, zerocopy};
  auto neighbors = connect_neighbors(options_, options_.tcp.address, tuning, deadline);
  if (!neighbors) return tl::unexpected(neighbors.error());
  downstream_ = std::move(neighbors->downstream);
  upstream_ = std::move(neighbors->upstream);
  if (options_.tcp.tls) {
    if (auto secured = secure(deadline); !secured) return secured;
  }
  if (auto made = make_mover(); !made) return made;
  // Once a sum over all is done, everyone has read everyone's file.
  auto all_here = sum_over_all(0);
  leave_no_trace(options_);
  if (!all_here) return tl::unexpected(all_here.error());
  return {};
}

/// Round the ring from its last connection on, since an end that waits for the other answers
/// nobody: rank 0 first serves the rank before, all others first greet the next.
Result<void> TcpTransport::secure(Clock::time_point deadline) {
  const auto with = [&](TcpSocket& socket, TlsEnd end, std::uint32_t rank) -> Result<void> {
    auto secured = socket.secure(end, deadline);
    if (secured) return {};
    return fail(secured.error().code, fmt::format("rank {}: {} (do all ranks have --tls?)", rank,
                                                  secured.error().message));
  };
  if (options_.nranks == 2) {
    return with(downstream_, options_.rank == 0 ? TlsEnd::kClient : TlsEnd::kServer,
                next_rank(options_));
  }
  for (const bool serves : {options_.rank == 0, options_.rank != 0}) {
    auto secured = serves ? with(upstream_, TlsEnd::kServer, previous_rank(options_))
                          : with(downstream_, TlsEnd::kClient, next_rank(options_));
    if (!secured) return secured;
  }
  return {};
}

Result<void> TcpTransport::all_reduce(const std::byte* input, std::byte* output,
                                      std::uint64_t count, DataType datatype, RedOp redop) {
  const OpSpec spec{options_.rank, options_.nranks, count, datatype, redop, input, output};
  if (options_.nranks == 1) {
    if (input != output) std::memcpy(output, input, spec.bytes());
    return {};
  }
  if (is_exchanged(spec, options_.tcp.exchange_bytes)) {
    ExchangeOp op(spec, gathered_, folder_);
    return mover_->run(op);
  }
  RingOp op(spec, shape_, staging_, folder_);
  return mover_->run(op);
}

Result<void> TcpTransport::make_mover() {
  const StreamEnds ends{&downstream(), &upstream(), next_rank(options_), previous_rank(options_)};
  const WaitOptions wait{options_.tcp.busy, options_.timeout_s};
  if (options_.tcp.io == TcpIo::kPoll) {
    mover_ = make_poll_mover(ends, wait);
    return {};
  }
  auto made = make_uring_mover(ends, wait,
                               {.multishot = options_.tcp.io == TcpIo::kUringMultishot,
                                .zerocopy = options_.tcp.zerocopy,
                                .memory = pages_.all()});
  if (!made) return tl::unexpected(made.error());
  mover_ = std::move(*made);
  return {};
}

Result<std::uint64_t> TcpTransport::sum_over_all(std::uint64_t value) {
  std::uint64_t sum = value;
  if (options_.nranks == 1) return sum;
  const OpSpec spec{options_.rank,
                    options_.nranks,
                    1,
                    DataType::kInt64,
                    RedOp::kSum,
                    reinterpret_cast<const std::byte*>(&value),
                    reinterpret_cast<std::byte*>(&sum)};
  ExchangeOp op(spec, gathered_, folder_);
  if (auto ran = mover_->run(op); !ran) return tl::unexpected(ran.error());
  return sum;
}

Result<Counters> TcpTransport::counters() {
  TcpCounts counts = downstream_.counts();
  const TcpCounts up = upstream_.counts();
  return Counters{{kTxPackets, counts.tx_packets + up.tx_packets},
                  {kRxPackets, counts.rx_packets + up.rx_packets},
                  {kRetransmissions, counts.retransmissions + up.retransmissions},
                  {"tx_bytes", counts.tx_bytes + up.tx_bytes}};
}

Result<void> TcpTransport::close() {
  // Nobody closes while another still receives.
  if (auto all_here = sum_over_all(0); !all_here) return tl::unexpected(all_here.error());
  mover_.reset();
  downstream_ = TcpSocket();
  upstream_ = TcpSocket();
  return {};
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const Options& options) {
  return std::make_unique<TcpTransport>(options);
}

}  // namespace gradwire::perf
