// SPDX-License-Identifier: BSD-3-Clause
// Which ops the options ask for.
#include <algorithm>

#include "options.h"

namespace gradwire::perf {

ProcessPlace place_of(const Options& options) noexcept {
  return {std::uint32_t{options.rank} * options.members + options.member,
          std::uint32_t{options.nranks} * options.members};
}

namespace {

/// Sizes are multiples of it.
std::uint64_t unit_bytes(const Options& options) noexcept {
  const CollectiveCall call{.collective = options.collective, .count = 1};
  return *whole_count(call, place_of(options).processes) * element_bytes(options.datatype);
}

}  // namespace

CollectiveCall call_of(const Options& options, std::uint64_t bytes) noexcept {
  CollectiveCall call;
  call.collective = options.collective;
  call.root = options.root;
  call.redop = options.redop;
  call.wire = options.wire;
  if (options.collective == Collective::kBarrier) return call;
  call.datatype = options.datatype;
  call.count = bytes / unit_bytes(options);
  const ProcessPlace place = place_of(options);
  if (has_partner(call.collective)) call.root = (place.process + 1) % place.processes;
  return call;
}

std::vector<SizePlan> sizes_of(const Options& options) {
  if (options.collective == Collective::kBarrier) return {{0, options.iterations}};
  const std::uint64_t unit = unit_bytes(options);
  std::vector<SizePlan> plans;
  if (!options.sizes.empty()) {
    plans = options.sizes;
    for (SizePlan& plan : plans) plan.bytes -= plan.bytes % unit;
    return plans;
  }
  auto exact = static_cast<double>(options.begin_bytes);
  while (exact <= static_cast<double>(options.end_bytes)) {
    const auto bytes = static_cast<std::uint64_t>(exact) / unit * unit;
    if (plans.empty() || plans.back().bytes != bytes) plans.push_back({bytes, options.iterations});
    // From nothing, or from so little that the factor is lost in rounding, one element is next.
    exact = std::max(exact * options.factor, exact + static_cast<double>(unit));
  }
  return plans;
}

}  // namespace gradwire::perf
