// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The TCP connections between the neighbors of a ring: transport tcp moves its data over them,
/// transport rdma sets up its queue pairs over them. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "options.h"
#include "tcp/tcp_socket.h"

namespace gradwire::perf {

struct Neighbors {
  std::uint64_t group_id = 0;
  TcpSocket downstream;  ///< to the next rank
  TcpSocket upstream;    ///< from the rank before; none with two ranks, which share `downstream`
};

/// Collective: meets the other ranks and connects to both neighbors. Whoever called it calls
/// leave_no_trace() (rendezvous.h) once all ranks are through.
/// @param address  at which the other ranks reach this one.
/// @return kTimedOut after the options' timeout, naming who did not come.
[[nodiscard]] Result<Neighbors> connect_neighbors(const Options& options,
                                                  const std::string& address,
                                                  const TcpTuning& tuning,
                                                  Clock::time_point deadline);

[[nodiscard]] inline std::uint32_t next_rank(const Options& options) noexcept {
  return (options.rank + 1u) % options.nranks;
}
[[nodiscard]] inline std::uint32_t previous_rank(const Options& options) noexcept {
  return (options.rank + options.nranks - 1u) % options.nranks;
}
/// From now on until an op, or the formation, may take no longer.
[[nodiscard]] inline Clock::time_point deadline_of(const Options& options) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(options.timeout_s));
}

}  // namespace gradwire::perf
