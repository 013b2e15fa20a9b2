// SPDX-License-Identifier: BSD-3-Clause
// What happens in a world: hosts poll, shards report, timers fire.
#include <algorithm>

#include "base/require.h"
#include "sim/describe.h"
#include "sim/world/addresses.h"
#include "sim/world/world.h"

namespace gradwire::sim {
namespace {

constexpr std::size_t kBurst = 32;
/// A host whose shards say that there is work at once, and do none, is asked less and less often:
/// what they wait for comes with a packet or a post, and those wake it.
constexpr TimeNs kBackoffMaxNs = 1'000'000;

}  // namespace

TimeNs World::local(const Host& host, TimeNs time) const noexcept {
  return time + host.profile.clock_offset_ns + time / 1'000'000 * host.profile.clock_ppm;
}

TimeNs World::global(const Host& host, TimeNs local_time) const noexcept {
  if (local_time == kNever) return kNever;
  TimeNs time = local_time - host.profile.clock_offset_ns;
  time -= time / 1'000'000 * host.profile.clock_ppm;
  for (int i = 0; i < 8 && local(host, time) < local_time; ++i) {
    time += local_time - local(host, time);
  }
  return time;
}

void World::wake(Host& host, TimeNs time) {
  if (!host.alive) return;
  if (host.paused) time = std::max(time, host.paused_until);
  time = std::max({time, now_, host.busy_until});
  if (time >= host.next_poll) return;
  host.next_poll = time;
  events_.push(time, QueuedEvent::Kind::kPoll, host_id(host));
}

bool World::step() {
  if (events_.empty()) return false;
  const QueuedEvent event = events_.pop();
  now_ = std::max(now_, event.time);
  switch (event.kind) {
    case QueuedEvent::Kind::kArrival:
      arrive(event.index);
      break;
    case QueuedEvent::Kind::kPort:
      arrive(network_.take_port(static_cast<HostId>(event.index)));
      break;
    case QueuedEvent::Kind::kPoll: {
      Host& host = hosts_[event.index];
      // A poll that was asked for earlier replaces the later one, whose event is stale then.
      if (host.alive && host.next_poll == event.time) poll(host);
      break;
    }
    case QueuedEvent::Kind::kDriverDone:
      driver_done(hosts_[event.index]);
      break;
    case QueuedEvent::Kind::kTimer: {
      const std::function<void()> action = std::move(timers_[event.index]);
      free_timers_.push_back(event.index);
      action();
      break;
    }
  }
  return true;
}

void World::run_for(TimeNs duration) {
  run_until([] { return false; }, duration);
}

void World::poll(Host& host) {
  host.next_poll = kNever;
  if (host.paused) {
    if (now_ < host.paused_until) {
      wake(host, host.paused_until);
      return;
    }
    host.paused = false;
    trace_.mix(now_, 31, host_id(host));
    trace_.line(now_, "host {:<3} goes on", host_id(host));
  }
  if (host.places.empty()) {
    for (; !host.rx.empty(); host.rx.pop_front()) {
      ++unknown_packets_;
      rte_pktmbuf_free(host.rx.front().mbuf);
    }
    refill(host);
    return;
  }
  ++polls_;
  const TimeNs local_now = local(host, now_);
  // A lane that lags has a thread of its own, and did not poll with the host.
  for (const Place& place : host.places) {
    if (host.profile.lane_lag > 0 || !rests(place, local_now)) continue;
    place.shard->rested_until(local(host, host.last_poll));
  }
  host.last_poll = now_;
  if (host.profile.lane_lag > 0) let_lanes_lag(host);
  const std::size_t received = receive_burst(host, local_now);
  bool worked = received > 0 || !host.rx.empty();
  // A shard that closes takes its place away, so that the list may shrink on the way.
  // Descriptors are the host's here and a lane's own in a NIC, so lanes take them by turns.
  const std::size_t first = host.profile.driver_holds_ns > 0 ? host.first_place++ : 0;
  for (std::size_t i = 0; i < host.places.size(); ++i) {
    Place& place = host.places[(first + i) % host.places.size()];
    if (stands_still(place.shard) || rests(place, local_now)) continue;
    place.called_at = local_now;
    place.touched = false;
    worked |= poll_place(host, place, local_now, received == 0);
  }
  for (std::size_t i = host.posting.size(); i > 0; --i) {
    const auto [group, rank] = host.posting.front();
    host.posting.pop_front();
    if (!retry_posts(group, rank)) host.posting.emplace_back(group, rank);
  }
  schedule_next(host, local_now, worked);
}

std::size_t World::receive_burst(Host& host, TimeNs local_now) {
  std::size_t received = 0;
  for (; received < kBurst && !host.rx.empty(); ++received) {
    const Received frame = host.rx.front();
    host.rx.pop_front();
    host.busy_until = std::max(host.busy_until, now_) + host.profile.packet_ns;
    dispatch(host, frame, local_now);
  }
  if (received > 0) {
    end_runs(local_now);
    for (const Place& place : host.places) {
      if (!stands_still(place.shard)) place.shard->flush(local_now);
    }
  }
  refill(host);
  return received;
}

void World::dispatch(Host& host, const Received& received, TimeNs local_now) {
  const std::span<const std::byte> bytes(rte_pktmbuf_mtod(received.mbuf, const std::byte*),
                                         received.mbuf->data_len);
  wire::FrameView frame;
  wire::Packet packet;  // of a sealed one the header alone, until it is opened
  // Of a corrupt frame it may be no rail at all.
  const std::uint8_t rail = rail_of(bytes.data());
  if (rail >= options_.rails || wire::parse_frame(bytes, frame) != wire::Drop::kNone ||
      frame.kind != wire::FrameKind::kUdp || frame.destination_mac != mac_of(host_id(host), rail) ||
      !(frame.destination_ip == ip_of(host_id(host), rail, family_of(rail))) ||
      decode(frame, packet) != wire::Drop::kNone) {
    rte_pktmbuf_free(received.mbuf);
    return;
  }
  // As a lane finds it: by port, tag, rank and address, and token.
  Place* found = nullptr;
  collective::PacketSource from;
  for (Place& place : host.places) {
    if (frame.destination_port != kBaseUdpPort + place.lane ||
        packet.common.group_tag != wire::group_tag(place.shard->config().key)) {
      continue;
    }
    found = &place;
    from = place.shard->source_of(packet.common, frame.source_ip);
    if (from.drop == wire::Drop::kNone) break;
  }
  if (found != nullptr && stands_still(found->shard)) return keep(found->shard, received);
  if (found != nullptr) {
    found->touched |= from.drop == wire::Drop::kNone;
    trace_.mix(now_, 32, host_id(host), packet.common.type, packet.common.packet_number);
    if (trace_.prints()) {
      trace_.line(now_, "host {:<3} <- {}{}", host_id(host), describe_packet(packet),
                  received.marked ? " CE" : "");
    }
    if (from.drop == wire::Drop::kNone && from.sealed) {
      hand_over_sealed(*found->shard, from, packet, rail, frame, received, local_now);
    } else {
      hand_over(*found->shard, from, packet, rail, frame, received, local_now);
    }
    return;
  }
  ++unknown_packets_;
  trace_.mix(now_, 33, host_id(host));
  if (trace_.prints()) {
    trace_.line(now_, "host {:<3} <- {}, which nobody here knows", host_id(host),
                describe_packet(packet));
  }
  rte_pktmbuf_free(received.mbuf);
}

/// As a lane does: data in runs, whose packets are compared with the first and not decoded.
void World::hand_over(collective::Shard& shard, const collective::PacketSource& from,
                      const wire::Packet& packet, std::uint8_t rail, const wire::FrameView& frame,
                      const Received& received, TimeNs local_now) {
  const std::span<const std::byte> bytes(rte_pktmbuf_mtod(received.mbuf, const std::byte*),
                                         received.mbuf->data_len);
  if (runs_.is_of(shard, received.marked) && runs_.take(rail, bytes, received.mbuf)) {
    const collective::RunPacket& taken = runs_.newest();
    const wire::DataPlace& place = taken.place;
    require(packet.common.type == wire::PacketType::kData && from.drop == wire::Drop::kNone &&
                place.packet_number == packet.common.packet_number &&
                place.chunk == packet.data.chunk && place.hop == packet.data.hop &&
                place.payload_crc == packet.payload_crc && taken.payload == packet.payload.data() &&
                runs_.goes_on_with(from, packet),
            "a packet that goes on a run is what decode() makes of it");
    return;
  }
  runs_.end(local_now);
  if (packet.common.type == wire::PacketType::kData && from.drop == wire::Drop::kNone) {
    runs_.begin(shard, from, packet, received.marked, rail, bytes, frame, received.mbuf);
  } else {
    shard.on_packet(received.mbuf, packet, from, received.marked, local_now);
  }
}

bool World::poll_place(Host& host, const Place& place_given, TimeNs local_now, bool idle) {
  const Place place = place_given;
  collective::Outbox out;
  const bool holds = host.profile.driver_holds_ns > 0;
  const std::size_t free_descriptors =
      holds ? host.profile.tx_descriptors -
                  std::min<std::size_t>(host.profile.tx_descriptors, host.held.size())
            : out.boxes.size() * collective::OutboxSide::kCapacity;
  out.down().room = out.up().room = out.any().room =
      std::min(collective::OutboxSide::kCapacity, free_descriptors / out.boxes.size());
  if (random_.chance(host.profile.port_behind)) {
    out.down().room = std::min<std::size_t>(out.down().room, random_.below(3));
    out.up().room = std::min<std::size_t>(out.up().room, random_.below(3));
    out.any().room = out.up().room;
  }
  const std::uint16_t down_port = place.shard->down_port();
  const std::uint16_t up_port = place.shard->up_port();
  bool worked = place.shard->poll(local_now, idle, out);
  for (std::size_t i = 0; i < out.down().count; ++i) {
    transmit(host, out.down().frames[i], down_port);
  }
  for (std::size_t i = 0; i < out.up().count; ++i) transmit(host, out.up().frames[i], up_port);
  for (std::size_t i = 0; i < out.any().count; ++i) {
    transmit(host, out.any().frames[i], out.any().frames[i]->port);
  }
  worked |= out.down().count + out.up().count + out.any().count > 0;
  take_wishes(place);
  for (collective::Event event; place.shard->pop_event(event);) {
    handle_event(place, event);
    worked = true;
  }
  return worked;
}

void World::handle_event(const Place& place, const collective::Event& event) {
  Rank& rank = groups_[place.group].ranks[place.rank];
  const std::uint8_t lanes = groups_[place.group].options.lanes;
  trace_.mix(now_, 34, place.group, place.rank, place.lane, event.type, event.op_seq);
  const auto quiet = [&] {
    const std::uint32_t bit = 1u << place.lane;
    if ((rank.quiet_mask & bit) != 0) return;
    rank.quiet_mask |= bit;
    if (++rank.lanes_quiet == lanes) observer_.on_quiet(place.group, place.rank);
  };
  switch (event.type) {
    case collective::EventType::kFormed:
      trace_.line(now_, "host {:<3} group {} rank {} lane {} is formed", rank.host, place.group,
                  place.rank, place.lane);
      if (++rank.lanes_formed == lanes) observer_.on_formed(place.group, place.rank);
      break;
    case collective::EventType::kOpDone: {
      trace_.line(now_, "host {:<3} group {} rank {} lane {} is through with op {}", rank.host,
                  place.group, place.rank, place.lane, event.op_seq);
      if (rank.lanes_done.size() <= event.op_seq) rank.lanes_done.resize(event.op_seq + 1);
      if (++rank.lanes_done[event.op_seq] == lanes) {
        observer_.on_done(place.group, place.rank, event.op_seq);
      }
      break;
    }
    case collective::EventType::kTransferSized:
      on_sized(place, event);
      break;
    case collective::EventType::kTransferDone:
      trace_.line(now_, "host {:<3} group {} rank {} lane {} is through with transfer {}",
                  rank.host, place.group, place.rank, place.lane, event.op_seq / 2);
      if (++rank.transfers_done[event.op_seq] == lanes) {
        rank.transfers_done.erase(event.op_seq);
        observer_.on_transfer_done(place.group, place.rank, event.op_seq);
      }
      break;
    case collective::EventType::kAborted: {
      const AbortReason reason = place.shard->reason();
      trace_.line(now_, "host {:<3} group {} rank {} lane {} aborts: {}", rank.host, place.group,
                  place.rank, place.lane, describe(reason));
      if (!rank.failed) {
        rank.failed = true;
        rank.reason = reason;
        rank.failed_at = now_;
        rank.waiting.clear();
        rank.transfers.clear();
        rank.unsized.clear();
        observer_.on_failed(place.group, place.rank, reason);
        if (lanes > 1) {
          at(now_ + groups_[place.group].options.fan_out_ns, [this, place, reason] {
            Rank& r = groups_[place.group].ranks[place.rank];
            tell(r, [reason](collective::Shard& lane, TimeNs local_now) {
              lane.abort(reason, local_now);
            });
            wake(hosts_[r.host], now_);
          });
        }
      }
      quiet();
      break;
    }
    case collective::EventType::kClosed:
      trace_.line(now_, "host {:<3} group {} rank {} lane {} is closed", rank.host, place.group,
                  place.rank, place.lane);
      quiet();
      ++rank.lanes_closed;
      break;
  }
}

bool World::retry_posts(GroupId group, std::uint16_t rank_index) {
  Rank& rank = groups_[group].ranks[rank_index];
  post_transfers(rank);
  if (rank.waiting.empty()) return rank.transfers.empty();
  for (std::size_t lane = 0; lane < rank.shards.size(); ++lane) {
    if (stands_still(rank.shards[lane].get())) continue;
    for (const collective::OpSpec& spec : rank.waiting) {
      if (spec.op_seq <= rank.lane_posted[lane]) continue;
      const TimeNs local_now = local(hosts_[rank.host], now_);
      if (rank.shards[lane]->post(spec, local_now) != collective::PostResult::kOk) break;
      rank.lane_posted[lane] = spec.op_seq;
    }
  }
  const std::uint64_t posted = *std::min_element(rank.lane_posted.begin(), rank.lane_posted.end());
  while (!rank.waiting.empty() && rank.waiting.front().op_seq <= posted) rank.waiting.pop_front();
  return rank.waiting.empty() && rank.transfers.empty();
}

void World::schedule_next(Host& host, TimeNs local_now, bool worked) {
  if (host.places.empty()) return;
  const TimeNs jitter = host.profile.round_jitter_ns;
  const TimeNs round =
      std::max<TimeNs>(host.profile.round_ns, 1) + (jitter > 0 ? random_.between(0, jitter) : 0);
  bool reduces = false;
  for (const Place& place : host.places) {
    const Rank& rank = groups_[place.group].ranks[place.rank];
    if (!rank.slow.empty()) reduces |= rank.slow[place.lane]->busy();
  }
  for (const Place& place : host.places) {
    if (stands_still(place.shard)) wake(host, lags_[place.shard].until);
  }
  if (worked || reduces) {
    host.backoff_ns = round;
    wake(host, now_ + round);
    return;
  }
  TimeNs deadline = kNever;
  for (const Place& place : host.places) {
    if (stands_still(place.shard)) continue;
    deadline = std::min(deadline, place.shard->deadline(local_now));
  }
  const TimeNs due = global(host, deadline);
  if (due <= now_) {
    host.backoff_ns = std::min(std::max(host.backoff_ns * 2, round), kBackoffMaxNs);
    wake(host, now_ + host.backoff_ns);
    return;
  }
  host.backoff_ns = round;
  wake(host, std::min(due, now_ + host.profile.idle_ns));
}

TimeNs World::until_deadline(GroupId group, std::uint16_t rank) const {
  const Rank& r = groups_[group].ranks[rank];
  const TimeNs local_now = local(hosts_[r.host], now_);
  const TimeNs deadline = r.shards.front()->deadline(local_now);
  return deadline == kNever ? kNever : deadline - local_now;
}

}  // namespace gradwire::sim
