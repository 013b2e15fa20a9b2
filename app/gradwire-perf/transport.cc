// SPDX-License-Identifier: BSD-3-Clause
#include "transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bare_transport.h"
#include "daemon_transport.h"
#include "embedded_transport.h"
#include "rdma/rdma_transport.h"
#include "tcp/tcp_transport.h"

namespace gradwire::perf {

Result<std::unique_ptr<Transport>> make_transport(const Options& options) {
  if (options.transport == "daemon") return make_daemon_transport(options);
  if (options.transport == "tcp") return make_tcp_transport(options);
  if (options.transport == "rdma") return make_rdma_transport(options);
  if (options.transport == "gradwire") return make_embedded_transport(options);
  if (options.transport == "bare") return make_bare_transport(options);
  return fail(ErrorCode::kUnsupported, fmt::format("transport '{}' is unknown", options.transport));
}

Result<void> Transport::run(const CollectiveCall& call, const std::byte* input, std::byte* output) {
  if (call.collective == Collective::kAllReduce) {
    return all_reduce(input, output, call.count, call.datatype, call.redop);
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("this transport does not do {}", name_of(call.collective)));
}

namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t pages_of(const Options& options) {
  return (largest_bytes(options) + kPage - 1) / kPage * kPage;
}

}  // namespace

std::uint64_t bytes_with_scratch(const Options& options) {
  return kPage + (options.in_place ? 1 : 2) * pages_of(options);
}

Buffers behind_scratch(std::byte* scratch, const Options& options) {
  Buffers buffers;
  buffers.input = scratch + kPage;
  buffers.output = options.in_place ? buffers.input : buffers.input + pages_of(options);
  return buffers;
}

Result<std::uint64_t> sum_by_all_reduce(Transport& transport, std::byte* scratch,
                                        std::uint64_t value) {
  std::memcpy(scratch, &value, sizeof(value));
  auto summed = transport.all_reduce(scratch, scratch, 1, DataType::kInt64, RedOp::kSum);
  if (!summed) return tl::unexpected(summed.error());
  std::memcpy(&value, scratch, sizeof(value));
  return value;
}

std::uint64_t largest_bytes(const Options& options) {
  std::uint64_t largest = 0;
  for (const SizePlan& plan : sizes_of(options)) largest = std::max(largest, plan.bytes);
  return largest;
}

}  // namespace gradwire::perf
