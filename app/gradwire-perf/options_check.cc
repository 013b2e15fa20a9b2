// SPDX-License-Identifier: BSD-3-Clause
// Which options go together.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "options.h"
#include "tcp/tcp_rendezvous.h"
#include "wire/frame.h"

namespace gradwire::perf {
namespace {

constexpr std::array<std::string_view, 5> kTransports = {"daemon", "tcp", "rdma", "gradwire",
                                                         "bare"};

/// Whether it has ports of its own.
bool has_ports(const Options& options) {
  return options.transport == "gradwire" || options.transport == "bare";
}

Result<void> check_transport(const Options& options) {
  if (std::find(kTransports.begin(), kTransports.end(), options.transport) == kTransports.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--transport '{}' must be daemon, tcp, rdma, gradwire or bare",
                            options.transport));
  }
  if (!options.eal_arguments.empty() && !has_ports(options)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' stands before \"--\", but only the EAL's arguments do, and transport {} "
                    "does not start the EAL: put it after \"--\", or leave \"--\" out",
                    options.eal_arguments.front(), options.transport));
  }
  return {};
}

Result<void> check_embedded(const Options& options) {
  const EmbeddedOptions& embedded = options.embedded;
  if (!has_ports(options)) {
    if (embedded.ports.empty()) return {};
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--port is for transports gradwire and bare, not {}", options.transport));
  }
  if (embedded.ports.empty() && options.nranks > 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("transport {} needs --port DEVICE=ADDRESS/BITS, once for each port",
                            options.transport));
  }
  if (options.transport == "bare" && (options.nranks != 2 || embedded.ports.size() != 1)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "transport bare takes 2 ranks with one --port each, and was given {} ranks with {}",
            options.nranks, embedded.ports.size()));
  }
  if (embedded.payload_bytes % 64 != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--payload {}: must be a multiple of 64, or 0 for what the ports carry",
                            embedded.payload_bytes));
  }
  return {};
}

