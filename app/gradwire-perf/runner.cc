// SPDX-License-Identifier: BSD-3-Clause
#include "runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "client/gradwire.h"
#include "pattern.h"
#include "rendezvous.h"

namespace gradwire::perf {
namespace {

using Clock = std::chrono::steady_clock;

template <auto kFree>
struct Release {
  template <class Handle>
  void operator()(Handle* handle) const noexcept {
    static_cast<void>(kFree(handle));
  }
};
using ClientPtr = std::unique_ptr<gw_client, Release<gw_close>>;
using GroupPtr = std::unique_ptr<gw_group, Release<gw_group_free>>;
using MemoryPtr = std::unique_ptr<gw_memory, Release<gw_memory_free>>;
using WorkPtr = std::unique_ptr<gw_work, Release<gw_work_free>>;

Result<void> succeed(gw_status status, const char* what) {
  if (status == GW_OK) return {};
  return fail(static_cast<ErrorCode>(status), fmt::format("{}: {}", what, gw_last_error()));
}

/// Handles in the order in which they have to go: last first.
class Session {
 public:
  explicit Session(const Options& options)
      : options_(options), timeout_ms_(static_cast<std::uint32_t>(options.timeout_s * 1000)) {}

  Result<void> open();
  Result<void> close();
  Result<SizeResult> measure(std::uint64_t bytes, std::uint64_t seed);

 private:
  Result<void> join();
  Result<void> reduce(const std::byte* input, std::byte* output, std::uint64_t count,
                      DataType datatype, RedOp redop);
  /// Sums a number over all processes; so it is a barrier too.
  Result<std::uint64_t> sum_over_all(std::uint64_t value);

  const Options& options_;
  const std::uint32_t timeout_ms_;
  ClientPtr client_;
  GroupPtr group_;
  MemoryPtr memory_;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::byte* scratch_ = nullptr;
};

Result<void> Session::open() {
  gw_client* client = nullptr;
  const char* path = options_.socket.empty() ? nullptr : options_.socket.c_str();
  if (auto ok = succeed(gw_open(path, nullptr, &client), "open"); !ok) return ok;
  client_.reset(client);

  constexpr std::uint64_t kAlignment = 4096;
  const std::uint64_t room = (options_.end_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::uint64_t buffers = options_.in_place ? room : 2 * room;
  gw_memory* memory = nullptr;
  if (auto ok = succeed(gw_memory_alloc(client, buffers + kAlignment, &memory), "allocate"); !ok) {
    return ok;
  }
  memory_.reset(memory);
  scratch_ = static_cast<std::byte*>(gw_memory_address(memory));
  input_ = scratch_ + kAlignment;
  output_ = options_.in_place ? input_ : input_ + room;
  return join();
}

Result<void> Session::join() {
  std::byte info[GW_RANK_INFO_BYTES];
  auto described = succeed(gw_client_describe(client_.get(), info, sizeof(info)), "describe");
  if (!described) return described;
  const auto meeting = meet(options_, info);
  if (!meeting) return tl::unexpected(meeting.error());
  gw_group_config config{};
  config.struct_bytes = sizeof(config);
  config.epoch = options_.epoch;
  config.group_id = meeting->group_id;
  config.rank = options_.rank;
  config.nranks = options_.nranks;
  config.member = options_.member;
  config.member_count = options_.members;
  config.timeout_ms = timeout_ms_;
  config.rank_infos = meeting->rank_infos.data();
  config.rank_infos_bytes = meeting->rank_infos.size();
  gw_group* group = nullptr;
  const auto joined = succeed(gw_group_join(client_.get(), &config, &group), "join");
  leave_no_trace(options_);
  group_.reset(group);
  return joined;
}

Result<void> Session::close() {
  auto left = succeed(gw_group_leave(group_.get()), "leave");
  group_.reset();
  return left;
}

Result<void> Session::reduce(const std::byte* input, std::byte* output, std::uint64_t count,
                             DataType datatype, RedOp redop) {
  gw_work* work = nullptr;
  const gw_status posted =
      gw_all_reduce(group_.get(), input, output, count, static_cast<gw_datatype>(datatype),
                    static_cast<gw_redop>(redop), 0, &work);
  if (auto ok = succeed(posted, "all-reduce"); !ok) return ok;
  const WorkPtr owner(work);
  return succeed(gw_wait(work, timeout_ms_), "all-reduce");
}

Result<std::uint64_t> Session::sum_over_all(std::uint64_t value) {
  std::memcpy(scratch_, &value, sizeof(value));
  auto summed = reduce(scratch_, scratch_, 1, DataType::kInt64, RedOp::kSum);
  if (!summed) return tl::unexpected(summed.error());
  std::memcpy(&value, scratch_, sizeof(value));
  return value;
}

Result<SizeResult> Session::measure(std::uint64_t bytes, std::uint64_t seed) {
  const std::uint64_t count = bytes / element_bytes(options_.datatype);
  const std::uint32_t contributor = options_.rank * options_.members + options_.member;
  const auto fill = [&] {
    fill_pattern(options_.datatype, options_.redop, contributor, seed, 0, count, input_);
  };
  fill();
  std::vector<double> times_s;
  times_s.reserve(options_.iterations);
  for (std::uint32_t i = 0; i < options_.warmup + options_.iterations; ++i) {
    if (i == options_.warmup) {
      // What is checked has to come from a timed op; in place, the last of them.
      if (!options_.in_place) std::memset(output_, 0xa5, bytes);
      if (auto all_here = sum_over_all(0); !all_here) return tl::unexpected(all_here.error());
    }
    if (options_.in_place && options_.check && i + 1 == options_.warmup + options_.iterations) {
      fill();
      if (auto all_here = sum_over_all(0); !all_here) return tl::unexpected(all_here.error());
    }
    const auto start = Clock::now();
    const auto reduced = reduce(input_, output_, count, options_.datatype, options_.redop);
    const auto end = Clock::now();
    if (!reduced) return tl::unexpected(reduced.error());
    if (i >= options_.warmup) times_s.push_back(std::chrono::duration<double>(end - start).count());
  }
  SizeResult result = summarize(bytes, count, std::move(times_s));
  if (options_.check) {
    const auto wrong = sum_over_all(count_wrong(options_, seed, count, output_));
    if (!wrong) return tl::unexpected(wrong.error());
    result.wrong = *wrong;
  }
  return result;
}

}  // namespace

Result<std::vector<SizeResult>> run(const Options& options,
                                    const std::function<void(const SizeResult&)>& on_result) {
  Session session(options);
  if (auto opened = session.open(); !opened) return tl::unexpected(opened.error());
  std::vector<SizeResult> results;
  std::uint64_t seed = 1;
  for (const std::uint64_t bytes : sizes_of(options)) {
    auto result = session.measure(bytes, seed++);
    if (!result) {
      return fail(result.error().code, fmt::format("{} bytes: {}", bytes, result.error().message));
    }
    on_result(*result);
    results.push_back(*result);
  }
  if (auto closed = session.close(); !closed) return tl::unexpected(closed.error());
  return results;
}

}  // namespace gradwire::perf
