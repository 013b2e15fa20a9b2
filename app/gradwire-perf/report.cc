// SPDX-License-Identifier: BSD-3-Clause
#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "client/version.h"

namespace gradwire::perf {
namespace {

/// Nearest rank: the smallest time that `share` of all do not exceed.
double percentile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

std::optional<std::uint64_t> counter(const Counters& counters, const char* name) {
  for (const Counter& one : counters) {
    if (one.name == name) return one.value;
  }
  return std::nullopt;
}

template <class Number>
std::string text_of(const std::optional<Number>& number, const char* format) {
  return number ? fmt::format(fmt::runtime(format), *number) : "N/A";
}

template <class Number>
nlohmann::json json_of(const std::optional<Number>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json(nullptr);
}

constexpr const char* kRowFormat =
    "{:>12} {:>12} {:>6} {:>6} {:>11} {:>11} {:>8} {:>8} {:>7} {:>8} {:>9} {:>9} {:>7} {:>8}\n";

}  // namespace

Rates rates_of(const SizeResult& result) {
  const Cost& cost = result.cost;
  const double bytes = static_cast<double>(result.bytes) * cost.ops;
  const double cpu_s = cost.cpu_s + cost.other_cpu_s.value_or(0);
  const auto packets = counter(cost.counters, kTxPackets);
  Rates rates;
  rates.retransmissions = counter(cost.counters, kRetransmissions);
  if (bytes > 0) rates.cpu_s_per_gb = cpu_s / (bytes / 1e9);
  if (cost.cycles_per_s && bytes > 0) rates.cycles_per_byte = cpu_s * *cost.cycles_per_s / bytes;
  if (packets && *packets > 0) {
    if (cost.cycles_per_s) {
      rates.cycles_per_packet = cpu_s * *cost.cycles_per_s / static_cast<double>(*packets);
    }
    if (cost.wall_s > 0) rates.packets_per_s = static_cast<double>(*packets) / cost.wall_s;
  }
  return rates;
}

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

double busbw(const SizeResult& result, std::uint32_t nranks, Collective collective) noexcept {
  const double others = (nranks - 1.0) / nranks;
  switch (collective) {
    case Collective::kAllReduce:
      return algbw(result) * 2.0 * others;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return algbw(result) * others;
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kSend:
    case Collective::kRecv:
      return nranks > 1 ? algbw(result) : 0;
    case Collective::kBarrier:
      break;
  }
  return 0;
}

namespace {

/// "all-reduce", "broadcast from process 3".
std::string title_of(const Options& options) {
  std::string title(options.collective == Collective::kSend ? "send-recv"
                                                            : name_of(options.collective));
  if (has_root(options.collective)) {
    const bool collects =
        options.collective == Collective::kReduce || options.collective == Collective::kGather;
    title += fmt::format(" {} process {}", collects ? "to" : "from", options.root);
  }
  if (options.wire != WireFormat::kSame) title += fmt::format(" as {}", name_of(options.wire));
  return title;
}

/// As nccl-tests has it.
std::string_view redop_of(const Options& options) {
  return reduces(options.collective) ? name_of(options.redop) : "none";
}

}  // namespace

std::string table_head(const Options& options) {
  std::string text = fmt::format(
      "# gradwire-perf {}: {}, {} ranks of {} members, transport {}, {}, {} warm-up and {} timed "
      "ops\n",
      GRADWIRE_VERSION, title_of(options), options.nranks, options.members, options.transport,
      options.in_place ? "in place" : "out of place", options.warmup, options.iterations);
  // The first column starts with the sign of a comment.
  const auto line = [&](auto... names) {
    std::string head = fmt::format(fmt::runtime(kRowFormat), names...);
    head.front() = '#';
    text += head;
  };
  line("size", "count", "type", "redop", "time(p50)", "time(p99)", "algbw", "busbw", "#wrong",
       "cyc/B", "cyc/pkt", "pkt/s", "retx", "CPU s/GB");
  line("(B)", "(elements)", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "", "", "", "", "");
  return text;
}

std::string table_row(const Options& options, const SizeResult& result) {
  const Rates rates = rates_of(result);
  return fmt::format(
      fmt::runtime(kRowFormat), result.bytes, result.count, name_of(options.datatype),
      redop_of(options), fmt::format("{:.2f}", result.p50_s * 1e6),
      fmt::format("{:.2f}", result.p99_s * 1e6), fmt::format("{:.3f}", algbw(result) / 1e9),
      fmt::format("{:.3f}", busbw(result, options.nranks, options.collective) / 1e9),
      text_of(result.wrong, "{}"), text_of(rates.cycles_per_byte, "{:.3f}"),
      text_of(rates.cycles_per_packet, "{:.0f}"), text_of(rates.packets_per_s, "{:.0f}"),
      text_of(rates.retransmissions, "{}"), text_of(rates.cpu_s_per_gb, "{:.3f}"));
}

nlohmann::json to_json(const Options& options, const std::vector<SizeResult>& results,
                       const std::string& note) {
  nlohmann::json out = {
      {"program", "gradwire-perf"},
      {"version", GRADWIRE_VERSION},
      {"transport", options.transport},
      {"rank", options.rank},
      {"nranks", options.nranks},
      {"member", options.member},
      {"members", options.members},
      {"datatype", name_of(options.datatype)},
      {"redop", redop_of(options)},
      {"wire", name_of(options.wire)},
      {"in_place", options.in_place},
      {"collective", name_of(options.collective)},
      {"root", has_root(options.collective) ? nlohmann::json(options.root) : nlohmann::json()},
      {"note", note},
      {"warmup", options.warmup},
      {"iterations", options.iterations},
      {"results", nlohmann::json::array()}};
  for (const SizeResult& result : results) {
    const Rates rates = rates_of(result);
    nlohmann::json counters = nlohmann::json::object();
    for (const Counter& one : result.cost.counters) counters[one.name] = one.value;
    out["results"].push_back(
        {{"size_bytes", result.bytes},
         {"count", result.count},
         {"time_p50_us", result.p50_s * 1e6},
         {"time_p99_us", result.p99_s * 1e6},
         {"time_min_us", result.min_s * 1e6},
         {"time_mean_us", result.mean_s * 1e6},
         {"algbw_bytes_per_s", algbw(result)},
         {"busbw_bytes_per_s", busbw(result, options.nranks, options.collective)},
         {"wrong", json_of(result.wrong)},
         {"iterations", result.cost.ops},
         {"cycles_per_byte", json_of(rates.cycles_per_byte)},
         {"cycles_per_packet", json_of(rates.cycles_per_packet)},
         {"packets_per_s", json_of(rates.packets_per_s)},
         {"retransmissions", json_of(rates.retransmissions)},
         {"cpu_s_per_gb", json_of(rates.cpu_s_per_gb)},
         {"cpu_s", result.cost.cpu_s},
         {"other_cpu_s", json_of(result.cost.other_cpu_s)},
         {"machine_cpu_s", json_of(result.cost.machine_cpu_s)},
         {"wall_s", result.cost.wall_s},
         {"cycles_per_s", json_of(result.cost.cycles_per_s)},
         {"counters", std::move(counters)}});
  }
  return out;
}

}  // namespace gradwire::perf
