// SPDX-License-Identifier: BSD-3-Clause
#include "tcp_transport.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "exchange_op.h"
#include "rendezvous.h"
#include "ring_op.h"
#include "stream_mover.h"
#include "tcp_socket.h"

namespace gradwire::perf {
namespace {

/// How other ranks reach this one.
struct TcpInfo {
  char address[62] = {};  ///< as text, ended by a zero
  std::uint16_t port = 0;
};
static_assert(sizeof(TcpInfo) == 64);

/// The first bytes of a connection, which tell it from those of other runs and programs.
struct TcpHello {
  std::uint64_t group_id = 0;
  std::uint64_t rank = 0;
};

/// Private pages, huge ones if the kernel has them, all faulted in.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    if (start_ != nullptr) ::munmap(start_, bytes_);
  }
  Result<std::byte*> allocate(std::size_t bytes) {
    void* const start =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
      return fail(ErrorCode::kResourceExhausted,
                  fmt::format("{} bytes of memory: {}", bytes, std::strerror(errno)));
    }
    start_ = start;
    bytes_ = bytes;
    ::madvise(start, bytes, MADV_HUGEPAGE);
    std::memset(start, 0, bytes);
    return static_cast<std::byte*>(start);
  }
  [[nodiscard]] std::span<std::byte> all() const noexcept {
    return {static_cast<std::byte*>(start_), bytes_};
  }

 private:
  void* start_ = nullptr;
  std::size_t bytes_ = 0;
};

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

 private:
  Result<void> connect(Clock::time_point deadline);
  Result<Buffers> allocate();
  /// Once connected.
  Result<void> make_mover();

  [[nodiscard]] TcpSocket& downstream() noexcept { return downstream_; }
  [[nodiscard]] TcpSocket& upstream() noexcept {
    return options_.nranks == 2 ? downstream_ : upstream_;
  }
  [[nodiscard]] std::uint32_t next() const noexcept {
    return (options_.rank + 1) % options_.nranks;
  }
  [[nodiscard]] std::uint32_t previous() const noexcept {
    return (options_.rank + options_.nranks - 1) % options_.nranks;
  }
  [[nodiscard]] Clock::duration timeout() const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(options_.timeout_s));
  }
  [[nodiscard]] bool is_small(const OpSpec& spec) const noexcept {
    // Of n ranks each receives n-1 inputs, n/2 times what the ring brings it.
    return spec.bytes() * (spec.nranks - 1) * spec.nranks / 2 <= options_.tcp.exchange_bytes;
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
  if (auto connected = connect(Clock::now() + timeout()); !connected) {
    return tl::unexpected(connected.error());
  }
  return buffers;
}

Result<Buffers> TcpTransport::allocate() {
  constexpr std::size_t kAlignment = 2 << 20;
  const auto round_up = [](std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  const std::size_t room = std::max(round_up(largest_bytes(options_)), kAlignment);
  // sum_over_all() is exchanged too, however small it is.
  const std::size_t gathered_bytes =
      2 * options_.tcp.exchange_bytes + std::size_t{options_.nranks} * sizeof(std::uint64_t);
  const std::size_t staged_bytes = round_up(shape_.chunk_bytes + gathered_bytes);
  const std::size_t total = kAlignment + staged_bytes + (options_.in_place ? room : 2 * room);
  const auto start = pages_.allocate(total);
  if (!start) return tl::unexpected(start.error());
  const auto misplaced = reinterpret_cast<std::uintptr_t>(*start) % kAlignment;
  std::byte* const aligned = *start + (misplaced == 0 ? 0 : kAlignment - misplaced);
  staging_ = {aligned, shape_.chunk_bytes};
  gathered_ = {aligned + shape_.chunk_bytes, gathered_bytes};
  Buffers buffers;
  buffers.input = aligned + staged_bytes;
  buffers.output = options_.in_place ? buffers.input : buffers.input + room;
  return buffers;
}

Result<void> TcpTransport::connect(Clock::time_point deadline) {
  // io_uring has a zero-copy send of its own.
  const bool zerocopy = options_.tcp.zerocopy && options_.tcp.io == TcpIo::kPoll;
  const TcpTuning tuning{options_.tcp.buffer_bytes, zerocopy};
  const auto listener = tcp_listen(options_.tcp.address, 0, tuning);
  if (!listener) return tl::unexpected(listener.error());
  const auto port = tcp_port(*listener);
  if (!port) return tl::unexpected(port.error());
  TcpInfo own;
  options_.tcp.address.copy(own.address, sizeof(own.address) - 1);
  own.port = *port;
  const auto meeting = meet(options_, std::as_bytes(std::span(&own, 1)));
  if (!meeting) return tl::unexpected(meeting.error());

  const bool accepts = options_.nranks > 2 || options_.rank == 1;
  const bool connects = options_.nranks > 2 || options_.rank == 0;
  if (connects) {
    TcpInfo info;
    std::memcpy(&info, meeting->rank_infos.data() + next() * sizeof(info), sizeof(info));
    info.address[sizeof(info.address) - 1] = '\0';
    auto socket = tcp_connect(info.address, info.port, tuning, deadline);
    if (!socket) return tl::unexpected(socket.error());
    const TcpHello hello{meeting->group_id, options_.rank};
    auto said = tcp_send_all(*socket, std::as_bytes(std::span(&hello, 1)), deadline);
    if (!said) return said;
    downstream_ = std::move(*socket);
  }
  while (accepts) {
    auto socket = tcp_accept(*listener, tuning, deadline);
    if (!socket) return tl::unexpected(socket.error());
    TcpHello hello;
    const auto said =
        tcp_receive_all(*socket, std::as_writable_bytes(std::span(&hello, 1)), deadline);
    // A foreign connection: the next may be the right one.
    if (!said || hello.group_id != meeting->group_id || hello.rank != previous()) continue;
    (connects ? upstream_ : downstream_) = std::move(*socket);
    break;
  }
  if (auto made = make_mover(); !made) return made;
  // Once a sum over all is done, everyone has read everyone's file.
  auto all_here = sum_over_all(0);
  leave_no_trace(options_);
  if (!all_here) return tl::unexpected(all_here.error());
  return {};
}

Result<void> TcpTransport::all_reduce(const std::byte* input, std::byte* output,
                                      std::uint64_t count, DataType datatype, RedOp redop) {
  const OpSpec spec{options_.rank, options_.nranks, count, datatype, redop, input, output};
  if (options_.nranks == 1) {
    if (input != output) std::memcpy(output, input, spec.bytes());
    return {};
  }
  if (is_small(spec)) {
    ExchangeOp op(spec, gathered_, folder_);
    return mover_->run(op);
  }
  RingOp op(spec, shape_, staging_, folder_);
  return mover_->run(op);
}

Result<void> TcpTransport::make_mover() {
  const StreamEnds ends{&downstream(), &upstream(), next(), previous()};
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
