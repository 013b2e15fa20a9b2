// SPDX-License-Identifier: BSD-3-Clause
// Requests and completions of one io_uring, which serves both connections. At most one send and
// one receive are under way: an op's bytes have one order on each stream. What both need goes to
// the kernel in one system call, and comes back in the same or a later one.
#include <fmt/format.h>
#include <liburing.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tcp/stream_mover.h"

namespace gradwire::perf {
namespace {

constexpr unsigned kRequests = 64;
constexpr std::uint16_t kPieces = 64;  ///< a power of two
constexpr std::uint32_t kPieceBytes = 64 << 10;
constexpr std::uint16_t kPieceGroup = 0;
/// The kernel registers at most this much at a time.
constexpr std::size_t kRegisteredBytes = std::size_t{1} << 30;

enum Request : std::uint64_t { kSend = 1, kReceive = 2 };

bool is_transient(int result) noexcept { return result == -EAGAIN || result == -EINTR; }

tl::unexpected<Error> refuse(const char* what, int result) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("the kernel refuses {}: {}; --tcp-io poll works without io_uring", what,
                          std::strerror(-result)));
}

/// The buffers that a multishot receive fills, and what lies in them.
class Pieces {
 public:
  Pieces() = default;
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  ~Pieces() {
    if (table_ != nullptr) ::munmap(table_, table_bytes());
  }

  Result<void> open(io_uring& ring) {
    void* const start = ::mmap(nullptr, table_bytes(), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (start == MAP_FAILED) return refuse("memory for the table of receive buffers", -errno);
    table_ = static_cast<io_uring_buf_ring*>(start);
    io_uring_buf_reg registration{};
    registration.ring_addr = reinterpret_cast<std::uintptr_t>(table_);
    registration.ring_entries = kPieces;
    registration.bgid = kPieceGroup;
    if (const int result = io_uring_register_buf_ring(&ring, &registration, 0); result < 0) {
      return refuse("a ring of receive buffers, which --tcp-io uring-multishot needs", result);
    }
    bytes_.resize(std::size_t{kPieces} * kPieceBytes);
    io_uring_buf_ring_init(table_);
    for (std::uint16_t piece = 0; piece < kPieces; ++piece) give_back(piece);
    return {};
  }

  void came(std::uint16_t piece, std::uint32_t bytes) noexcept {
    queue_[(first_ + waiting_) % kPieces] = {piece, bytes};
    ++waiting_;
  }
  [[nodiscard]] bool empty() const noexcept { return waiting_ == 0; }

  /// Copies from the oldest piece. @return bytes copied.
  std::size_t take(std::span<std::byte> to) noexcept {
    const Filled& oldest = queue_[first_];
    const std::size_t bytes = std::min<std::size_t>(to.size(), oldest.bytes - taken_);
    std::memcpy(to.data(), place(oldest.piece) + taken_, bytes);
    taken_ += static_cast<std::uint32_t>(bytes);
    if (taken_ == oldest.bytes) {
      give_back(oldest.piece);
      first_ = (first_ + 1) % kPieces;
      --waiting_;
      taken_ = 0;
    }
    return bytes;
  }

 private:
  struct Filled {
    std::uint16_t piece = 0;
    std::uint32_t bytes = 0;
  };
  static constexpr std::size_t table_bytes() noexcept { return kPieces * sizeof(io_uring_buf); }
  [[nodiscard]] std::byte* place(std::uint16_t piece) noexcept {
    return bytes_.data() + std::size_t{piece} * kPieceBytes;
  }
  void give_back(std::uint16_t piece) noexcept {
    io_uring_buf_ring_add(table_, place(piece), kPieceBytes, piece, io_uring_buf_ring_mask(kPieces),
                          0);
    io_uring_buf_ring_advance(table_, 1);
  }

  io_uring_buf_ring* table_ = nullptr;
  std::vector<std::byte> bytes_;
  std::array<Filled, kPieces> queue_;  ///< from first_ on, in the order of the stream
  std::uint16_t first_ = 0;
  std::uint16_t waiting_ = 0;
  std::uint32_t taken_ = 0;  ///< of the oldest
};

class UringMover final : public StreamMover {
 public:
  UringMover(const StreamEnds& ends, const WaitOptions& wait, const UringOptions& options)
      : ends_(ends), wait_(wait), options_(options) {}
  ~UringMover() override {
    if (is_open_) io_uring_queue_exit(&ring_);
  }
  UringMover(const UringMover&) = delete;
  UringMover& operator=(const UringMover&) = delete;

