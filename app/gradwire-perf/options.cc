// SPDX-License-Identifier: BSD-3-Clause
#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "client/version.h"
#include "collective/shard_config.h"
#include "tcp/tcp_rendezvous.h"
#include "wire/frame.h"

namespace gradwire::perf {
namespace {

constexpr std::uint32_t kMaxIterations = 10'000'000;

/// The names of all that are in one of the tables of base/types.h.
std::vector<std::string_view> names_of(const auto& values) {
  std::vector<std::string_view> names;
  for (const auto value : values) names.push_back(name_of(value));
  return names;
}
/// Of redops that reduce integers, or do not, and floats.
std::vector<std::string_view> redops_of(bool integers, bool floats) {
  std::vector<std::string_view> names;
  for (const RedOp redop : kRedOps) {
    if (fits(redop, DataType::kInt32) != integers) continue;
    if (fits(redop, DataType::kFloat32) == floats) names.push_back(name_of(redop));
  }
  return names;
}
/// "a, b or c".
std::string one_of(const std::vector<std::string_view>& names) {
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

template <class Number>
bool read_number(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stopped == end;
}

bool read_size(std::string text, std::uint64_t& bytes) {
  try {
    // It makes a plain number of the text, or says or throws what is wrong with it.
    return CLI::AsSizeValue(false)(text).empty() && read_number(text, bytes);
  } catch (const CLI::Error&) {
    return false;
  }
}

/// Each of `texts` is SIZE or SIZE:ITERATIONS.
Result<std::vector<SizePlan>> parse_sizes(const std::vector<std::string>& texts,
                                          const Options& options) {
  std::vector<SizePlan> plans;
  for (const std::string& text : texts) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    SizePlan plan{0, options.iterations};
    bool good = read_size(text.substr(0, colon), plan.bytes);
    if (colon < text.size()) good = good && read_number(text.substr(colon + 1), plan.iterations);
    if (!good || plan.iterations < 1 || plan.iterations > kMaxIterations) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--sizes '{}': must be a size such as 64 or 16M, or a size with its "
                              "iterations such as 64:2000",
                              text));
    }
    plan.bytes -= plan.bytes % element_bytes(options.datatype);
    plans.push_back(plan);
  }
  return plans;
}

/// Each of `texts` is DEVICE=ADDRESS/BITS or DEVICE=ADDRESS/BITS,MTU.
Result<std::vector<PortOption>> parse_ports(const std::vector<std::string>& texts) {
  std::vector<PortOption> ports;
  for (const std::string& whole : texts) {
    const std::size_t comma = std::min(whole.find(','), whole.size());
    const std::string text = whole.substr(0, comma);
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::size_t slash = std::min(text.find('/', equals), text.size());
    PortOption port;
    port.device = text.substr(0, equals);
    if (equals < text.size()) port.ip = text.substr(equals + 1, slash - equals - 1);
    const auto ip = wire::parse_ip(port.ip);
    if (port.device.empty() || !ip ||
        (slash < text.size() && !read_number(text.substr(slash + 1), port.prefix_bits)) ||
        port.prefix_bits < 1 || port.prefix_bits > (ip->family == 4 ? 32 : 128) ||
        (comma < whole.size() && !read_number(whole.substr(comma + 1), port.mtu))) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "--port '{}': must be DEVICE=ADDRESS/BITS[,MTU], such as net_memif0=10.0.0.1/24",
              whole));
    }
    ports.push_back(port);
  }
  return ports;
}

const std::map<std::string, TcpIo> kTcpIos = {
    {"poll", TcpIo::kPoll}, {"uring", TcpIo::kUring}, {"uring-multishot", TcpIo::kUringMultishot}};

