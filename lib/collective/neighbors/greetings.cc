// SPDX-License-Identifier: BSD-3-Clause
#include "collective/neighbors/greetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/abort_detail.h"
#include "base/require.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

constexpr std::uint32_t kHellosByFirst = 8;    ///< path to a rank
constexpr std::uint32_t kHellosFromFirst = 2;  ///< source port
/// So many at the hello interval: from each of 32 source ports of two paths about once. Whoever has
/// not answered by then comes seconds late, or not at all.
constexpr std::uint32_t kHellosSoon = 64;
constexpr std::uint32_t kDoublingsMax = 3;  ///< of the hello interval after that
/// So many go in a silence limit at least. The other rank may be formed, and its answer be lost:
/// then it hears nothing but hellos from here, and takes a rank that it does not hear for dead.
constexpr TimeNs kHellosInLimit = 8;
/// Of the silence limit, for how long a rank whose port is behind answers no second hello: for
/// less than lies between rounds of them.
constexpr TimeNs kAnswerShare = 64;

}  // namespace

Greetings::Greetings(const ShardConfig& config, const Group& group, const Links& links,
                     const OpTable& ops)
    : config_(config), group_(group), links_(links), ops_(ops), met_(links.size()) {}

bool Greetings::all_open() const noexcept {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link->end.open(); });
}

bool Greetings::is_of(LinkIndex link, const wire::HelloBody& hello) const noexcept {
  const LinkAddress& address = end(link).address();
  return hello.key == config_.key && hello.to_rank == config_.rank &&
         hello.from_rank == address.rank && hello.incarnation == address.incarnation;
}

Greetings::Cause Greetings::table_differs(LinkIndex link,
                                          const wire::HelloBody& hello) const noexcept {
  if (hello.table_digest == config_.table_digest && hello.nranks == config_.all_ranks() &&
      hello.lanes == config_.lanes && hello.payload_bytes == config_.payload_bytes) {
    return {};
  }
  AbortReason reason{.code = AbortCode::kFormation,
                     .culprit_rank = end(link).rank(),
                     .reporter_rank = config_.rank};
  std::array<char, AbortReason::kDetailBytes> text{};
  char* at = text.data();
  const auto differs = [&](const char* what, std::uint64_t there, std::uint64_t here) {
    if (there == here) return;
    const auto room = static_cast<std::size_t>(text.data() + text.size() - 1 - at);
    at = fmt::format_to_n(at, room, "{}{} {} there and {} here", at == text.data() ? "" : ", ",
                          what, there, here)
             .out;
  };
  differs("ranks", hello.nranks, config_.all_ranks());
  differs("ranks without members", hello.folding_ranks, config_.folding_ranks);
  differs("members of each rank", hello.members, config_.members_said());
  differs("lanes", hello.lanes, config_.lanes);
  differs("payload", hello.payload_bytes, config_.payload_bytes);
  if (at == text.data()) {
    format_detail(reason,
                  "its table of the group differs in an entry, the order, who is at which rank, or "
                  "being for transfers alone: digests {:x} and {:x} here",
                  hello.table_digest, config_.table_digest);
  } else {
    format_detail(reason, "its table of the group differs: {}", text.data());
  }
  return reason;
}

Greetings::Cause Greetings::on_hello(LinkIndex link, const wire::HelloBody& hello, PathIndex path,
                                     TimeNs now) noexcept {
  if (Cause cause = table_differs(link, hello)) return cause;
  Met& met = met_[link];
  end(link).on_hello();
  met.paths_to_answer |= 1u << path;
  Hellos& hellos = met.hellos[path];
  if (hellos.unanswered == 0) hellos.first = hello.source;
  hellos.unanswered |= std::uint64_t{1} << hello.source;
  // Where it asks anew, or has heard an answer, the first one goes from the path's own port.
  const bool anew = !group_.forming() && now - hellos.last > config_.timeouts.silence_ns / 4;
  hellos.heard = hello.heard_source != 0;
  if (hellos.heard || anew) hellos.answers = 0;
  hellos.last = now;
  return {};
}

