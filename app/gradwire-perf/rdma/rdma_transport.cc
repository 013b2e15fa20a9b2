// SPDX-License-Identifier: BSD-3-Clause
#include "rdma/rdma_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "exchange_op.h"
#include "neighbors.h"
#include "pages.h"
#include "rdma/rdma_link.h"
#include "rdma/rdma_mover.h"
#include "rendezvous.h"
#include "ring_op.h"

namespace gradwire::perf {
namespace {

constexpr std::uint32_t kDepth = 16;

/// Memory, laid out alike on each rank: slots, gathered inputs of two ops in turn (a neighbor may
/// be one op ahead), a word for sums, input, output.
class RdmaTransport final : public Transport {
 public:
  explicit RdmaTransport(const Options& options)
      : options_(options),
        shape_{static_cast<std::uint32_t>(options.rdma.chunk_bytes), options.rdma.lag} {}

  Result<Buffers> open() override;
  Result<void> all_reduce(const std::byte* input, std::byte* output, std::uint64_t count,
                          DataType datatype, RedOp redop) override;
  Result<std::uint64_t> sum_over_all(std::uint64_t value) override;
  Result<Counters> counters() override;
  Result<void> close() override;

 private:
  Result<Buffers> allocate();
  Result<void> connect(Clock::time_point deadline);
  [[nodiscard]] RdmaEndInfo info_of(std::size_t end) const;
  Result<void> connect_end(std::size_t end, Clock::time_point deadline);
  /// Says a byte to each neighbor and awaits one of each.
  Result<void> meet_neighbors(Clock::time_point deadline);
  [[nodiscard]] std::size_t ends() const noexcept { return options_.nranks == 2 ? 1 : 2; }
  [[nodiscard]] TcpSocket& socket(std::size_t end) noexcept {
    return end == 0 ? neighbors_.downstream : neighbors_.upstream;
  }
  [[nodiscard]] std::uint32_t rank_at(std::size_t end) const noexcept {
    return end == 0 ? next_rank(options_) : previous_rank(options_);
  }
  [[nodiscard]] std::span<std::byte> gathered() const noexcept {
    return {gathered_ + mover_->op_seq() % 2 * gathered_bytes_, gathered_bytes_};
  }

