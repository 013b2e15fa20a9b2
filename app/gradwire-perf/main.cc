// SPDX-License-Identifier: BSD-3-Clause
// gradwire-perf: all-reduce timed and checked. Exceptions of libraries end here.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>

#include "bench_eal.h"
#include "ipc/standard_descriptors.h"
#include "options.h"
#include "report.h"
#include "runner.h"
#include "transport.h"

namespace gradwire::perf {
namespace {

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kWrong = 3;  ///< it ran, and results are wrong

int complain(const std::string& text, int status) {
  fmt::print(stderr, "gradwire-perf: {}\n", text);
  return status;
}

int write_json(const Options& options, const std::vector<SizeResult>& results,
               const std::string& note) {
  const std::string text = to_json(options, results, note).dump(2);
  if (options.json == "-") {
    fmt::print("{}\n", text);
    return kOk;
  }
  std::ofstream file(options.json);
  file << text << '\n';
  file.close();
  if (!file) return complain(fmt::format("{} could not be written", options.json), kFailed);
  return kOk;
}

int main_with(int argc, char** argv) {
  const auto command_line = parse_command_line(argc, argv);
  if (!command_line) return complain(command_line.error().message, kUsage);
  if (command_line->finished) return kOk;
  const Options& options = command_line->options;
  const auto transport = make_transport(options);
  if (!transport) return complain(transport.error().message, kUsage);
  // One table for all ranks; JSON on standard output is alone there.
  const bool shows = options.rank == 0 && options.member == 0 && options.json != "-";
  if (shows) fmt::print("{}", table_head(options));
  std::string note;
  const auto results = run(options, **transport, [&](const SizeResult& result) {
    if (note.empty()) {
      note = (*transport)->note();
      if (shows && !note.empty()) fmt::print("# {}\n", note);
    }
    if (shows) fmt::print("{}", table_row(options, result));
    std::fflush(stdout);
  });
  if (!results) return complain(results.error().message, kFailed);
  if (!options.json.empty()) {
    if (const int written = write_json(options, *results, note); written != kOk) return written;
  }
  const bool wrong = std::any_of(results->begin(), results->end(), [](const SizeResult& result) {
    return result.wrong.value_or(0) != 0;
  });
  return wrong ? kWrong : kOk;
}

}  // namespace
}  // namespace gradwire::perf

int main(int argc, char** argv) {
  if (!gradwire::ipc::open_standard_descriptors()) return 1;
  int status = gradwire::perf::kFailed;
  try {
    status = gradwire::perf::main_with(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gradwire-perf: {}\n", error.what());
  }
  if (gradwire::perf::leave_bench_eal()) {
    std::fflush(nullptr);
    _exit(status);
  }
  return status;
}