Greetings::Cause Greetings::on_hello_ack(LinkIndex link, const wire::HelloBody& hello,
                                         PathIndex path) noexcept {
  if (Cause cause = table_differs(link, hello)) return cause;
  if (!end(link).answered()) take_first(link, hello, path);
  end(link).on_hello_ack();
  if (PathChoice* const choice = links_[link]->choice()) {
    choice->on_hello_ack(path, hello.heard_source, hello.source);
  }
  return {};
}

/// The first way that answers is taken.
void Greetings::take_first(LinkIndex link, const wire::HelloBody& answer, PathIndex path) noexcept {
  if (path != end(link).path()) end(link).take_path(path);
  if (answer.heard_source != 0) {
    (void)end(link).take_source(path, static_cast<std::uint8_t>(answer.heard_source - 1));
  }
  if (answer.source > 1) met_[link].heard_source = answer.source;
}

void Greetings::on_other_version(const wire::IpAddress& source, std::uint8_t version) noexcept {
  if (!group_.forming()) return;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (end(i).address().ip == source) met_[i].unfit.version = version;
  }
}

void Greetings::on_other_group(const wire::IpAddress& source, const GroupKey& key) noexcept {
  if (!group_.forming() || key.group_id != config_.key.group_id) return;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (end(i).path_from(source) == kNoPath) continue;
    met_[i].unfit.other_epoch = true;
    met_[i].unfit.epoch = key.epoch;
  }
}

void Greetings::on_unfit_hello(const wire::IpAddress& source, std::uint16_t says_rank) noexcept {
  if (!group_.forming()) return;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (end(i).path_from(source) == kNoPath) continue;
    met_[i].unfit.hello = true;
    met_[i].unfit.says_rank = says_rank;
  }
}

void Greetings::on_unsealed_hello(const wire::IpAddress& source) noexcept {
  if (!group_.forming()) return;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (end(i).path_from(source) != kNoPath) met_[i].unfit.unsealed = true;
  }
}

void Greetings::on_formed() noexcept {
  for (Met& met : met_) {
    for (Hellos& hellos : met.hellos) hellos.answers = 0;
  }
}

/// A rank that hears of the abort needs no hello.
void Greetings::on_aborted() noexcept {
  for (Met& met : met_) met.heard_source = 0;
}

void Greetings::fill(ShardStatus& status) const noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    const Link& link = *links_[i];
    if (link.attached()) continue;
    if (link.greets()) status.downstream_unfit = unfit(i);
    if (link.is_greeted()) status.upstream_unfit = unfit(i);
  }
}

bool Greetings::greets(LinkIndex link) const noexcept {
  return links_[link]->greets() && !end(link).answered();
}

bool Greetings::greets_anyone() const noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    if (greets(i)) return true;
  }
  return false;
}

bool Greetings::greet(Outbox& out) noexcept {
  bool worked = false;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (!greets(i)) continue;
    // If the first path does not answer, the others are tried in turn.
    const std::uint32_t beyond = hellos_sent_ < kHellosByFirst ? 0 : hellos_sent_ - kHellosByFirst;
    const std::size_t paths = end(i).path_count();
    const auto path = static_cast<PathIndex>(beyond % paths);
    // All of them from each path, however many paths there are.
    const std::size_t turn = hellos_sent_ - beyond + beyond / paths;
    const auto source = hellos_sent_ < kHellosFromFirst ? 0 : static_cast<std::uint32_t>(turn);
    worked |= send(i, PacketType::kHello, {path, end(i).source_after(path, source)}, 0, out);
  }
  // One that found no room was none.
  hellos_sent_ += worked ? 1 : 0;
  return worked;
}

TimeNs Greetings::spacing() const noexcept {
  const TimeNs interval = config_.timeouts.hello_interval_ns;
  const std::uint32_t doublings =
      hellos_sent_ < kHellosSoon ? 0 : std::min(hellos_sent_ - kHellosSoon + 1, kDoublingsMax);
  return std::clamp(config_.timeouts.silence_ns / kHellosInLimit, interval, interval << doublings);
}

