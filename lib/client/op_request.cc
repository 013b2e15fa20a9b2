// SPDX-License-Identifier: BSD-3-Clause
// What a caller asks of an op. op_request_place.cc says where its memory lies.
#include "client/op_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gradwire::client {
namespace {

/// @return the end of the sentence "..., or ..." about ops in place. The extents alone tell the
/// collectives apart.
const char* in_place_rule(const CollectiveExtent& extent) noexcept {
  if (extent.output > extent.input) {
    return ", or the input must be this process's own block of the output";
  }
  if (extent.output < extent.input) {
    return ", or the output must be this process's own block of the input";
  }
  return extent.may_be_in_place ? ", or be the same memory" : "";
}

/// The sides of a call that have splits: at a root those of its blocks.
struct SplitSides {
  const std::uint64_t* input = nullptr;
  const std::uint64_t* output = nullptr;
  [[nodiscard]] bool any() const noexcept { return input != nullptr || output != nullptr; }
};
SplitSides split_sides(const PostArguments& arguments, const ProcessPlace& place) noexcept {
  const bool is_root = arguments.call.root == place.process;
  switch (arguments.call.collective) {
    case Collective::kAllToAll:
      return {arguments.input_counts, arguments.output_counts};
    case Collective::kGather:
      return {nullptr, is_root ? arguments.output_counts : nullptr};
    case Collective::kScatter:
      return {is_root ? arguments.input_counts : nullptr, nullptr};
    default:
      return {};
  }
}

/// Elements of all blocks; nothing if they are 2^64 or more.
std::optional<std::uint64_t> sum_of(const std::uint64_t* counts, std::uint64_t otherwise,
                                    std::uint32_t processes) noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < processes; ++i) {
    if (__builtin_add_overflow(sum, counts != nullptr ? counts[i] : otherwise, &sum)) return {};
  }
  return sum;
}

std::optional<CollectiveExtent> extent_of_splits(const PostArguments& arguments,
                                                 const ProcessPlace& place) noexcept {
  const CollectiveCall& call = arguments.call;
  const SplitSides sides = split_sides(arguments, place);
  const std::uint64_t width = element_bytes(call.datatype);
  const bool all = call.collective == Collective::kAllToAll;
  auto input = all || sides.input != nullptr ? sum_of(sides.input, call.count, place.processes)
                                             : std::optional(call.count);
  auto output = all || sides.output != nullptr ? sum_of(sides.output, call.count, place.processes)
                                               : std::optional(call.count);
  CollectiveExtent extent;
  if (!input || !output || __builtin_mul_overflow(*input, width, &extent.input) ||
      __builtin_mul_overflow(*output, width, &extent.output)) {
    return {};
  }
  extent.may_be_in_place = !all;
  const std::uint64_t* const own = sides.input != nullptr ? sides.input : sides.output;
  if (!all) extent.in_place_at = *sum_of(own, 0, place.process) * width;
  return extent;
}

/// Whether each side's counts, if it has any, add up to at most `most_bytes`.
Result<void> check_sums(const PostArguments& arguments, const ProcessPlace& place,
                        std::uint64_t most_bytes) {
  const SplitSides sides = split_sides(arguments, place);
  for (const auto& [side, counts] : {std::pair("input", sides.input), {"output", sides.output}}) {
    if (counts == nullptr) continue;
    const auto sum = sum_of(counts, 0, place.processes);
    if (sum && *sum <= most_bytes / element_bytes(arguments.call.datatype)) continue;
    const std::uint64_t* const largest = std::max_element(counts, counts + place.processes);
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the {0}_counts of {1} add up to more than an op can have, 2^47 bytes: process "
                    "{2} has the largest, {3} {4}",
                    side, name_of(arguments.call.collective), largest - counts, *largest,
                    name_of(arguments.call.datatype)));
  }
  return {};
}

/// Whether what a process sends to itself by splits is what it receives from itself.
Result<void> check_own_block(const PostArguments& arguments, const ProcessPlace& place) {
  const CollectiveCall& call = arguments.call;
  const SplitSides sides = split_sides(arguments, place);
  const auto own = [&](const std::uint64_t* counts) {
    return counts != nullptr ? counts[place.process] : call.count;
  };
  if (own(sides.input) == own(sides.output)) return {};
  if (call.collective == Collective::kAllToAll) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("all-to-all sends {} elements from process {} to itself, and receives "
                            "{} there: its own block must have one size on both sides",
                            own(sides.input), place.process, own(sides.output)));
  }
  const std::uint64_t* const given = sides.input != nullptr ? sides.input : sides.output;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} has count {}, but its counts give {} to the root itself, process {}: "
                          "both must be the same",
                          name_of(call.collective), call.count, own(given), place.process));
}

/// Whether the caller's memory, if it told its sizes, has what the op reads and writes.
Result<void> check_room(const PostArguments& arguments, const ProcessPlace& place,
                        const CollectiveExtent& extent) {
  if (!arguments.sizes) return {};
  const CollectiveCall& call = arguments.call;
  const SplitSides sides = split_sides(arguments, place);
  const auto check = [&](const char* side, std::uint64_t has, std::uint64_t needs,
                         bool has_splits) {
    if (has >= needs) return Result<void>{};
    std::string what = fmt::format("{} {}", call.count, name_of(call.datatype));
    if (has_splits) {
      what = fmt::format("{} {}, the sum of its {}_counts", needs / element_bytes(call.datatype),
                         name_of(call.datatype), side);
    } else if (needs != call.count * element_bytes(call.datatype)) {
      what += fmt::format(" for each of {} processes", place.processes);
    }
    return Result<void>(
        fail(ErrorCode::kInvalidArgument,
             fmt::format("the {0} of {1} has {2} bytes ({0}_bytes) and needs {3}, {4}: pass more "
                         "memory or a smaller count",
                         side, name_of(call.collective), has, needs, what)));
  };
  auto fits = check("input", arguments.sizes->input, extent.input, sides.input != nullptr);
  if (!fits) return fits;
  return check("output", arguments.sizes->output, extent.output, sides.output != nullptr);
}

