// SPDX-License-Identifier: BSD-3-Clause
#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "client/version.h"

namespace gradwire::perf {
namespace {

/// Ways to all-reduce that are planned, and what they come with.
struct LaterTransport {
  const char* name;
  const char* issue;
};
constexpr std::array kLaterTransports = {
    LaterTransport{"embedded", "embedded mode, where the caller drives the lane"},
};

Result<void> check_transport(const std::string& name) {
  if (name == "daemon") return {};
  for (const auto& later : kLaterTransports) {
    if (name != later.name) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("transport '{}' is not in this version: it comes with the issue on {}; "
                            "use --transport daemon",
                            name, later.issue));
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("transport '{}' is unknown: daemon is possible", name));
}

Result<void> check(const Options& options) {
  const auto refuse = [](std::string text) {
    return fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  if (options.rank >= options.nranks) {
    return refuse(fmt::format("--rank {} of --nranks {}: 0 to {} are possible", options.rank,
                              options.nranks, options.nranks - 1));
  }
  if (options.member >= options.members) {
    return refuse(fmt::format("--member {} of --members {}: 0 to {} are possible", options.member,
                              options.members, options.members - 1));
  }
  if (options.nranks * options.members > 1 && options.rendezvous.empty()) {
    return refuse("more than one process needs --rendezvous: a directory that all of them see");
  }
  if (options.end_bytes < options.begin_bytes) {
    return refuse(fmt::format("-e {} is less than -b {}", options.end_bytes, options.begin_bytes));
  }
  return {};
}

}  // namespace

Result<CommandLine> parse_command_line(int argc, const char* const* argv) {
  CommandLine result;
  Options& options = result.options;
  std::string datatype = "fp32";
  std::string redop = "sum";
  CLI::App app(
      "Times all-reduce as nccl-tests does, and checks every bit of it against a reference.\n"
      "Run it once for each member of each rank, with the same options but --rank, --member and\n"
      "--socket.",
      "gradwire-perf");
  app.set_version_flag("--version", "gradwire-perf " GRADWIRE_VERSION);
  app.option_defaults()->always_capture_default();
  const CLI::AsSizeValue as_size(false);  // K, M, G are powers of 1024, as in nccl-tests
  app.add_option("--transport", options.transport, "What carries the ops");
  app.add_option("--socket", options.socket, "The daemon's control socket");
  app.add_option("--rank", options.rank, "Of this process's daemon");
  app.add_option("--nranks", options.nranks, "Daemons")->check(CLI::Range(1u, kMaxRanks));
  app.add_option("--member", options.member, "Of this process within its rank");
  app.add_option("--members", options.members, "Processes at each daemon")
      ->check(CLI::Range(1u, kMaxMembers));
  app.add_option("--rendezvous", options.rendezvous, "Directory that all ranks see, of this run");
  app.add_option("--epoch", options.epoch, "Another one for each run in the same directory");
  app.add_option("-b,--begin", options.begin_bytes, "Smallest size in bytes; K, M, G")
      ->transform(as_size);
  app.add_option("-e,--end", options.end_bytes, "Largest size in bytes; K, M, G")
      ->transform(as_size);
  app.add_option("-f,--factor", options.factor, "From one size to the next")
      ->check(CLI::Range(1.01, 1e6));
  app.add_option("-n,--iterations", options.iterations, "Timed ops of each size")
      ->check(CLI::Range(1u, 10'000'000u));
  app.add_option("-w,--warmup", options.warmup, "Ops of each size before those")
      ->check(CLI::Range(0u, 10'000'000u));
  app.add_option("-d,--datatype", datatype, "fp32 fp64 fp16 bf16 int8 int32 int64 uint8");
  app.add_option("-o,--op", redop, "sum avg min max prod");
  app.add_flag("--check", options.check, "Compare every element with the reference");
  app.add_flag("--in-place", options.in_place, "Output where the input is");
  app.add_option("--timeout", options.timeout_s, "Seconds for the formation, and for each op")
      ->check(CLI::Range(0.01, 3600.0));
  app.add_option("--json", options.json, "File for the results as JSON; - is standard output");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);
      result.finished = true;
      return result;
    }
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
  const auto parsed_type = parse_datatype(datatype);
  if (!parsed_type) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("datatype '{}': fp32, fp64, fp16, bf16, int8, int32, int64 and uint8 "
                            "are possible",
                            datatype));
  }
  const auto parsed_redop = parse_redop(redop);
  if (!parsed_redop) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("op '{}': sum, avg, min, max and prod are possible", redop));
  }
  options.datatype = *parsed_type;
  options.redop = *parsed_redop;
  if (auto known = check_transport(options.transport); !known) return tl::unexpected(known.error());
  if (auto valid = check(options); !valid) return tl::unexpected(valid.error());
  return result;
}

std::vector<std::uint64_t> sizes_of(const Options& options) {
  const std::uint64_t element = element_bytes(options.datatype);
  std::vector<std::uint64_t> sizes;
  double exact = static_cast<double>(options.begin_bytes);
  while (exact <= static_cast<double>(options.end_bytes)) {
    const std::uint64_t size = static_cast<std::uint64_t>(exact) / element * element;
    if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
    // From nothing, or from so little that the factor is lost in rounding, one element is next.
    exact = std::max(exact * options.factor, exact + static_cast<double>(element));
  }
  return sizes;
}

}  // namespace gradwire::perf