  Result<void> open();
  Result<void> run(StreamOp& op) override;

 private:
  void start_send(StreamOp& op) noexcept;
  void start_receive(StreamOp& op) noexcept;
  /// One system call if there is a reason for it. @param sleeps  until something completes.
  void enter(bool sleeps) noexcept;
  /// Takes all completions. @return whether there was one.
  Result<bool> reap(StreamOp* op);
  Result<void> end_of_send(StreamOp* op, const io_uring_cqe& completion);
  void end_of_receive(StreamOp* op, const io_uring_cqe& completion) noexcept;
  bool take_piece(StreamOp& op) noexcept;

  const StreamEnds ends_;
  const WaitOptions wait_;
  const UringOptions options_;
  io_uring ring_{};
  bool is_open_ = false;
  Pieces pieces_;
  bool sends_ = false;
  bool receives_ = false;
  /// Why nothing more comes, as errno; 0: more may come. A neighbor that has all it needs may
  /// close while its last bytes still lie in pieces_.
  int ended_by_ = 0;
  std::uint32_t unreleased_ = 0;  ///< zero-copy sends whose memory the kernel still refers to
};

Result<void> UringMover::open() {
  io_uring_params parameters{};
  // One thread submits and reaps: the kernel then completes requests in this thread's system calls,
  // and sends no interrupt.
  parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  if (const int result = io_uring_queue_init_params(kRequests, &ring_, &parameters); result < 0) {
    return refuse("io_uring (kernel 6.1 or later, and kernel.io_uring_disabled = 0, are needed)",
                  result);
  }
  is_open_ = true;
  if (options_.multishot) {
    if (auto opened = pieces_.open(ring_); !opened) return opened;
  }
  if (options_.zerocopy) {
    std::vector<iovec> parts;
    for (std::size_t at = 0; at < options_.memory.size(); at += kRegisteredBytes) {
      parts.push_back(
          {options_.memory.data() + at, std::min(kRegisteredBytes, options_.memory.size() - at)});
    }
    const int result =
        io_uring_register_buffers(&ring_, parts.data(), static_cast<unsigned>(parts.size()));
    if (result < 0) return refuse("to register the memory of the ops (ulimit -l)", result);
  }
  return {};
}

// A request is never null: at most two wait for the next system call.
void UringMover::start_send(StreamOp& op) noexcept {
  if (sends_) return;
  const auto bytes = op.to_send();
  if (bytes.empty()) return;
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
  const int fd = ends_.downstream->fd();
  if (options_.zerocopy && bytes.size() >= kZerocopyBytes) {
    const auto offset = static_cast<std::size_t>(bytes.data() - options_.memory.data());
    const std::size_t part = offset / kRegisteredBytes;
    const std::size_t length = std::min(bytes.size(), (part + 1) * kRegisteredBytes - offset);
    io_uring_prep_send_zc_fixed(sqe, fd, bytes.data(), length, MSG_NOSIGNAL, 0,
                                static_cast<unsigned>(part));
  } else {
    io_uring_prep_send(sqe, fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  io_uring_sqe_set_data64(sqe, kSend);
  sends_ = true;
}

void UringMover::start_receive(StreamOp& op) noexcept {
  if (receives_ || ended_by_ != 0) return;
  const int fd = ends_.upstream->fd();
  if (options_.multishot) {
    io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_recv_multishot(sqe, fd, nullptr, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = kPieceGroup;
    io_uring_sqe_set_data64(sqe, kReceive);
  } else {
    const auto room = op.to_receive();
    if (room.empty()) return;
    io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_recv(sqe, fd, room.data(), room.size(), 0);
    io_uring_sqe_set_data64(sqe, kReceive);
  }
  receives_ = true;
}

void UringMover::enter(bool sleeps) noexcept {
  // What goes wrong here is not lost: the next round tries again, and the op's deadline ends it.
  if (!sleeps) {
    io_uring_submit_and_get_events(&ring_);
    return;
  }
  __kernel_timespec pause{0, OpDeadline::kSleepMs * 1'000'000L};
  io_uring_cqe* first = nullptr;
  io_uring_submit_and_wait_timeout(&ring_, &first, 1, &pause, nullptr);
}

Result<bool> UringMover::reap(StreamOp* op) {
  bool any = false;
  io_uring_cqe* next = nullptr;
  while (io_uring_peek_cqe(&ring_, &next) == 0) {
    const io_uring_cqe completion = *next;
    io_uring_cqe_seen(&ring_, next);
    any = true;
    if (io_uring_cqe_get_data64(&completion) == kReceive) {
      end_of_receive(op, completion);
    } else if (auto ended = end_of_send(op, completion); !ended) {
      return tl::unexpected(ended.error());
    }
  }
  return any;
}

Result<void> UringMover::end_of_send(StreamOp* op, const io_uring_cqe& completion) {
  // A zero-copy send completes twice: when its bytes are taken, and when they are free again.
  if ((completion.flags & IORING_CQE_F_NOTIF) != 0) {
    --unreleased_;
    return {};
  }
  if ((completion.flags & IORING_CQE_F_MORE) != 0) ++unreleased_;
  sends_ = false;
  if (completion.res > 0) {
    op->sent(static_cast<std::size_t>(completion.res));
  } else if (!is_transient(completion.res)) {
    return fail_moving("sending to", ends_.next, -completion.res);
  }
  return {};
}

void UringMover::end_of_receive(StreamOp* op, const io_uring_cqe& completion) noexcept {
  receives_ = (completion.flags & IORING_CQE_F_MORE) != 0;
  if (completion.res > 0) {
    const auto bytes = static_cast<std::uint32_t>(completion.res);
    if (options_.multishot) {
      pieces_.came(static_cast<std::uint16_t>(completion.flags >> IORING_CQE_BUFFER_SHIFT), bytes);
    } else {
      op->received(bytes);
    }
    return;
  }
  // Without a free buffer a multishot receive ends, and is armed again when there is one.
  if (is_transient(completion.res) || (options_.multishot && completion.res == -ENOBUFS)) return;
  ended_by_ = completion.res == 0 ? ECONNRESET : -completion.res;
}

bool UringMover::take_piece(StreamOp& op) noexcept {
  if (pieces_.empty()) return false;
  const auto room = op.to_receive();
  if (room.empty()) return false;
  op.received(pieces_.take(room));
  return true;
}

Result<void> UringMover::run(StreamOp& op) {
  OpDeadline deadline(ends_, wait_);
  bool sleeps = false;
  while (!op.finished()) {
    start_send(op);
    start_receive(op);
    enter(sleeps);
    sleeps = false;
    const auto reaped = reap(&op);
    if (!reaped) return tl::unexpected(reaped.error());
    // One piece a round, so that what it makes ready is sent before the next is looked at.
    if (take_piece(op) || *reaped) {
      deadline.moved();
      continue;
    }
    if (ended_by_ != 0 && !op.to_receive().empty()) {
      return fail_moving("receiving from", ends_.previous, ended_by_);
    }
    const auto idle = deadline.idle();
    if (!idle) return tl::unexpected(idle.error());
    sleeps = *idle;
  }
  OpDeadline release(ends_, wait_);
  while (unreleased_ > 0) {
    enter(false);
    const auto reaped = reap(&op);
    if (!reaped) return tl::unexpected(reaped.error());
    if (!*reaped && !release.idle()) {
      return fail(ErrorCode::kTimedOut,
                  "the kernel still reads what was sent with --tcp-zerocopy, after the timeout");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<StreamMover>> make_uring_mover(const StreamEnds& ends,
                                                      const WaitOptions& wait,
                                                      const UringOptions& options) {
  auto mover = std::make_unique<UringMover>(ends, wait, options);
  if (auto opened = mover->open(); !opened) return tl::unexpected(opened.error());
  return mover;
}

}  // namespace gradwire::perf
