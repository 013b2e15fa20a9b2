// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What gradwire-perf times: a way to all-reduce among `nranks` processes, and perhaps to do other
/// collectives. One thread, the caller's; implementations may allocate in open() and nowhere in
/// all_reduce() and run().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/collective_call.h"
#include "base/result.h"
#include "base/types.h"
#include "options.h"

namespace gradwire::perf {

/// Counters since open(). The report uses those named below; others go into the JSON unchanged.
struct Counter {
  std::string name;
  std::uint64_t value = 0;
};
using Counters = std::vector<Counter>;

inline constexpr const char* kTxPackets = "tx_packets";  ///< acknowledgements too
inline constexpr const char* kRxPackets = "rx_packets";
inline constexpr const char* kRetransmissions = "retransmissions";
/// CPU time of a process that works for this one, such as the daemon, in nanoseconds.
inline constexpr const char* kOtherCpuNs = "other_cpu_ns";

/// Where inputs and outputs lie; valid until close().
struct Buffers {
  std::byte* input = nullptr;   ///< [end of the sizes]
  std::byte* output = nullptr;  ///< [end of the sizes]; the input itself with --in-place
};

class Transport {
 public:
  virtual ~Transport() = default;

  /// Collective: meets the other ranks and allocates buffers for the largest size of the options.
  [[nodiscard]] virtual Result<Buffers> open() = 0;

  /// Collective. Returns when the result is in `output`, which is `input` or disjoint from it; both
  /// lie in the buffers. An op that does not end within the options' timeout is kTimedOut.
  [[nodiscard]] virtual Result<void> all_reduce(const std::byte* input, std::byte* output,
                                                std::uint64_t count, DataType datatype,
                                                RedOp redop) = 0;

  /// Collective. Any other than all-reduce, likewise; what this process does not read or write may
  /// be nullptr. @return kUnsupported, by name, from a transport that does not do it.
  [[nodiscard]] virtual Result<void> run(const CollectiveCall& call, const std::byte* input,
                                         std::byte* output);

  /// Collective: the sum of every process's `value`; so it is a barrier too.
  [[nodiscard]] virtual Result<std::uint64_t> sum_over_all(std::uint64_t value) = 0;

  /// Not timed, so it may ask another process.
  [[nodiscard]] virtual Result<Counters> counters() = 0;

  /// What a reader of the figures has to know of how the bytes go, once it is open; may be empty.
  [[nodiscard]] virtual std::string note() const { return {}; }

  /// Collective: leaves the group without disturbing the others.
  [[nodiscard]] virtual Result<void> close() = 0;
};

/// Divides hugepage memory into a page of scratch, the input and the output.
[[nodiscard]] std::uint64_t bytes_with_scratch(const Options& options);
[[nodiscard]] Buffers behind_scratch(std::byte* scratch, const Options& options);
/// Transport::sum_over_all() by an all-reduce of one element in `scratch`.
[[nodiscard]] Result<std::uint64_t> sum_by_all_reduce(Transport& transport, std::byte* scratch,
                                                      std::uint64_t value);

/// By `options.transport`. @return kUnsupported for one that there is not.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_transport(const Options& options);

/// Largest size that will be reduced, in bytes.
[[nodiscard]] std::uint64_t largest_bytes(const Options& options);

}  // namespace gradwire::perf