/// Of what an encoding loses: who keeps it, and that it lies apart from all else.
Result<void> check_residuals(const PostArguments& arguments, const GroupConfig& config,
                             const CollectiveExtent& extent) {
  const auto refuse = [](std::string text) {
    return Result<void>(fail(ErrorCode::kInvalidArgument, std::move(text)));
  };
  const float* const in = arguments.residual_in;
  const float* const out = arguments.residual_out;
  if (in == nullptr && out == nullptr) return {};
  if (arguments.call.wire == WireFormat::kSame) {
    return refuse(
        "residual_in and residual_out of a call whose wire is same: nothing is lost, so "
        "both must be NULL");
  }
  if (out == nullptr) return refuse("residual_out is NULL and residual_in is not");
  if (config.member != 0) {
    return refuse(
        fmt::format("residual_out of process {}, which is member {} of rank {}: what the "
                    "rank's encoding loses is written at its member 0 alone",
                    config.process(), config.member, config.rank));
  }
  const std::uint64_t bytes = extent.input / element_bytes(arguments.call.datatype) * sizeof(float);
  const auto apart = [](const void* a, std::uint64_t a_bytes, const void* b,
                        std::uint64_t b_bytes) {
    return a == nullptr || b == nullptr ||
           !overlap(static_cast<const std::byte*>(a), static_cast<const std::byte*>(b), a_bytes,
                    b_bytes);
  };
  if (!apart(out, bytes, in, bytes) || !apart(out, bytes, arguments.input, extent.input) ||
      !apart(out, bytes, arguments.output, extent.output) ||
      !apart(in, bytes, arguments.output, extent.output)) {
    return refuse(
        "residual_out overlaps residual_in, the input or the output, or residual_in the "
        "output: a packet that is lost is made twice, and must be the same then");
  }
  return {};
}

}  // namespace

bool has_splits(const gw_group& group, const PostArguments& arguments) {
  const GroupConfig& config = group.config;
  return split_sides(arguments, {config.process(), config.processes().count()}).any();
}

Result<std::shared_ptr<gw_work>> make_work(const gw_group& group, const PostArguments& arguments) {
  const CollectiveCall& call = arguments.call;
  const GroupConfig& config = group.config;
  if (config.folds_only()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("rank {} has no members: it sums for the others, and calls nothing",
                            config.rank));
  }
  if (config.transfers_alone && !is_transfer(call.collective)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("no {} in a group for transfers alone", name_of(call.collective)));
  }
  const ProcessPlace place{config.process(), config.processes().count()};
  if (call.root >= place.processes) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} of {} is {}: it must be one of the group's {} processes, 0 to {}",
                    has_partner(call.collective) ? "the other process" : "root",
                    name_of(call.collective), call.root, place.processes, place.processes - 1));
  }
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 47;
  const auto extent = split_sides(arguments, place).any() ? extent_of_splits(arguments, place)
                                                          : extent_of(call, place);
  if (!extent || std::max(extent->input, extent->output) > kMaxBytes) {
    if (auto counts = check_sums(arguments, place, kMaxBytes); !counts) {
      return tl::unexpected(counts.error());
    }
    const auto whole = whole_count(call, place.processes);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} elements of {}{} are more than an op can have: 2^47 bytes",
                            call.count, name_of(call.datatype),
                            !whole || *whole != call.count
                                ? fmt::format(" for each of {} processes", place.processes)
                                : std::string{}));
  }
  if (auto room = check_room(arguments, place, *extent); !room) return tl::unexpected(room.error());
  if (extent->input != 0 && arguments.input == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "input is NULL");
  }
  if (extent->output != 0 && arguments.output == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "output is NULL");
  }
  if (auto good = check_residuals(arguments, config, *extent); !good) {
    return tl::unexpected(good.error());
  }
  auto work = std::make_shared<gw_work>();
  work->call = call;
  work->extent = *extent;
  work->input = extent->input != 0 ? arguments.input : nullptr;
  work->output = extent->output != 0 ? arguments.output : nullptr;
  if (arguments.residual_out != nullptr && call.count != 0) {
    work->residual_in = reinterpret_cast<const std::byte*>(arguments.residual_in);
    work->residual_out = reinterpret_cast<std::byte*>(arguments.residual_out);
    work->residual_bytes = extent->input / element_bytes(call.datatype) * sizeof(float);
  }
  work->stream = arguments.stream;
  work->up_to = arguments.up_to;
  if (!may_lie(reinterpret_cast<std::uintptr_t>(work->input),
               reinterpret_cast<std::uintptr_t>(work->output), *extent)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("input and output of {} overlap in part: they must have no memory in "
                            "common{}",
                            name_of(call.collective), in_place_rule(*extent)));
  }
  if (auto own = check_own_block(arguments, place); !own) return tl::unexpected(own.error());
  return work;
}

}  // namespace gradwire::client
