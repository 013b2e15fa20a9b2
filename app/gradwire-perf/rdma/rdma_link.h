// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The queue pairs of transport rdma: found, made and connected by libibverbs. A program that was
/// built without it has make_rdma_link() all the same, which says so. One thread; write(), tell()
/// and poll() allocate nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "options.h"
#include "rdma/rdma_wire.h"
#include "tcp/tcp_socket.h"
#include "transport.h"

namespace gradwire::perf {

/// What an end of a connection tells the other. Both are little-endian machines of one release.
struct RdmaEndInfo {
  std::uint64_t magic = 0x67772d72646d6131;  ///< "gw-rdma1"
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;  ///< packet sequence number, of 24 bits
  std::uint32_t remote_key = 0;
  std::uint32_t mtu_bytes = 0;  ///< of the port: the smaller of both counts
  std::array<std::uint8_t, 16> gid{};
  std::uint64_t memory = 0;  ///< where it begins
  std::uint64_t memory_bytes = 0;
  // These have to be the same at both ends.
  std::uint64_t chunk_bytes = 0;
  std::uint64_t exchange_bytes = 0;
  std::uint32_t lag = 0;
  std::uint32_t depth = 0;
};
static_assert(sizeof(RdmaEndInfo) == 80);

/// @return kMismatch, naming an option in which the ends differ and both values.
[[nodiscard]] Result<void> check_ends(const RdmaEndInfo& own, const RdmaEndInfo& other,
                                      std::uint32_t own_rank, std::uint32_t other_rank);

class RdmaLink : public RdmaWire {
 public:
  /// How the neighbor of `end` reaches this rank; what the caller knows better stays 0.
  [[nodiscard]] virtual RdmaEndInfo info_of(RdmaEnd end) const = 0;
  /// To the neighbor of which this is the info; afterwards the neighbor's writes are taken.
  [[nodiscard]] virtual Result<void> accept(RdmaEnd end, const RdmaEndInfo& neighbor) = 0;
  /// Once the neighbor takes writes too.
  [[nodiscard]] virtual Result<void> start(RdmaEnd end) = 0;
  /// In bytes, of one write.
  [[nodiscard]] virtual std::uint64_t largest_write() const noexcept = 0;
  /// "rxe0 port 1, RoCEv2 10.9.0.1, path MTU 4096".
  [[nodiscard]] virtual std::string description() const = 0;
  /// Reasons why this will be slower than it could be, a sentence each; once it is connected.
  [[nodiscard]] virtual std::vector<std::string> slower_paths() const = 0;
  /// Those of the whole device, by the kernel's names with "hw_" before them.
  [[nodiscard]] virtual Counters counters() const = 0;
};

struct RdmaLinkOptions {
  RdmaOptions rdma;
  std::span<std::byte> memory;  ///< registered: neighbors write to it, writes come from it
  std::size_t ends = 1;         ///< queue pairs: 1 with two ranks, else 2
  std::uint32_t depth = 16;     ///< writes under way
  std::uint32_t words = 4;      ///< tell() under way besides
  /// Rank and connection of each end, which must outlive the link: a connection that ends is how a
  /// neighbor's end is seen.
  std::array<std::uint32_t, kRdmaEnds> ranks{};
  std::array<const TcpSocket*, kRdmaEnds> sockets{};
};

/// @return kNotFound if no device has the address, with the addresses that there are; kUnsupported
/// without libibverbs.
[[nodiscard]] Result<std::unique_ptr<RdmaLink>> make_rdma_link(const RdmaLinkOptions& options);

}  // namespace gradwire::perf
