// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which MAC address a neighbor has: asked for by ARP (RFC 826), over IPv6 by neighbor discovery
/// (RFC 4861), or given by static entries, and kept with the states of RFC 4861 section 7.3.2.
/// Answers what others ask. Sans-IO: the control thread passes received frames and time in, and
/// takes out frames to send. One object for each address of a port; the control thread owns it; it
/// allocates when an address is first requested.
///
/// A MAC address that is known is replaced in one case only: the neighbor was asked under it and
/// did not answer, then everybody was asked, and another one answered. Whatever else says that the
/// neighbor is elsewhere is counted and ignored, and whoever answers without being asked goes
/// after those who do not; if it does so in floods, it is taken only if everybody was asked three
/// times. So nobody can take a living neighbor's place, and a router that comes back with another
/// MAC address is found.
///
/// RFC 4861's times are made for hosts that may wait for half a minute. A group aborts after its
/// silence limit, so neighbors that groups use have shorter ones, which the owner derives from
/// that limit.
///
/// The table is bounded, but clients choose the addresses. So a full table evicts entries that no
/// group uses or waits for: first those without an answer, then the others, in both cases the one
/// that was requested longest ago.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/types.h"
#include "port/neighbors/neighbor_message.h"
#include "port/neighbors/reply_limit.h"
#include "wire/frame.h"

namespace gradwire::port {

struct NeighborsConfig {
  wire::MacAddress mac{};
  wire::IpAddress ip;
  int prefix_bits = 24;
  std::optional<std::uint16_t> vlan_id;
  // An address that is not known yet.
  TimeNs retry_ns = 200'000'000;  ///< between two questions
  std::uint32_t attempts = 10;    ///< questions to everybody without an answer, then it failed
  // A neighbor that is known.
  TimeNs idle_reachable_ns = 30'000'000'000;  ///< how long an answer holds if no group uses it
  TimeNs reachable_ns = 30'000'000'000;       ///< an answer or confirm(), if a group does
  TimeNs delay_ns = 5'000'000'000;            ///< from then on confirm() is waited for so long
  TimeNs probe_ns = 1'000'000'000;            ///< between two questions after that
  std::uint32_t unicast_probes = 3;           ///< of those, to the neighbor alone
  TimeNs rest_ns = 1'000'000'000;  ///< after all of them; doubled each time, up to a minute
  /// Those of a group of the largest size, and as many of others.
  std::size_t max_entries = 2 * kMaxRanks;
  /// Whoever waits for an address repeats resolve() well within this time.
  TimeNs wanted_ns = 1'000'000'000;
};

struct NeighborCounters {
  std::uint64_t evicted = 0;     ///< because the table was full
  std::uint64_t refused = 0;     ///< from a group address, or an answer to one
  std::uint64_t moved = 0;       ///< neighbors that were found at another MAC address
  std::uint64_t claims = 0;      ///< said another MAC address of a known neighbor, and was ignored
  std::uint64_t unanswered = 0;  ///< times that all questions about a known neighbor were in vain
  std::uint64_t duplicates = 0;  ///< frames of others that have the port's own address
};

enum class NeighborState : std::uint8_t {
  kUnknown,     ///< never requested
  kIncomplete,  ///< requested, no answer yet
  kReachable,
  kStale,   ///< known, and not confirmed for long
  kDelay,   ///< the same, and a group uses it: its transport may confirm it
  kProbe,   ///< the same, and it is asked
  kFailed,  ///< no answer came; resolve() tries again
};

/// What an operator should hear of.
struct NeighborEvent {
  enum class Type : std::uint8_t {
    kMoved,      ///< `ip`, from `known` to `other`
    kClaimed,    ///< `other` says that it is `ip`, which is `known`: ignored
    kDuplicate,  ///< `other` has the port's own address too
  };
  Type type = Type::kMoved;
  wire::IpAddress ip;
  wire::MacAddress known{};
  wire::MacAddress other{};
};

class Neighbors {
 public:
  explicit Neighbors(const NeighborsConfig& config) : config_(config) {}

  /// A fixed answer, never requested and never forgotten.
  void add_static(const wire::IpAddress& ip, const wire::MacAddress& mac);

  /// Starts to resolve `ip` unless it is known, and starts again if it failed. Refuses an address
  /// outside of the port's network. If the table is full, it scans all entries once.
  [[nodiscard]] Result<void> resolve(const wire::IpAddress& ip, TimeNs now);
  /// A group uses the neighbor from now on until release(), so it is not evicted.
  /// @return false if it is not known; there is nothing to release then.
  [[nodiscard]] bool hold(const wire::IpAddress& ip) noexcept;
  void release(const wire::IpAddress& ip) noexcept;
  [[nodiscard]] NeighborState state(const wire::IpAddress& ip) const noexcept;
  /// @return the MAC address if it is known; one that no group uses must be kReachable, too.
  [[nodiscard]] std::optional<wire::MacAddress> lookup(const wire::IpAddress& ip) const noexcept;

  /// A group's packets that went by it were acknowledged (RFC 4861 section 7.3.1).
  void confirm(const wire::IpAddress& ip, TimeNs now) noexcept;
  /// Nothing comes back from where it leads to. It is asked, first under its known address; if it
  /// answers and the silence lasts, everybody is asked, and another answer goes before its own.
  void suspect(const wire::IpAddress& ip, TimeNs now);
  /// Packets may soon go there, and none have lately, so nothing speaks for it or against it: it is
  /// asked as a neighbor in use that nothing confirms, unless it answered within `reachable_ns`.
  void check(const wire::IpAddress& ip, TimeNs now);

