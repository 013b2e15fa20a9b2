// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The command line of gradwire-perf, named as nccl-tests names it if the two mean the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/collective_call.h"
#include "base/fault_settings.h"
#include "base/result.h"
#include "base/sections.h"
#include "base/types.h"

namespace gradwire::perf {

/// One line of the table.
struct SizePlan {
  std::uint64_t bytes = 0;  ///< whole elements
  std::uint32_t iterations = 0;
  friend bool operator==(const SizePlan&, const SizePlan&) = default;
};

/// How transport tcp asks the kernel: stream_mover.h.
enum class TcpIo : std::uint8_t { kPoll, kUring, kUringMultishot };

/// Options of transport tcp. The defaults were the best that were tried between two cores of a Zen
/// 3: chunks that half fill the L2 cache, and buffers that hold several of them from the first op
/// on.
struct TcpOptions {
  std::string address = "127.0.0.1";         ///< at which others reach this rank
  std::uint64_t chunk_bytes = 256 << 10;     ///< a multiple of 64
  std::uint32_t lag = 1;                     ///< chunks of a hop in flight; the same on all ranks
  std::uint64_t exchange_bytes = 512 << 10;  ///< up to this size two ranks exchange whole inputs
  std::uint64_t buffer_bytes = 4 << 20;      ///< of a socket; 0: the kernel's own tuning
  TcpIo io = TcpIo::kPoll;
  bool zerocopy = false;
  bool tls = false;  ///< TLS 1.3 on each connection
  bool busy = true;  ///< spins without sleeping
};

/// Options of transport rdma. The defaults are not measured on an RDMA NIC.
struct RdmaOptions {
  std::string address = "127.0.0.1";         ///< RoCEv2's; others connect to it by TCP first
  std::string device;                        ///< empty: the one that has the address
  std::uint64_t chunk_bytes = 256 << 10;     ///< of one write; a multiple of 64
  std::uint32_t lag = 2;                     ///< chunks of a hop in flight; the same on all ranks
  std::uint64_t exchange_bytes = 512 << 10;  ///< up to this size two ranks exchange whole inputs
  std::uint32_t retry_ms = 500;              ///< without an acknowledgement: sent again, 7 times
  bool busy = true;                          ///< spins without sleeping
};

/// One port of transports gradwire and bare.
struct PortOption {
  std::string device;
  std::string ip;  ///< IPv4 or IPv6
  int prefix_bits = 24;
  std::uint32_t mtu = 0;  ///< 0: as large as the port carries
  friend bool operator==(const PortOption&, const PortOption&) = default;
};

/// Options of transport gradwire; bare uses port, payload, window and descriptors of them.
struct EmbeddedOptions {
  std::vector<PortOption> ports;
  std::uint8_t lanes = 1;  ///< this thread drives lane 0, and each other lane takes a worker lcore
  std::uint16_t base_udp_port = defaults::kBaseUdpPort;
  std::uint32_t payload_bytes = 0;    ///< 0: what the ports carry
  std::uint32_t window_packets = 0;   ///< 0: window_packets_for() the payload
  std::uint32_t transit_packets = 0;  ///< 0: the same as the window
  std::uint32_t eager_packets = static_cast<std::uint32_t>(TransportSection{}.eager_packets);
  bool payload_crc = TransportSection{}.integrity == "payload";
  std::uint64_t exchange_bytes = TransportSection{}.exchange_kib << 10;  ///< whole KiB
  std::uint64_t direct_bytes = TransportSection{}.direct_kib << 10;  ///< likewise; rank 0's counts
  std::uint16_t descriptors = static_cast<std::uint16_t>(PortSection{}.rx_descriptors);
  double rate_gbps = 0;       ///< pacing of each connection; 0: not paced
  double port_rate_gbps = 0;  ///< pacing of each port; 0: not paced
  std::string tx_trace;       ///< file for the times at which each port sent bursts; empty: none
  bool busy = false;          ///< never gives up its core
  FaultSettings faults;       ///< injected by every port, to measure under loss
};

struct Options {
  std::vector<std::string> eal_arguments;  ///< the arguments before "--"
  std::string transport = "daemon";        ///< daemon, tcp, rdma, gradwire or bare
  std::string socket;                      ///< empty: the client library's default
  std::string security;                    ///< of the packets; empty: as the daemons have it
  std::string key_file;                    ///< of transport gradwire, which has no daemon's
  std::uint16_t rank = 0;
  std::uint16_t nranks = 1;
  std::uint16_t folding_ranks = 0;  ///< beside those, hosts that only sum: gradwire.fold runs there
  std::uint16_t member = 0;
  std::uint16_t members = 1;
  std::uint32_t epoch = 0;
  std::string rendezvous;  ///< directory that all ranks see, or tcp://HOST:PORT of rank 0
  std::uint64_t begin_bytes = 1024;
  std::uint64_t end_bytes = 64u << 20;
  double factor = 2.0;
  std::uint32_t iterations = 20;
  std::uint32_t warmup = 5;
  Collective collective = Collective::kAllReduce;
  std::uint32_t root = 0;  ///< process of a reduce or a broadcast
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;            ///< kSum if the collective reduces nothing
  WireFormat wire = WireFormat::kSame;  ///< how elements travel
  std::vector<SizePlan> sizes;          ///< empty: from begin to end by the factor
  bool check = true;
  bool in_place = false;
  double timeout_s = 60.0;  ///< for the formation, and for each op
  TcpOptions tcp;
  RdmaOptions rdma;
  EmbeddedOptions embedded;
  std::string json;  ///< file for the results; "-" is standard output
};

struct CommandLine {
  Options options;
  bool finished = false;  ///< help or version was shown, so there is nothing to do
};

/// Options stand after "--" if there is one, and the EAL's arguments before it. Prints help and
/// version itself. @return what is wrong, with what would be right.
[[nodiscard]] Result<CommandLine> parse_command_line(int argc, const char* const* argv);

/// @return which options do not go together, or whose values cannot be.
[[nodiscard]] Result<void> check_options(const Options& options);

/// This process among those of the group.
[[nodiscard]] ProcessPlace place_of(const Options& options) noexcept;
/// The op for a size. As in nccl-tests, the size is that of the larger buffer: for an all-gather
/// and a reduce-scatter that of all processes together.
[[nodiscard]] CollectiveCall call_of(const Options& options, std::uint64_t bytes) noexcept;

/// The sizes asked for one by one, or those from begin to end, each `factor` times the one before,
/// whole elements of each process, each once; of a barrier, which has no sizes, one of 0.
[[nodiscard]] std::vector<SizePlan> sizes_of(const Options& options);

}  // namespace gradwire::perf