void add_tcp_options(CLI::App& app, TcpOptions& tcp, std::string& wait) {
  const CLI::AsSizeValue as_size(false);
  app.add_option("--tcp-address", tcp.address,
                 "Transport tcp: this rank's address, as other ranks reach it");
  app.add_option("--tcp-chunk", tcp.chunk_bytes,
                 "Bytes that are summed at a time; the same on all ranks")
      ->transform(as_size);
  app.add_option("--tcp-lag", tcp.lag, "Chunks of a hop that are in flight; the same on all ranks")
      ->check(CLI::Range(1u, 1024u));
  app.add_option("--tcp-exchange", tcp.exchange_bytes,
                 "Up to this size two ranks exchange whole inputs; n ranks up to 2/(n(n-1)) of it")
      ->transform(as_size);
  app.add_option("--tcp-buffer", tcp.buffer_bytes,
                 "Buffer of each socket and direction, in bytes; 0: the kernel's own tuning")
      ->transform(as_size);
  app.add_option("--tcp-wait", wait, "busy: spin for ever; sleep: give the core away after a while")
      ->check(CLI::IsMember({"busy", "sleep"}));
  app.add_option_function<std::string>(
         "--tcp-io", [&tcp](const std::string& name) { tcp.io = kTcpIos.at(name); },
         "poll: send and receive by system calls; uring: by io_uring; uring-multishot: by\n"
         "io_uring, with one receive request for all ops")
      ->check(CLI::IsMember(kTcpIos))
      ->default_str("poll");
  app.add_flag("--tls", tcp.tls,
               "TLS 1.3 with AES-128-GCM on each connection, by the kernel if it can, else by "
               "OpenSSL; its key\nis no secret: it shows what TLS costs");
  app.add_flag("--tcp-zerocopy", tcp.zerocopy,
               "Send large pieces without a copy: MSG_ZEROCOPY, or io_uring's own from registered "
               "memory");
}

void add_rdma_options(CLI::App& app, RdmaOptions& rdma) {
  const CLI::AsSizeValue as_size(false);
  app.add_option("--rdma-address", rdma.address,
                 "Transport rdma: this rank's address, as other ranks reach it, which names the "
                 "device too");
  app.add_option("--rdma-device", rdma.device,
                 "RDMA device that has the address; default: whichever has it");
  app.add_option("--rdma-chunk", rdma.chunk_bytes,
                 "Bytes of one write, summed at a time; the same on all ranks")
      ->transform(as_size);
  app.add_option("--rdma-lag", rdma.lag, "Chunks of a hop that are in flight; likewise")
      ->check(CLI::Range(1u, 1024u));
  app.add_option("--rdma-exchange", rdma.exchange_bytes,
                 "Up to this size two ranks exchange whole inputs; n ranks up to 2/(n(n-1)) of it")
      ->transform(as_size);
  app.add_option("--rdma-retry-ms", rdma.retry_ms,
                 "Without an acknowledgement for so long, at least, the device sends again")
      ->check(CLI::Range(1u, 60'000u));
  app.add_option_function<std::string>(
         "--rdma-wait", [&rdma](const std::string& wait) { rdma.busy = wait == "busy"; },
         "busy: poll for ever; sleep: await the device's interrupts after a while")
      ->check(CLI::IsMember({"busy", "sleep"}))
      ->default_str("busy");
}

void add_embedded_options(CLI::App& app, EmbeddedOptions& embedded,
                          std::vector<std::string>& ports) {
  app.add_option("--port", ports,
                 "Transports gradwire and bare: DEVICE=ADDRESS/BITS[,MTU], once for each port");
  app.add_option("--lanes", embedded.lanes,
                 "How many lanes; lane 0 is this thread's, each other one takes a worker lcore")
      ->check(CLI::Range(1u, kMaxLanes));
  app.add_option("--udp-port", embedded.base_udp_port,
                 "UDP port of lane 0; lane i has the i-th after it");
  app.add_option("--payload", embedded.payload_bytes,
                 "Payload of a full packet in bytes; 0: what the ports carry");
  app.add_option("--window", embedded.window_packets,
                 "Packets in flight; 0: as many as hold 512 KiB")
      ->check(CLI::Range(4u, 4096u) | CLI::IsMember({0u}));
  app.add_option("--transit", embedded.transit_packets,
                 "Received packets that may wait to be sent on; 0: as --window")
      ->check(CLI::Range(4u, 4096u) | CLI::IsMember({0u}));
  app.add_option("--eager", embedded.eager_packets,
                 "Packets sent ahead of the receiver's grant; the same on all ranks")
      ->check(CLI::Range(1u, 4096u));
  app.add_option("--exchange", embedded.exchange_bytes,
                 "Up to this size two ranks exchange whole inputs; the same on all ranks")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--direct", embedded.direct_bytes,
                 "Up to this size of all ranks' inputs together they go in one hop, whole KiB; 0: "
                 "never. Rank 0's counts")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{0}, collective::kDirectBytesMax));
  app.add_option("--integrity", embedded.payload_crc,
                 "payload: each payload has a CRC; link: none, over memif alone; the same on all "
                 "ranks")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, bool>{{"payload", true}, {"link", false}}));
  app.add_option("--descriptors", embedded.descriptors, "Of each queue and direction")
      ->check(CLI::Range(32u, 8192u));
  app.add_option("--drop", embedded.faults.drop,
                 "Share of received frames that is dropped on purpose")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--fault-seed", embedded.faults.seed, "The same seed loses the same frames");
  app.add_flag("--busy", embedded.busy,
               "Never give the core away; for lanes with cores of their own");
  app.add_option("--rate", embedded.rate_gbps,
                 "The most that each connection sends, in Gbit/s; 0: no limit")
      ->check(CLI::Range(0.0, 1e4));
  app.add_option("--port-rate", embedded.port_rate_gbps,
                 "The most that each port sends, in Gbit/s; 0: no limit")
      ->check(CLI::Range(0.0, 1e4));
  app.add_option("--tx-trace", embedded.tx_trace,
                 "File for lane 0's last million bursts: port,time_ns,bytes");
}

}  // namespace

