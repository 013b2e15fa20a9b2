// SPDX-License-Identifier: BSD-3-Clause
#include "runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "cpu_time.h"
#include "pattern.h"

namespace gradwire::perf {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// CPU time and counters at a moment.
struct Usage {
  Clock::time_point wall;
  std::uint64_t cpu_ns = 0;
  std::optional<std::uint64_t> machine_cpu_ns;
  std::uint64_t cycles = 0;
  Counters counters;
};

/// Collective: waits for the others first, so that waiting for them is not counted.
Result<Usage> usage_at_start(Transport& transport) {
  Usage usage;
  auto counters = transport.counters();
  if (!counters) return tl::unexpected(counters.error());
  usage.counters = std::move(*counters);
  if (auto all_here = transport.sum_over_all(0); !all_here) {
    return tl::unexpected(all_here.error());
  }
  usage.cpu_ns = process_cpu_ns(0).value_or(0);
  usage.machine_cpu_ns = machine_cpu_ns();
  usage.cycles = time_stamp().value_or(0);
  usage.wall = Clock::now();
  return usage;
}

std::uint64_t value_of(const Counters& counters, const std::string& name) {
  for (const Counter& counter : counters) {
    if (counter.name == name) return counter.value;
  }
  return 0;
}

/// The use since `before`; counters are differences.
Result<Cost> cost_since(const Usage& before, Transport& transport, std::uint32_t ops) {
  Cost cost;
  cost.ops = ops;
  // Read before the transport is asked, because its answer is not part of an op.
  cost.wall_s = seconds_since(before.wall);
  cost.cpu_s = static_cast<double>(process_cpu_ns(0).value_or(0) - before.cpu_ns) / 1e9;
  if (const auto now_ns = machine_cpu_ns(); now_ns && before.machine_cpu_ns) {
    // Idle time is known in steps, so that a machine that did nothing may come out below none.
    cost.machine_cpu_s =
        static_cast<double>(std::max(*now_ns, *before.machine_cpu_ns) - *before.machine_cpu_ns) /
        1e9;
  }
  if (const auto cycles = time_stamp()) {
    cost.cycles_per_s = static_cast<double>(*cycles - before.cycles) / cost.wall_s;
  }
  auto counters = transport.counters();
  if (!counters) return tl::unexpected(counters.error());
  for (Counter& counter : *counters) {
    counter.value -= value_of(before.counters, counter.name);
    if (counter.name == kOtherCpuNs) cost.other_cpu_s = static_cast<double>(counter.value) / 1e9;
  }
  cost.counters = std::move(*counters);
  return cost;
}

class Measurement {
 public:
  Measurement(const Options& options, Transport& transport, Buffers buffers)
      : options_(options), transport_(transport), buffers_(buffers) {}

  Result<SizeResult> measure(const SizePlan& plan, std::uint64_t seed);

 private:
  /// The ops of this size, and where this process has what they read and write.
  void prepare(std::uint64_t bytes);
  Result<void> run_op() { return transport_.run(call_, input_, output_); }
  void fill(std::uint64_t seed) {
    fill_pattern(options_.datatype, options_.redop, place_of(options_).process, seed, 0,
                 extent_.input / element_bytes(options_.datatype), input_);
  }
  Result<std::uint64_t> wrong_elements(std::uint64_t seed);

  const Options& options_;
  Transport& transport_;
  const Buffers buffers_;
  CollectiveCall call_;
  CollectiveExtent extent_;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

void Measurement::prepare(std::uint64_t bytes) {
  call_ = call_of(options_, bytes);
  extent_ = extent_of(call_, place_of(options_)).value_or(CollectiveExtent{});
  // Each process sends to the next and receives as much from the one before.
  if (has_partner(call_.collective)) extent_.output = extent_.input;
  input_ = buffers_.input;
  output_ = buffers_.output;
  if (!options_.in_place) return;
  (extent_.output >= extent_.input ? input_ : output_) += extent_.in_place_at;
}

Result<SizeResult> Measurement::measure(const SizePlan& plan, std::uint64_t seed) {
  prepare(plan.bytes);
  fill(seed);
  for (std::uint32_t i = 0; i < options_.warmup; ++i) {
    if (auto done = run_op(); !done) return tl::unexpected(done.error());
  }
  // The checked result must come from a timed op.
  if (!options_.in_place) std::memset(output_, 0xa5, extent_.output);
  std::vector<double> times_s;
  times_s.reserve(plan.iterations);
  const auto before = usage_at_start(transport_);
  if (!before) return tl::unexpected(before.error());
  for (std::uint32_t i = 0; i < plan.iterations; ++i) {
    const auto start = Clock::now();
    const auto done = run_op();
    times_s.push_back(seconds_since(start));
    if (!done) return tl::unexpected(done.error());
  }
  auto cost = cost_since(*before, transport_, plan.iterations);
  if (!cost) return tl::unexpected(cost.error());
  SizeResult result = summarize(plan.bytes, call_.count, std::move(times_s));
  result.cost = std::move(*cost);
  if (options_.check && call_.collective != Collective::kBarrier) {
    const auto wrong = wrong_elements(seed);
    if (!wrong) return tl::unexpected(wrong.error());
    result.wrong = *wrong;
  }
  return result;
}

Result<std::uint64_t> Measurement::wrong_elements(std::uint64_t seed) {
  if (options_.in_place) {
    // The timed ops have used their own results again and again: one more, from known inputs, with
    // nothing left of what it has to bring.
    std::memset(output_, 0xa5, extent_.output);
    fill(seed);
    if (auto done = run_op(); !done) return tl::unexpected(done.error());
  }
  const std::uint64_t wrong =
      extent_.output == 0 ? 0 : count_wrong(options_, seed, call_.count, output_);
  return transport_.sum_over_all(wrong);
}

}  // namespace

Result<std::vector<SizeResult>> run(const Options& options, Transport& transport,
                                    const std::function<void(const SizeResult&)>& on_result) {
  const auto buffers = transport.open();
  if (!buffers) return tl::unexpected(buffers.error());
  Measurement measurement(options, transport, *buffers);
  std::vector<SizeResult> results;
  std::uint64_t seed = 1;
  for (const SizePlan& plan : sizes_of(options)) {
    auto result = measurement.measure(plan, seed++);
    if (!result) {
      return fail(result.error().code,
                  fmt::format("{} bytes: {}", plan.bytes, result.error().message));
    }
    on_result(*result);
    results.push_back(std::move(*result));
  }
  if (auto closed = transport.close(); !closed) return tl::unexpected(closed.error());
  return results;
}

}  // namespace gradwire::perf