  /// The link went down: the other end may now be a different host.
  void forget_learnt() noexcept;
  /// The link came up, at the start too: asks whether somebody else has the port's address, tells
  /// switches over IPv6 to let questions for it through, and asks again for the neighbors that
  /// groups use.
  void on_link_up(TimeNs now);

  /// Handles a frame received on the port: learns from answers, answers questions, ignores other
  /// frames. Answers to strangers are limited by a ReplyLimit, and answers to neighbors by another
  /// one, so that a flood of strangers does not keep neighbors from their answers.
  void on_frame(std::span<const std::byte> frame, TimeNs now);
  /// Repeats requests and gives up on them; call it at deadline() or later.
  void poll(TimeNs now);
  [[nodiscard]] TimeNs deadline() const noexcept;
  /// @return whether there was a frame to send.
  [[nodiscard]] bool take_frame(NeighborFrame& out);
  /// @return whether there was an event. Of claims and duplicates not every one makes an event: see
  /// the counters.
  [[nodiscard]] bool take_event(NeighborEvent& out);

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// How many addresses are asked for that never answered. It looks at all.
  [[nodiscard]] std::size_t unanswered() const noexcept;
  [[nodiscard]] const NeighborCounters& counters() const noexcept { return counters_; }
  /// Who has the port's own address too, as heard last.
  [[nodiscard]] const std::optional<wire::MacAddress>& duplicate() const noexcept {
    return duplicate_;
  }

 private:
  struct Entry {
    NeighborState state = NeighborState::kUnknown;
    bool is_static = false;
    bool known = false;      ///< `mac` was learnt
    bool suspected = false;  ///< by suspect(), since the last confirm()
    bool answered = false;   ///< kProbe: under its known address, and others may answer too
    std::optional<wire::MacAddress> candidate;  ///< kProbe: another one that answered
    std::optional<wire::MacAddress> pusher;     ///< answered last when nobody had asked it
    std::uint32_t pushes = 0;                   ///< such answers since it was reachable
    std::uint32_t attempts = 0;                 ///< questions without an answer
    std::uint32_t unicast = 0;                  ///< kProbe: so many of them go to the known address
    std::uint32_t unproven = 0;                 ///< answers since it is suspected
    std::uint32_t holds = 0;                    ///< groups that use it
    TimeNs asked_ns = 0;                        ///< by resolve(), last
    TimeNs next_ns = kNever;                    ///< when poll() has something to do
    TimeNs confirmed_ns = 0;                    ///< by an answer, or by confirm()
    TimeNs suspect_from_ns = 0;                 ///< suspect() is not believed before
    TimeNs rest_ns = 0;        ///< the last rest; 0 = none since confirm() or an answer
    TimeNs next_claim_ns = 0;  ///< the next claim that makes an event
    wire::MacAddress mac{};
  };
  struct IpOrder {
    bool operator()(const wire::IpAddress& a, const wire::IpAddress& b) const noexcept {
      return a.family != b.family ? a.family < b.family : a.bytes < b.bytes;
    }
  };

  [[nodiscard]] NeighborSender self() const noexcept {
    return {config_.mac, config_.ip, config_.vlan_id};
  }
  /// A router over IPv6 asks from its link-local address, whatever address it has as the gateway.
  [[nodiscard]] bool knows(const wire::MacAddress& mac) const noexcept {
    return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
      return entry.second.known && entry.second.mac == mac;
    });
  }
  [[nodiscard]] Entry* learnable(const wire::IpAddress& ip) noexcept;
  void send(const NeighborFrame& frame);
  void note(const NeighborEvent& event);
  void ask(const wire::IpAddress& ip, Entry& entry, TimeNs now);
  void probe(const wire::IpAddress& ip, Entry& entry, std::uint32_t unicast, TimeNs now);
  void reach(Entry& entry, TimeNs now) noexcept;
  void on_answer(const wire::IpAddress& ip, Entry& entry, const wire::MacAddress& mac, TimeNs now);
  void move(const wire::IpAddress& ip, Entry& entry, const wire::MacAddress& mac, TimeNs now);
  void prove(Entry& entry, TimeNs now) noexcept;
  void on_claim(const wire::IpAddress& ip, Entry& entry, const wire::MacAddress& mac, TimeNs now);
  void on_duplicate(const wire::MacAddress& mac, TimeNs now);
  void on_timer(const wire::IpAddress& ip, Entry& entry, TimeNs now);
  void give_up(Entry& entry, TimeNs now);
  /// @return whether there is room for one more.
  bool make_room(TimeNs now);

  NeighborsConfig config_;
  std::map<wire::IpAddress, Entry, IpOrder> entries_;
  std::deque<NeighborFrame> outgoing_;
  std::deque<NeighborEvent> events_;
  ReplyLimit strangers_;
  ReplyLimit neighbors_;
  NeighborCounters counters_;
  std::uint32_t own_probes_left_ = 0;
  TimeNs next_own_probe_ns_ = kNever;
  TimeNs next_report_ns_ = kNever;  ///< over IPv6: queries are not read, so it is told every minute
  TimeNs next_due_ns_ = kNever;     ///< of all entries, or earlier: poll() passes over them before
  std::optional<wire::MacAddress> duplicate_;
  TimeNs next_duplicate_ns_ = 0;  ///< the next that makes an event
};

}  // namespace gradwire::port
