// SPDX-License-Identifier: BSD-3-Clause
#include "report.h"

#include <catch2/catch.hpp>

using namespace gradwire::perf;

TEST_CASE("percentiles are times that were measured") {
  std::vector<double> times;
  for (int i = 200; i >= 1; --i) times.push_back(i * 1e-6);
  const SizeResult result = summarize(1000, 250, times);
  CHECK(result.p50_s == Approx(100e-6));
  CHECK(result.p99_s == Approx(198e-6));
  CHECK(result.min_s == Approx(1e-6));
  CHECK(result.mean_s == Approx(100.5e-6));
  const SizeResult one = summarize(8, 2, {3e-6});
  CHECK(one.p50_s == 3e-6);
  CHECK(one.p99_s == 3e-6);
}

TEST_CASE("bandwidths are those of nccl-tests") {
  const SizeResult result = summarize(1000, 250, {1e-6});
  CHECK(algbw(result) == Approx(1e9));
  CHECK(busbw(result, 4) == Approx(1.5e9));
  CHECK(busbw(result, 1) == 0);
  using gradwire::Collective;
  CHECK(busbw(result, 4, Collective::kAllReduce) == Approx(1.5e9));
  CHECK(busbw(result, 4, Collective::kAllGather) == Approx(0.75e9));
  CHECK(busbw(result, 4, Collective::kReduceScatter) == Approx(0.75e9));
  CHECK(busbw(result, 4, Collective::kBroadcast) == Approx(1e9));
  CHECK(busbw(result, 4, Collective::kReduce) == Approx(1e9));
  CHECK(busbw(result, 4, Collective::kBarrier) == 0);
  CHECK(busbw(result, 1, Collective::kBroadcast) == 0);
}

TEST_CASE("the head, a row and the JSON say which collective it was") {
  Options options;
  options.nranks = 2;
  options.members = 2;
  options.collective = gradwire::Collective::kBroadcast;
  options.root = 3;
  const SizeResult result = summarize(1024, 256, {2e-6});
  CHECK_THAT(table_head(options), Catch::Contains("broadcast from process 3, 2 ranks of 2"));
  CHECK_THAT(table_row(options, result), Catch::Contains("fp32   none"));
  CHECK(to_json(options, {})["collective"] == "broadcast");
  CHECK(to_json(options, {})["root"] == 3);
  options.collective = gradwire::Collective::kReduce;
  CHECK_THAT(table_head(options), Catch::Contains("reduce to process 3"));
  CHECK(to_json(Options{}, {})["collective"] == "all-reduce");
  CHECK(to_json(Options{}, {})["root"].is_null());
}

TEST_CASE("a row has the columns of the head") {
  Options options;
  options.nranks = 2;
  SizeResult result = summarize(1024, 256, {2e-6});
  CHECK_THAT(table_head(options),
             Catch::Contains("size") && Catch::Contains("#wrong") && Catch::Contains("2 ranks"));
  CHECK(table_row(options, result) ==
        "        1024          256   fp32    sum        2.00        2.00    0.512    0.512     "
        "N/A      N/A       N/A       N/A     N/A      N/A\n");
  result.wrong = 3;
  CHECK_THAT(table_row(options, result), Catch::Contains("0.512       3 "));
  CHECK(to_json(options, {result})["results"][0]["wrong"] == 3);
}

TEST_CASE("costs are of all CPUs that worked, by byte and by packet sent") {
  SizeResult result = summarize(1'000'000, 250'000, {1e-3, 1e-3});
  result.cost.ops = 2;
  result.cost.wall_s = 2e-3;
  result.cost.cpu_s = 1e-3;
  result.cost.other_cpu_s = 3e-3;
  result.cost.machine_cpu_s = 9e-3;
  result.cost.cycles_per_s = 1e9;
  result.cost.counters = {{kTxPackets, 1000}, {kRetransmissions, 7}};
  const Rates rates = rates_of(result);
  CHECK(rates.cpu_s_per_gb == Approx(2.0));
  CHECK(rates.cycles_per_byte == Approx(2.0));
  CHECK(rates.cycles_per_packet == Approx(4000.0));
  CHECK(rates.packets_per_s == Approx(500'000.0));
  CHECK(rates.retransmissions == 7u);
  const auto json = to_json(Options{}, {result})["results"][0];
  CHECK(json["counters"]["tx_packets"] == 1000);
  CHECK(json["cpu_s_per_gb"] == Approx(2.0));
  CHECK(json["machine_cpu_s"] == Approx(9e-3));
}

TEST_CASE("what is not known is said to be so") {
  const SizeResult nothing = summarize(0, 0, {1e-6});
  const Rates rates = rates_of(nothing);
  CHECK_FALSE(rates.cpu_s_per_gb.has_value());
  CHECK_FALSE(rates.cycles_per_byte.has_value());
  CHECK_FALSE(rates.packets_per_s.has_value());
  CHECK(to_json(Options{}, {nothing})["results"][0]["retransmissions"].is_null());
  CHECK(to_json(Options{}, {nothing})["results"][0]["machine_cpu_s"].is_null());
}
