// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/record_pipe.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace gradwire::nccl_net {

void RecordPipe::finish() {
  flush();
  shutdown(socket(), SHUT_WR);
}

void RecordPipe::close() {
  socket_.reset();
  ended_ = true;
}

void RecordPipe::put(const Record& record) {
  // Whole records fit to the end.
  std::memcpy(&out_[written_ % kBytes], &record, sizeof(record));
  written_ += sizeof(record);
}

void RecordPipe::flush() {
  while (!ended_ && written_ != sent_) {
    const std::uint64_t at = sent_ % kBytes;
    const std::uint64_t bytes = std::min(written_ - sent_, kBytes - at);
    const ssize_t taken = send(socket(), &out_[at], bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    // Nobody hears any more. It shows as an end when what has come before it was read.
    if (taken <= 0) {
      sent_ = written_;
      return;
    }
    sent_ += static_cast<std::uint64_t>(taken);
  }
}

bool RecordPipe::next(Record& record) {
  if (in_end_ - in_begin_ < sizeof(record) && !ended_) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
    const ssize_t got = recv(socket(), &in_[in_end_], in_.size() - in_end_, MSG_DONTWAIT);
    if (got > 0) {
      in_end_ += static_cast<std::size_t>(got);
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      ended_ = true;
    }
  }
  if (in_end_ - in_begin_ < sizeof(record)) return false;
  std::memcpy(&record, &in_[in_begin_], sizeof(record));
  in_begin_ += sizeof(record);
  return true;
}

}  // namespace gradwire::nccl_net