  const Options& options_;
  const RingShape shape_;
  Folder folder_;
  Pages pages_;
  std::byte* gathered_ = nullptr;  ///< [2][gathered_bytes_]
  std::size_t gathered_bytes_ = 0;
  std::byte* word_ = nullptr;  ///< [2] x 8 bytes: a value and its sum
  Neighbors neighbors_;
  std::unique_ptr<RdmaLink> link_;    ///< refers to the pages and the sockets
  std::unique_ptr<RdmaMover> mover_;  ///< refers to the link
};

Result<Buffers> RdmaTransport::open() {
  auto buffers = allocate();
  if (!buffers || options_.nranks == 1) return buffers;
  if (auto connected = connect(deadline_of(options_)); !connected) {
    return tl::unexpected(connected.error());
  }
  return buffers;
}

Result<Buffers> RdmaTransport::allocate() {
  constexpr std::size_t kWordBytes = 4096;
  const std::size_t room = std::max(whole_huge_pages(largest_bytes(options_)), kHugePageBytes);
  const std::size_t slots = std::size_t{kDepth} * shape_.chunk_bytes;
  // sum_over_all() is exchanged too, however small it is.
  gathered_bytes_ = (2 * options_.rdma.exchange_bytes +
                     std::size_t{options_.nranks} * sizeof(std::uint64_t) + 63) /
                    64 * 64;
  const std::size_t before = whole_huge_pages(slots + 2 * gathered_bytes_ + kWordBytes);
  const auto start = pages_.allocate(before + (options_.in_place ? room : 2 * room));
  if (!start) return tl::unexpected(start.error());
  gathered_ = *start + slots;
  word_ = gathered_ + 2 * gathered_bytes_;
  Buffers buffers;
  buffers.input = *start + before;
  buffers.output = options_.in_place ? buffers.input : buffers.input + room;
  return buffers;
}

Result<void> RdmaTransport::connect(Clock::time_point deadline) {
  RdmaLinkOptions wanted{.rdma = options_.rdma,
                         .memory = pages_.all(),
                         .ends = ends(),
                         .depth = kDepth,
                         .words = kRdmaWords,
                         .ranks = {next_rank(options_), previous_rank(options_)},
                         .sockets = {&neighbors_.downstream, &neighbors_.upstream}};
  // Before the others are met: what is missing here is said at once.
  auto link = make_rdma_link(wanted);
  if (!link) return tl::unexpected(link.error());
  link_ = std::move(*link);
  const std::uint64_t largest = std::max(options_.rdma.chunk_bytes, options_.rdma.exchange_bytes);
  if (largest > link_->largest_write()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--rdma-chunk {} and --rdma-exchange {}: {} writes at most {} bytes at a "
                    "time",
                    options_.rdma.chunk_bytes, options_.rdma.exchange_bytes, link_->description(),
                    link_->largest_write()));
  }
  auto neighbors = connect_neighbors(options_, options_.rdma.address, {}, deadline);
  if (!neighbors) return tl::unexpected(neighbors.error());
  neighbors_ = std::move(*neighbors);
  // To both neighbors first: each of a ring's ranks waits for another one's.
  for (std::size_t end = 0; end < ends(); ++end) {
    const RdmaEndInfo own = info_of(end);
    if (auto said = tcp_send_all(socket(end), std::as_bytes(std::span(&own, 1)), deadline); !said) {
      return said;
    }
  }
  for (std::size_t end = 0; end < ends(); ++end) {
    if (auto connected = connect_end(end, deadline); !connected) return connected;
  }
  // Nobody sends before everybody receives.
  if (auto met = meet_neighbors(deadline); !met) return met;
  for (std::size_t end = 0; end < ends(); ++end) {
    if (auto started = link_->start(static_cast<RdmaEnd>(end)); !started) return started;
  }
  for (const std::string& reason : link_->slower_paths()) {
    fmt::print(stderr, "gradwire-perf: warning: rank {}: {}\n", options_.rank, reason);
  }
  const RdmaFlow flow{.group_id = neighbors_.group_id,
                      .rank = options_.rank,
                      .nranks = options_.nranks,
                      .memory = pages_.all(),
                      .slots_offset = 0,
                      .slot_bytes = shape_.chunk_bytes,
                      .depth = kDepth};
  mover_ = std::make_unique<RdmaMover>(*link_, flow,
                                       WaitOptions{options_.rdma.busy, options_.timeout_s});
  // Once a sum over all is done, everyone has read everyone's file.
  auto all_here = sum_over_all(0);
  leave_no_trace(options_);
  if (!all_here) return tl::unexpected(all_here.error());
  return {};
}

RdmaEndInfo RdmaTransport::info_of(std::size_t end) const {
  RdmaEndInfo own = link_->info_of(static_cast<RdmaEnd>(end));
  own.chunk_bytes = options_.rdma.chunk_bytes;
  own.exchange_bytes = options_.rdma.exchange_bytes;
  own.lag = options_.rdma.lag;
  own.depth = kDepth;
  return own;
}

Result<void> RdmaTransport::connect_end(std::size_t end, Clock::time_point deadline) {
  const RdmaEndInfo own = info_of(end);
  RdmaEndInfo other;
  const auto heard =
      tcp_receive_all(socket(end), std::as_writable_bytes(std::span(&other, 1)), deadline);
  if (!heard) {
    return fail(heard.error().code,
                fmt::format("rank {} did not say how rank {} reaches it: {}", rank_at(end),
                            options_.rank, heard.error().message));
  }
  if (auto alike = check_ends(own, other, options_.rank, rank_at(end)); !alike) return alike;
  return link_->accept(static_cast<RdmaEnd>(end), other);
}

