// SPDX-License-Identifier: BSD-3-Clause
#include "transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon_transport.h"
#include "embedded_transport.h"
#include "tcp_transport.h"

namespace gradwire::perf {

Result<std::unique_ptr<Transport>> make_transport(const Options& options) {
  if (options.transport == "daemon") return make_daemon_transport(options);
  if (options.transport == "tcp") return make_tcp_transport(options);
  if (options.transport == "gradwire") return make_embedded_transport(options);
  return fail(ErrorCode::kUnsupported, fmt::format("transport '{}' is unknown", options.transport));
}

std::uint64_t largest_bytes(const Options& options) {
  std::uint64_t largest = 0;
  for (const SizePlan& plan : sizes_of(options)) largest = std::max(largest, plan.bytes);
  return largest;
}

}  // namespace gradwire::perf