Result<CommandLine> parse_command_line(int argc, const char* const* argv) {
  CommandLine result;
  Options& options = result.options;
  std::string datatype = "fp32";
  std::string redop = "sum";
  std::string wire = "same";
  std::string collective = "all-reduce";
  std::vector<std::string> sizes;
  std::string wait = "busy";
  // What stands before "--" is the EAL's.
  const auto* const dashes = std::find_if(
      argv, argv + argc, [](const char* text) { return std::strcmp(text, "--") == 0; });
  if (dashes != argv + argc) {
    options.eal_arguments.assign(argv + 1, dashes);
    argc -= static_cast<int>(dashes - argv);
    argv = dashes;
  }
  CLI::App app(
      "Times collectives as nccl-tests does, and checks every bit of them against a reference.\n"
      "Run it once for each member of each rank, with the same options but --rank, --member and\n"
      "what tells the processes' own addresses. Transport gradwire takes the EAL's arguments too:\n"
      "gradwire-perf [EAL arguments] -- [options].",
      "gradwire-perf");
  app.set_version_flag("--version", "gradwire-perf " GRADWIRE_VERSION);
  app.option_defaults()->always_capture_default();
  const CLI::AsSizeValue as_size(false);  // K, M, G are powers of 1024, as in nccl-tests
  app.add_option(
      "--transport", options.transport,
      "What carries the ops: daemon (daemon and client library), tcp (a ring over the "
      "kernel's TCP),\nrdma (a ring over RoCEv2 by libibverbs), gradwire (lanes of its own, in "
      "this process) or bare\n(what the driver alone gives over a link that loses nothing: no "
      "protocol; 2 ranks)");
  app.add_option("--socket", options.socket, "The daemon's control socket");
  app.add_option("--security", options.security,
                 "Transports daemon and gradwire: off, authenticate or encrypt; without it as "
                 "daemons have it")
      ->check(CLI::IsMember({"off", "authenticate", "encrypt"}));
  app.add_option("--key-file", options.key_file,
                 "Transport gradwire: the key that --security needs, by gradwire key make");
  app.add_option("--rank", options.rank, "Rank of this process's daemon, from 0");
  app.add_option("--nranks", options.nranks, "How many ranks: one for each daemon")
      ->check(CLI::Range(1u, kMaxRanks));
  app.add_option("--folding-ranks", options.folding_ranks,
                 "Hosts beside those that only sum, by python3 -m gradwire.fold");
  app.add_option("--member", options.member, "Number of this process within its rank, from 0");
  app.add_option("--members", options.members, "Processes at each daemon")
      ->check(CLI::Range(1u, kMaxMembers));
  app.add_option("--rendezvous", options.rendezvous,
                 "Directory that all ranks see, or tcp://HOST:PORT of rank 0");
  app.add_option("--epoch", options.epoch, "A number that differs for each run of a rendezvous");
  app.add_option("-b,--begin", options.begin_bytes, "Smallest size; K, M, G are powers of 1024")
      ->transform(as_size);
  app.add_option("-e,--end", options.end_bytes, "Largest size; K, M, G are powers of 1024")
      ->transform(as_size);
  app.add_option("-f,--factor", options.factor, "Factor from one size to the next")
      ->check(CLI::Range(1.01, 1e6));
  app.add_option(
         "--sizes", sizes,
         "These sizes instead, each with iterations of its own if wanted: 64:2000,1M,16M:20")
      ->delimiter(',');
  app.add_option("-n,--iterations", options.iterations, "Timed ops of each size")
      ->check(CLI::Range(1u, kMaxIterations));
  app.add_option("-w,--warmup", options.warmup, "Untimed ops of each size before those")
      ->check(CLI::Range(0u, kMaxIterations));
  app.add_option(
      "--collective", collective,
      "all-reduce reduce-scatter all-gather broadcast reduce all-to-all gather scatter\n"
      "send-recv (each process sends to the next) barrier; a size is that of the larger\n"
      "buffer, as in nccl-tests");
  app.add_option(
      "--root", options.root,
      "Process of a broadcast, reduce, gather or scatter: its rank x members + its member");
  app.add_option("-d,--datatype", datatype, fmt::to_string(fmt::join(names_of(kDataTypes), " ")));
  app.add_option(
      "-o,--op", redop,
      fmt::format("{}; of integers {}; of floats {}, with a\nfactor for each process",
                  fmt::join(redops_of(true, true), " "), fmt::join(redops_of(true, false), " "),
                  fmt::join(redops_of(false, true), " ")));
  app.add_option("--wire", wire, "Transport daemon: how a sum travels (doc/formats.md)")
      ->check(CLI::IsMember({"same", "bf16", "int8"}));
  app.add_flag("--check,!--no-check", options.check,
               "Compare every element of one result of each size with the reference");
  app.add_flag("--in-place", options.in_place, "Write the output over the input");
  app.add_option("--timeout", options.timeout_s,
                 "Seconds that the formation, and each op, may take")
      ->check(CLI::Range(0.01, 3600.0));
  app.add_option("--json", options.json, "File for the results as JSON; - is standard output");
  add_tcp_options(app, options.tcp, wait);
  add_rdma_options(app, options.rdma);
  std::vector<std::string> ports;
  add_embedded_options(app, options.embedded, ports);
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
                fmt::format("--datatype '{}': must be {}", datatype, one_of(names_of(kDataTypes))));
  }
  const auto parsed_redop = parse_redop(redop);
  if (!parsed_redop) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--op '{}': must be {}", redop, one_of(names_of(kRedOps))));
  }
  const auto parsed_collective =
      collective == "send-recv" ? Collective::kSend : parse_collective(collective);
  if (!parsed_collective || (has_partner(*parsed_collective) && collective != "send-recv")) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--collective '{}': must be all-reduce, reduce-scatter, all-gather, "
                            "broadcast, reduce, all-to-all, gather, scatter, send-recv or barrier",
                            collective));
  }
  options.collective = *parsed_collective;
  options.tcp.busy = wait == "busy";
  options.datatype = *parsed_type;
  options.redop = *parsed_redop;
  for (const auto& [format, name] : kWireFormatTable) {
    if (wire == name) options.wire = format;
  }
  auto plans = parse_sizes(sizes, options);
  if (!plans) return tl::unexpected(plans.error());
  options.sizes = std::move(*plans);
  auto parsed_ports = parse_ports(ports);
  if (!parsed_ports) return tl::unexpected(parsed_ports.error());
  options.embedded.ports = std::move(*parsed_ports);
  if (auto valid = check_options(options); !valid) return tl::unexpected(valid.error());
  return result;
}

}  // namespace gradwire::perf
