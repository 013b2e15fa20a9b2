// SPDX-License-Identifier: BSD-3-Clause
#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "client/version.h"

namespace gradwire::perf {
namespace {

/// Nearest rank: the smallest time that `share` of all do not exceed.
double percentile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

SizeResult summarize(std::uint64_t bytes, std::uint64_t count, std::vector<double> times_s) {
  std::sort(times_s.begin(), times_s.end());
  SizeResult result;
  result.bytes = bytes;
  result.count = count;
  result.p50_s = percentile(times_s, 0.5);
  result.p99_s = percentile(times_s, 0.99);
  result.min_s = times_s.front();
  result.mean_s =
      std::accumulate(times_s.begin(), times_s.end(), 0.0) / static_cast<double>(times_s.size());
  return result;
}

double algbw(const SizeResult& result) noexcept {
  return result.p50_s > 0 ? static_cast<double>(result.bytes) / result.p50_s : 0;
}

double busbw(const SizeResult& result, std::uint32_t nranks) noexcept {
  return algbw(result) * 2.0 * (nranks - 1.0) / nranks;
}

std::string table_head(const Options& options) {
  std::string text = fmt::format(
      "# gradwire-perf {}: {} ranks of {} members, transport {}, {}, {} warm-up and {} timed ops\n",
      GRADWIRE_VERSION, options.nranks, options.members, options.transport,
      options.in_place ? "in place" : "out of place", options.warmup, options.iterations);
  text +=
      fmt::format("#{:>11} {:>12} {:>6} {:>6} {:>11} {:>11} {:>8} {:>8} {:>7}\n", "size", "count",
                  "type", "redop", "time(p50)", "time(p99)", "algbw", "busbw", "#wrong");
  text += fmt::format("#{:>11} {:>12} {:>6} {:>6} {:>11} {:>11} {:>8} {:>8} {:>7}\n", "(B)",
                      "(elements)", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
  return text;
}

std::string table_row(const Options& options, const SizeResult& result) {
  return fmt::format("{:>12} {:>12} {:>6} {:>6} {:>11.2f} {:>11.2f} {:>8.3f} {:>8.3f} {:>7}\n",
                     result.bytes, result.count, name_of(options.datatype), name_of(options.redop),
                     result.p50_s * 1e6, result.p99_s * 1e6, algbw(result) / 1e9,
                     busbw(result, options.nranks) / 1e9,
                     result.wrong ? fmt::format("{}", *result.wrong) : "N/A");
}

nlohmann::json to_json(const Options& options, const std::vector<SizeResult>& results) {
  nlohmann::json out = {
      {"program", "gradwire-perf"},        {"version", GRADWIRE_VERSION},
      {"transport", options.transport},    {"rank", options.rank},
      {"nranks", options.nranks},          {"member", options.member},
      {"members", options.members},        {"datatype", name_of(options.datatype)},
      {"redop", name_of(options.redop)},   {"in_place", options.in_place},
      {"warmup", options.warmup},          {"iterations", options.iterations},
      {"results", nlohmann::json::array()}};
  for (const SizeResult& result : results) {
    out["results"].push_back(
        {{"size_bytes", result.bytes},
         {"count", result.count},
         {"time_p50_us", result.p50_s * 1e6},
         {"time_p99_us", result.p99_s * 1e6},
         {"time_min_us", result.min_s * 1e6},
         {"time_mean_us", result.mean_s * 1e6},
         {"algbw_bytes_per_s", algbw(result)},
         {"busbw_bytes_per_s", busbw(result, options.nranks)},
         {"wrong", result.wrong ? nlohmann::json(*result.wrong) : nlohmann::json(nullptr)}});
  }
  return out;
}

}  // namespace gradwire::perf