Result<void> RdmaTransport::meet_neighbors(Clock::time_point deadline) {
  std::byte byte{};
  for (std::size_t end = 0; end < ends(); ++end) {
    if (auto said = tcp_send_all(socket(end), {&byte, 1}, deadline); !said) return said;
  }
  for (std::size_t end = 0; end < ends(); ++end) {
    if (auto heard = tcp_receive_all(socket(end), {&byte, 1}, deadline); !heard) {
      return fail(heard.error().code, fmt::format("rank {} does not meet rank {}: {}", rank_at(end),
                                                  options_.rank, heard.error().message));
    }
  }
  return {};
}

Result<void> RdmaTransport::all_reduce(const std::byte* input, std::byte* output,
                                       std::uint64_t count, DataType datatype, RedOp redop) {
  const OpSpec spec{options_.rank, options_.nranks, count, datatype, redop, input, output};
  if (options_.nranks == 1) {
    if (input != output) std::memcpy(output, input, spec.bytes());
    return {};
  }
  if (count == 0) return {};
  if (is_exchanged(spec, options_.rdma.exchange_bytes)) {
    ExchangeOp op(spec, gathered(), folder_);
    return mover_->run(op);
  }
  RingOp op(spec, shape_, {}, folder_);
  return mover_->run(op);
}

Result<std::uint64_t> RdmaTransport::sum_over_all(std::uint64_t value) {
  if (options_.nranks == 1) return value;
  // In registered memory, from where devices without inline writes send it.
  std::memcpy(word_, &value, sizeof(value));
  const OpSpec spec{options_.rank, options_.nranks,      1, DataType::kInt64, RedOp::kSum,
                    word_,         word_ + sizeof(value)};
  ExchangeOp op(spec, gathered(), folder_);
  if (auto ran = mover_->run(op); !ran) return tl::unexpected(ran.error());
  std::memcpy(&value, word_ + sizeof(value), sizeof(value));
  return value;
}

Result<Counters> RdmaTransport::counters() { return link_ ? link_->counters() : Counters{}; }

Result<void> RdmaTransport::close() {
  if (options_.nranks == 1) return {};
  if (auto all_here = sum_over_all(0); !all_here) return tl::unexpected(all_here.error());
  // A queue pair that is gone acknowledges nothing: nobody goes before its neighbors have got all.
  if (auto flushed = mover_->flush(); !flushed) return flushed;
  if (auto met = meet_neighbors(deadline_of(options_)); !met) return met;
  mover_.reset();
  link_.reset();
  neighbors_ = {};
  return {};
}

}  // namespace

Result<void> check_ends(const RdmaEndInfo& own, const RdmaEndInfo& other, std::uint32_t own_rank,
                        std::uint32_t other_rank) {
  const auto differ = [&](const char* what, std::uint64_t here, std::uint64_t there) {
    return fail(ErrorCode::kMismatch,
                fmt::format("{} is {} on rank {} and {} on rank {}: give all ranks the same", what,
                            here, own_rank, there, other_rank));
  };
  if (own.magic != other.magic)
    return differ("the release of transport rdma", own.magic, other.magic);
  if (own.chunk_bytes != other.chunk_bytes) {
    return differ("--rdma-chunk", own.chunk_bytes, other.chunk_bytes);
  }
  if (own.lag != other.lag) return differ("--rdma-lag", own.lag, other.lag);
  if (own.exchange_bytes != other.exchange_bytes) {
    return differ("--rdma-exchange", own.exchange_bytes, other.exchange_bytes);
  }
  if (own.depth != other.depth) return differ("the number of writes", own.depth, other.depth);
  if (own.memory_bytes != other.memory_bytes) {
    return differ("the memory for the sizes and --in-place", own.memory_bytes, other.memory_bytes);
  }
  return {};
}

std::unique_ptr<Transport> make_rdma_transport(const Options& options) {
  return std::make_unique<RdmaTransport>(options);
}

}  // namespace gradwire::perf