void Greetings::answer(TimeNs now, Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    std::uint32_t& wanted = met_[i].paths_to_answer;
    while (wanted != 0) {
      const auto path = static_cast<PathIndex>(std::countr_zero(wanted));
      if (!answer_path(i, path, now, out)) break;
      wanted &= wanted - 1;
    }
    // So that it does not begin with a source port that leads nowhere.
    std::uint8_t& heard = met_[i].heard_source;
    const PathIndex path = end(i).path();
    if (heard != 0 && send(i, PacketType::kHello, {path, end(i).source_of(path)}, heard, out)) {
      heard = 0;
    }
  }
}

void Greetings::request_ack(LinkIndex link) noexcept {
  if (links_[link]->brings_data()) links_[link]->receiver().transport().request_ack();
}

/// From the path's source port, and from one after the other beside it as long as the rank does not
/// say that it hears an answer.
bool Greetings::answer_path(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept {
  Hellos& hellos = met_[link].hellos[path];
  // A rank that says nothing of source ports is answered once anyway.
  const bool sources = hellos.unanswered > 1 && !group_.forming();
  if (sources && !end(link).any_side(out).has_spare()) return answer_first(link, path, now, out);
  // What it asks for may be an acknowledgement that was lost.
  if (sources) request_ack(link);
  while (hellos.unanswered != 0) {
    const auto heard = static_cast<std::uint8_t>(std::countr_zero(hellos.unanswered));
    const std::uint8_t own = end(link).source_of(path);
    const std::uint8_t other = hellos.heard ? own : end(link).source_after(path, hellos.answers);
    // A port that has room for one packet at a time would send the same answer for ever, and
    // nothing after it.
    if (hellos.own_answered != heard) {
      if (!send(link, PacketType::kHelloAck, {path, own}, heard, out)) return false;
      hellos.own_answered = heard;
    }
    if (other != own && !send(link, PacketType::kHelloAck, {path, other}, heard, out)) {
      return false;
    }
    hellos.own_answered.reset();
    hellos.unanswered &= hellos.unanswered - 1;
    ++hellos.answers;
  }
  return true;
}

/// The port is behind, and others wait for what goes out there: of all that came in a while the
/// first is answered, from the path's source port and from others by turns.
bool Greetings::answer_first(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept {
  Hellos& hellos = met_[link].hellos[path];
  if (now >= hellos.next_answer) {
    const bool own = hellos.heard || hellos.answers % 2 == 0;
    const std::uint8_t from = end(link).source_after(path, own ? 0 : (hellos.answers + 1u) / 2);
    if (!send(link, PacketType::kHelloAck, {path, from}, hellos.first, out)) return false;
    request_ack(link);
    ++hellos.answers;
    hellos.next_answer = now + config_.timeouts.silence_ns / kAnswerShare;
  }
  hellos.unanswered = 0;
  return true;
}

bool Greetings::send(LinkIndex link, PacketType type, PathChoice::Way way, std::uint8_t heard,
                     Outbox& out) noexcept {
  require(way.path < end(link).path_count(), "a hello takes a path that is there");
  // A hello is as long as a data packet, so it needs a packet's buffer.
  OutboxSide& box = end(link).any_side(out);
  const auto encode = [&](std::span<std::byte> room) {
    wire::HelloBody body;
    body.key = config_.key;
    body.incarnation = config_.incarnation;
    body.table_digest = config_.table_digest;
    body.payload_bytes = config_.payload_bytes;
    body.from_rank = config_.rank;
    body.to_rank = end(link).rank();
    body.nranks = config_.all_ranks();
    body.members = config_.members_said();
    body.folding_ranks = config_.folding_ranks;
    body.lanes = config_.lanes;
    for (const auto& each : links_) {
      if (each->brings_data()) body.credit_chunks = each->receiver().credit_limit();
    }
    body.posted_op_seq = ops_.posted();
    if (end(link).sources().known) body.source = static_cast<std::uint8_t>(way.source + 1);
    body.heard_source = heard;
    return wire::encode_hello(room, type, end(link).header(type), body,
                              std::max<std::size_t>(wire::kHeaderBytes + config_.payload_bytes,
                                                    wire::kHeaderBytes + wire::kHelloBodyBytes));
  };
  return end(link).send_from(way.path, way.source, config_.packet_pool, box, encode);
}

}  // namespace gradwire::collective
