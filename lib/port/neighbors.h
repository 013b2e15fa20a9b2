// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which MAC address an IP address on a port's network has: ARP (RFC 826) with retries and
/// timeouts, static entries, and the answers that others want of us (ARP, ICMP echo). Sans-IO: the
/// control thread gives it received frames and time, and takes frames to send. One object per port;
/// the control thread owns it; it allocates when an address is first asked for.
///
/// The table is bounded, and clients choose the addresses that are asked for. So one that is full
/// forgets an entry that no group uses or waits for: first those that nobody answers for, then
/// the others, of each the one that was asked for longest ago.
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
  std::uint32_t attempts = 10;          ///< requests without an answer, then it failed
  TimeNs lifetime_ns = 60'000'000'000;  ///< of an answer; asked again before it ends
  std::size_t max_entries = 1024;
  /// Who waits for an address asks again and again, well within this time.
  TimeNs wanted_ns = 1'000'000'000;
};

struct NeighborCounters {
  std::uint64_t evicted = 0;  ///< forgotten since the table was full
  std::uint64_t refused = 0;  ///< ARP from a group address, or a reply to one
};

enum class NeighborState : std::uint8_t {
  kUnknown,    ///< never asked for
  kResolving,  ///< asked, no answer yet
  kReachable,
  kFailed,  ///< nobody answered; resolve() asks again
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

  /// A fixed answer, never asked for and never forgotten.
  void add_static(const wire::IpAddress& ip, const wire::MacAddress& mac);

  /// Starts to ask for `ip` unless it is known, and starts again where it failed. Refuses an
  /// address that is not on the port's network. Where the table is full it looks at each entry
  /// once.
  [[nodiscard]] Result<void> resolve(const wire::IpAddress& ip, TimeNs now);
  /// A group uses the neighbour from here on, until release(): it is not evicted.
  /// @return false where it is not known; there is nothing to release then.
  [[nodiscard]] bool hold(const wire::IpAddress& ip) noexcept;
  void release(const wire::IpAddress& ip) noexcept;
  [[nodiscard]] NeighborState state(const wire::IpAddress& ip) const noexcept;
  /// @return the MAC address where state() is kReachable.
  [[nodiscard]] std::optional<wire::MacAddress> lookup(const wire::IpAddress& ip) const noexcept;

  /// The link was down: whoever is at the other end now may have another address.
  void forget_learnt() noexcept;

  /// A frame that came in on the port: ARP is learnt from and answered, others are ignored.
  /// Strangers are answered up to ReplyLimit's bound, and those whose address was asked for up to
  /// one of their own, so that a flood of the former leaves neighbours their answers.
  void on_frame(std::span<const std::byte> frame, TimeNs now);
  /// Repeats and gives up; call it at deadline() or later.
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
    TimeNs asked_ns = 0;      ///< by resolve(), last
    TimeNs next_ns = kNever;  ///< next request, or the end of waiting for the last
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

/// Turns an ICMP echo request (RFC 792), whole from Ethernet on, into its reply, where it lies.
/// `view` is the frame as wire::parse_frame saw it, of kind kIcmpEcho.
/// @return false where the frame is too short, its ICMP checksum is wrong, or it says that it comes
/// from a group of hosts, from nobody or from us; then it is unchanged.
[[nodiscard]] bool answer_echo(std::span<std::byte> frame, const wire::FrameView& view) noexcept;

}  // namespace gradwire::port
