// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Resolves IP addresses of a port's network to MAC addresses by ARP (RFC 826) with retries and
/// timeouts, or by static entries, and answers ARP and ICMP echo requests. Sans-IO: the control
/// thread passes received frames and time in, and takes out frames to send. One object per port;
/// the control thread owns it; it allocates when an address is first requested.
///
/// The table is bounded, but clients choose the addresses. So a full table evicts entries that no
/// group uses or waits for: first those without an answer, then the others, in both cases the one
/// that was requested longest ago.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/types.h"
#include "port/reply_limit.h"
#include "wire/frame.h"

namespace gradwire::port {

struct NeighborsConfig {
  wire::MacAddress mac{};
  wire::IpAddress ip;
  int prefix_bits = 24;
  std::optional<std::uint16_t> vlan_id;
  TimeNs retry_ns = 200'000'000;        ///< between two requests for one address
  std::uint32_t attempts = 10;          ///< requests without an answer before the address counts as
                                        ///< failed
  TimeNs lifetime_ns = 60'000'000'000;  ///< of an answer; it is requested again before that
  std::size_t max_entries = 1024;
  /// Whoever waits for an address repeats resolve() well within this time.
  TimeNs wanted_ns = 1'000'000'000;
};

struct NeighborCounters {
  std::uint64_t evicted = 0;  ///< evicted because the table was full
  std::uint64_t refused = 0;  ///< ARP from a group address, or a reply to one
};

enum class NeighborState : std::uint8_t {
  kUnknown,    ///< never requested
  kResolving,  ///< requested, no answer yet
  kReachable,
  kFailed,  ///< no answer came; resolve() tries again
};

/// A frame to send: ARP needs no more than 64 bytes.
struct NeighborFrame {
  std::array<std::byte, 64> bytes{};
  std::size_t size = 0;
  [[nodiscard]] std::span<const std::byte> view() const noexcept { return {bytes.data(), size}; }
};

class Neighbors {
 public:
  explicit Neighbors(const NeighborsConfig& config) : config_(config) {}

  /// A fixed answer, never requested and never forgotten.
  void add_static(const wire::IpAddress& ip, const wire::MacAddress& mac);

  /// Starts to resolve `ip` unless it is known, and starts again if it failed. Refuses an address
  /// outside of the port's network. If the table is full, it scans all entries once.
  [[nodiscard]] Result<void> resolve(const wire::IpAddress& ip, TimeNs now);
  /// A group uses the neighbour from now on until release(), so it is not evicted.
  /// @return false if it is not known; there is nothing to release then.
  [[nodiscard]] bool hold(const wire::IpAddress& ip) noexcept;
  void release(const wire::IpAddress& ip) noexcept;
  [[nodiscard]] NeighborState state(const wire::IpAddress& ip) const noexcept;
  /// @return the MAC address if state() is kReachable.
  [[nodiscard]] std::optional<wire::MacAddress> lookup(const wire::IpAddress& ip) const noexcept;

  /// Call it after the link was down: the other end may now be a different host.
  void forget_learnt() noexcept;

  /// Handles a frame received on the port: learns from ARP and answers it, ignores other frames.
  /// Answers to strangers are limited by a ReplyLimit, and answers to resolved or requested
  /// neighbours by another one, so that a flood of strangers does not keep neighbours from their
  /// answers.
  void on_frame(std::span<const std::byte> frame, TimeNs now);
  /// Repeats requests and gives up on them; call it at deadline() or later.
  void poll(TimeNs now);
  [[nodiscard]] TimeNs deadline() const noexcept;
  /// @return whether there was a frame to send.
  [[nodiscard]] bool take_frame(NeighborFrame& out);

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] const NeighborCounters& counters() const noexcept { return counters_; }

 private:
  struct Entry {
    NeighborState state = NeighborState::kUnknown;
    bool is_static = false;
    std::uint32_t attempts = 0;
    std::uint32_t holds = 0;  ///< groups that use it
    TimeNs asked_ns = 0;      ///< when resolve() last asked for it
    /// When the next request is due, or when the last one counts as failed.
    TimeNs next_ns = kNever;
    TimeNs expires_ns = kNever;
    wire::MacAddress mac{};
  };
  struct IpOrder {
    bool operator()(const wire::IpAddress& a, const wire::IpAddress& b) const noexcept {
      return a.family != b.family ? a.family < b.family : a.bytes < b.bytes;
    }
  };

  void send_arp(std::uint16_t operation, const wire::MacAddress& destination,
                const wire::MacAddress& target_mac, const wire::IpAddress& target_ip);
  void ask(const wire::IpAddress& ip, Entry& entry, TimeNs now);
  /// @return whether there is room for one more.
  bool make_room(TimeNs now);

  NeighborsConfig config_;
  std::map<wire::IpAddress, Entry, IpOrder> entries_;
  std::deque<NeighborFrame> outgoing_;
  ReplyLimit strangers_;
  ReplyLimit neighbors_;
  NeighborCounters counters_;
};

/// Turns an ICMP echo request (RFC 792) into its reply, in place. `frame` starts with the Ethernet
/// header; `view` is what wire::parse_frame made of it, of kind kIcmpEcho.
/// @return false if the frame is too short, its ICMP checksum is wrong, or its source is a group
/// address, no host's address or our own; then the frame is unchanged.
[[nodiscard]] bool answer_echo(std::span<std::byte> frame, const wire::FrameView& view) noexcept;

}  // namespace gradwire::port
