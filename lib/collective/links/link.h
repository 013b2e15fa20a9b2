// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One other rank of the group on one lane: its end, and the directions in which data goes. A shard
/// has as many as its ops' shapes use. By a quiet link, of a group for transfers alone, no data
/// goes and no pings: it serves to form the group and to end it. One lane owns it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collective/links/link_end.h"
#include "collective/links/link_receiver.h"
#include "collective/links/link_sender.h"
#include "collective/links/path_choice.h"

namespace gradwire::collective {

class Link {
 public:
  Link(const LinkAddress& address, const ShardConfig& config, const PacketBuffers& buffers,
       OpTable& ops, ShardCounters& counters)
      : end(address) {
    if (address.role == LinkRole::kQuiet) return;
    if (address.gets_data) sender_.emplace(config, end, buffers, ops, counters);
    if (address.brings_data) receiver_.emplace(config, end, buffers);
    const bool chooses = end.has_rails() || address.sources.known;
    if (address.gets_data && chooses) choice_.emplace(config, end);
  }
  // Its parts refer to each other.
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Whether this rank sends hellos there until they are answered.
  [[nodiscard]] bool greets() const noexcept { return end.address().gets_data; }
  /// Whether hellos come from there.
  [[nodiscard]] bool is_greeted() const noexcept { return end.address().brings_data; }
  [[nodiscard]] bool gets_data() const noexcept { return sender_.has_value(); }
  /// Whether the ring's chunks go by it.
  [[nodiscard]] bool on_ring() const noexcept { return role() == LinkRole::kRing; }
  /// Whether the other rank has no members and hangs on this one: it says nothing of the ring.
  [[nodiscard]] bool attached() const noexcept { return role() == LinkRole::kAttached; }
  /// Whether this rank has no members and hangs on the other.
  [[nodiscard]] bool to_host() const noexcept { return role() == LinkRole::kHost; }
  /// Whether nothing goes by it while the group neither forms nor ends.
  [[nodiscard]] bool quiet() const noexcept { return role() == LinkRole::kQuiet; }
  [[nodiscard]] bool brings_data() const noexcept { return receiver_.has_value(); }
  /// For a link that gets_data().
  [[nodiscard]] LinkSender& sender() noexcept {
    require(sender_.has_value(), "data goes only to links that get data");
    return *sender_;
  }
  [[nodiscard]] const LinkSender& sender() const noexcept {
    require(sender_.has_value(), "data goes only to links that get data");
    return *sender_;
  }
  /// For a link that brings_data().
  [[nodiscard]] LinkReceiver& receiver() noexcept {
    require(receiver_.has_value(), "data comes only from links that bring data");
    return *receiver_;
  }
  [[nodiscard]] const LinkReceiver& receiver() const noexcept {
    require(receiver_.has_value(), "data comes only from links that bring data");
    return *receiver_;
  }

  /// Of a link that gets_data() by one of several paths or source ports; else nullptr.
  [[nodiscard]] PathChoice* choice() noexcept { return choice_ ? &*choice_ : nullptr; }
  [[nodiscard]] const PathChoice* choice() const noexcept { return choice_ ? &*choice_ : nullptr; }

  /// An acknowledgement came, of a link that gets_data(). What is malformed has no effect.
  [[nodiscard]] SendOutcome on_ack(const wire::AckHeader& ack, TimeNs now) noexcept {
    const SendOutcome outcome = sender().on_ack(ack, now);
    if (choice_ && !outcome.malformed) [[unlikely]]
      choice_->on_acknowledged(outcome.newest,
                               outcome.acknowledged || sender_->nothing_in_flight());
    return outcome;
  }

  LinkEnd end;

 private:
  [[nodiscard]] LinkRole role() const noexcept { return end.address().role; }

  std::optional<LinkSender> sender_;
  std::optional<LinkReceiver> receiver_;
  std::optional<PathChoice> choice_;
};

/// By LinkIndex. A link stays where it is as long as its shard lives.
using Links = std::vector<std::unique_ptr<Link>>;

}  // namespace gradwire::collective