Result<void> check_security(const Options& options) {
  const auto refuse = [](std::string text) {
    return fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  const bool own = options.transport == "gradwire";
  if (!options.security.empty() && options.transport != "daemon" && !own) {
    return refuse(fmt::format(
        "--security {}: transport {} seals no packet; transports daemon and gradwire do",
        options.security, options.transport));
  }
  if (own && options.key_file.empty() && !options.security.empty() && options.security != "off") {
    return refuse(
        fmt::format("--security {}: transport gradwire needs --key-file, by gradwire key "
                    "make",
                    options.security));
  }
  if (!options.key_file.empty() && !own) {
    return refuse(
        fmt::format("--key-file {}: transport {} has no key of its own; daemons have "
                    "theirs by security.key_file",
                    options.key_file, options.transport));
  }
  if (options.tcp.tls &&
      (options.transport != "tcp" || options.tcp.io != TcpIo::kPoll || options.tcp.zerocopy)) {
    return refuse(
        "--tls is for --transport tcp with --tcp-io poll and without --tcp-zerocopy: OpenSSL reads "
        "and writes by system calls, and seals into buffers of its own");
  }
  return {};
}

Result<void> check_collective(const Options& options) {
  const auto refuse = [](std::string text) {
    return fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  const std::string_view name = name_of(options.collective);
  if (options.collective != Collective::kAllReduce && options.transport != "daemon") {
    return refuse(fmt::format(
        "--collective {}: transport {} does all-reduce only; transport daemon does all collectives",
        name, options.transport));
  }
  if (options.in_place &&
      (options.collective == Collective::kAllToAll || has_partner(options.collective))) {
    return refuse(fmt::format("--in-place: {} cannot be in place", name));
  }
  if (options.root != 0 && !has_root(options.collective)) {
    return refuse(fmt::format("--root {}: {} has no root", options.root, name));
  }
  const std::uint32_t processes = place_of(options).processes;
  if (options.root >= processes) {
    return refuse(fmt::format("--root {}: must be one of the {} processes, 0 to {}", options.root,
                              processes, processes - 1));
  }
  if (!fits(options.redop, options.datatype)) {
    return refuse(fmt::format("--op {}: it {}, not {}", name_of(options.redop),
                              misfit_of(options.redop), name_of(options.datatype)));
  }
  if (options.redop == RedOp::kPremulSum && options.transport != "daemon") {
    return refuse(
        fmt::format("--op premul_sum: --transport {} does not multiply", options.transport));
  }
  if (options.redop != RedOp::kSum && !reduces(options.collective)) {
    return refuse(fmt::format("--op {}: {} reduces nothing", name_of(options.redop), name));
  }
  if (options.wire != WireFormat::kSame && options.transport != "daemon") {
    return refuse(fmt::format("--wire {}: transport {} has no formats; transport daemon has them",
                              name_of(options.wire), options.transport));
  }
  if (auto sealed = check_security(options); !sealed) return sealed;
  if (!fits(options.wire, options.collective, options.redop, options.datatype)) {
    return refuse(fmt::format("--wire {}: {} {} of {} cannot travel so: {}", name_of(options.wire),
                              name, name_of(options.redop), name_of(options.datatype),
                              misfit_of(options.wire, options.collective, options.redop)));
  }
  return {};
}

Result<void> check_processes_and_sizes(const Options& options) {
  const auto refuse = [](std::string text) {
    return fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  if (options.rank >= options.nranks) {
    return refuse(fmt::format("--rank {} with --nranks {}: must be 0 to {}", options.rank,
                              options.nranks, options.nranks - 1));
  }
  if (options.member >= options.members) {
    return refuse(fmt::format("--member {} with --members {}: must be 0 to {}", options.member,
                              options.members, options.members - 1));
  }
  if (options.nranks * options.members > 1 && options.rendezvous.empty()) {
    return refuse(
        "several processes need --rendezvous: a directory that all of them see, or tcp://HOST:PORT "
        "of the host that runs rank 0");
  }
  if (is_tcp_rendezvous(options.rendezvous)) {
    if (auto place = parse_tcp_rendezvous(options.rendezvous); !place) {
      return tl::unexpected(place.error());
    }
  }
  if (options.nranks + options.folding_ranks > kMaxRanks) {
    return refuse(fmt::format("--nranks {} and --folding-ranks {}: a group has {} ranks at most",
                              options.nranks, options.folding_ranks, kMaxRanks));
  }
  if (options.folding_ranks != 0 &&
      (options.transport != "daemon" || is_tcp_rendezvous(options.rendezvous))) {
    return refuse(fmt::format(
        "--folding-ranks {}: hosts that only sum are for transport daemon, and meet the others in "
        "--rendezvous DIRECTORY, by python3 -m gradwire.fold --prefix gradwire-perf --store "
        "DIRECTORY at each of them",
        options.folding_ranks));
  }
  if (options.transport != "daemon" && options.members > 1) {
    return refuse(fmt::format(
        "--members {}: transport {} has one member a rank; only transport daemon has more",
        options.members, options.transport));
  }
  constexpr std::uint64_t kMaxChunk = 64u << 20;
  const TcpOptions& tcp = options.tcp;
  if (tcp.chunk_bytes % 64 != 0 || tcp.chunk_bytes == 0 || tcp.chunk_bytes > kMaxChunk) {
    return refuse(fmt::format("--tcp-chunk {}: must be a multiple of 64, at most {}",
                              tcp.chunk_bytes, kMaxChunk));
  }
  if (tcp.exchange_bytes > kMaxChunk || tcp.buffer_bytes > (1u << 30)) {
    return refuse(fmt::format("--tcp-exchange {} and --tcp-buffer {}: must be at most {} and {}",
                              tcp.exchange_bytes, tcp.buffer_bytes, kMaxChunk, 1u << 30));
  }
  if (tcp.address.empty() || tcp.address.size() > 61) {
    return refuse(fmt::format("--tcp-address '{}': must have 1 to 61 characters", tcp.address));
  }
  const RdmaOptions& rdma = options.rdma;
  if (rdma.chunk_bytes % 64 != 0 || rdma.chunk_bytes == 0 || rdma.chunk_bytes > kMaxChunk ||
      rdma.exchange_bytes > kMaxChunk) {
    return refuse(
        fmt::format("--rdma-chunk {} and --rdma-exchange {}: must be a multiple of 64 and "
                    "at most {}, both",
                    rdma.chunk_bytes, rdma.exchange_bytes, kMaxChunk));
  }
  if (!wire::parse_ip(rdma.address)) {
    return refuse(
        fmt::format("--rdma-address '{}': must be an IPv4 or IPv6 address", rdma.address));
  }
  if (options.end_bytes < options.begin_bytes) {
    return refuse(fmt::format("-e {} is less than -b {}", options.end_bytes, options.begin_bytes));
  }
  return {};
}

}  // namespace

Result<void> check_options(const Options& options) {
  for (const auto check :
       {check_transport, check_collective, check_embedded, check_processes_and_sizes}) {
    if (auto fits = check(options); !fits) return fits;
  }
  return {};
}

}  // namespace gradwire::perf
