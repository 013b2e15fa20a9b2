// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/status_board.h"

#include <utility>

namespace gradwire::metrics {

std::shared_ptr<const status::DaemonStatus> StatusBoard::ask(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const std::uint64_t mine = ++asked_;
  answered_.wait_for(lock, timeout, [&] { return closed_ || served_ >= mine; });
  if (closed_ || served_ < mine) return nullptr;
  return status_;
}

void StatusBoard::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  answered_.notify_all();
}

void StatusBoard::serve(const std::function<status::DaemonStatus()>& make) {
  std::uint64_t asked = 0;
  {
    const std::lock_guard lock(mutex_);
    if (asked_ == served_) return;
    asked = asked_;
  }
  auto status = std::make_shared<const status::DaemonStatus>(make());
  {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
    served_ = asked;
  }
  answered_.notify_all();
}

}  // namespace gradwire::metrics
