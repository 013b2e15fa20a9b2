// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Records when one queue of a port sent how many bytes: a ring of the last bursts, for tests of
/// pacing. Used if DatapathConfig::tx_trace_bursts is not 0. One lane writes; stop the lane before
/// reading. Allocates only when constructed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"

namespace gradwire::lane {

class TxTrace {
 public:
  struct Burst {
    TimeNs at = 0;  ///< the round in which the port took it
    std::uint64_t bytes = 0;
  };

  TxTrace() = default;
  explicit TxTrace(std::size_t bursts) : bursts_(bursts) {}

  void record(TimeNs at, std::uint64_t bytes) noexcept {
    if (bursts_.empty() || bytes == 0) return;
    bursts_[static_cast<std::size_t>(recorded_ % bursts_.size())] = {at, bytes};
    ++recorded_;
  }
  /// @return the bursts that have not been overwritten, oldest first.
  [[nodiscard]] std::vector<Burst> bursts() const {
    std::vector<Burst> out;
    const std::uint64_t kept = recorded_ < bursts_.size() ? recorded_ : bursts_.size();
    out.reserve(static_cast<std::size_t>(kept));
    for (std::uint64_t i = recorded_ - kept; i < recorded_; ++i) {
      out.push_back(bursts_[static_cast<std::size_t>(i % bursts_.size())]);
    }
    return out;
  }

 private:
  std::vector<Burst> bursts_;  ///< fixed ring
  std::uint64_t recorded_ = 0;
};

}  // namespace gradwire::lane
