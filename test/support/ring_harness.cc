// SPDX-License-Identifier: BSD-3-Clause
#include "support/ring_harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

namespace gradwire::test {
namespace {

int pool_serial = 0;

rte_mempool* make_pool(std::uint32_t mbufs, std::uint32_t room) {
  const std::string name = fmt::format("ring_pool_{}", pool_serial++);
  rte_mempool* pool = rte_pktmbuf_pool_create(name.c_str(), mbufs, 0, 0,
                                              static_cast<std::uint16_t>(room), SOCKET_ID_ANY);
  if (pool == nullptr) throw std::runtime_error("no mempool: " + name);
  return pool;
}

wire::IpAddress ip_of(std::uint16_t rank) {
  wire::IpAddress ip;
  ip.family = 4;
  ip.bytes = {10, 0, 0, static_cast<std::uint8_t>(rank + 1)};
  return ip;
}

wire::FrameTemplate frame_between(std::uint16_t from, std::uint16_t to) {
  wire::FrameAddresses addresses;
  addresses.source_mac = {2, 0, 0, 0, 0, static_cast<std::uint8_t>(from)};
  addresses.destination_mac = {2, 0, 0, 0, 0, static_cast<std::uint8_t>(to)};
  addresses.source_ip = ip_of(from);
  addresses.destination_ip = ip_of(to);
  addresses.source_port = 4791;
  addresses.destination_port = 4791;
  return wire::FrameTemplate::make(addresses).value();
}

std::uint32_t connection_id(std::uint16_t rank, std::uint8_t lane, bool sender) {
  return 0x1000u + rank * 64u + lane * 2u + (sender ? 1u : 0u);
}

}  // namespace

RingHarness::RingHarness(const RingOptions& options) : options_(options), random_(options.seed) {
  ranks_.resize(options.nranks);
  for (std::uint16_t rank = 0; rank < options.nranks; ++rank) make_rank(rank);
}

RingHarness::~RingHarness() { leaked_mbufs(); }

void RingHarness::make_rank(std::uint16_t rank) {
  Rank& r = ranks_[rank];
  r.packets = make_pool(options_.pool_mbufs, std::max(options_.payload_bytes + 384, 1664u));
  r.control = make_pool(128, 1664);
  r.waiting_lane_posted.assign(options_.lanes, 0);
  const auto n = options_.nranks;
  const auto up = static_cast<std::uint16_t>((rank + n - 1) % n);
  const auto down = static_cast<std::uint16_t>((rank + 1) % n);
  for (std::uint8_t lane = 0; lane < options_.lanes; ++lane) {
    ring::ShardConfig config = options_.shard;
    config.key = GroupKey{0x1234567890abcdef, 7};
    config.rank = rank;
    config.nranks = n;
    config.member_count = options_.members;
    config.lane = lane;
    config.lanes = options_.lanes;
    config.payload_bytes = options_.payload_bytes;
    config.incarnation = 100u + rank;
    config.upstream_incarnation = 100u + up;
    config.downstream_incarnation = 100u + down;
    config.sender_connection_id = connection_id(rank, lane, true);
    config.receiver_connection_id = connection_id(rank, lane, false);
    config.to_downstream = frame_between(rank, down);
    config.to_upstream = frame_between(rank, up);
    config.upstream_ip = ip_of(up);
    config.downstream_ip = ip_of(down);
    config.packet_pool = r.packets;
    config.control_pool = r.control;
    auto shard = ring::Shard::create(config, reduce::make_cpu_backend(256));
    if (!shard) throw std::runtime_error(shard.error().message);
    r.shards.push_back(std::move(*shard));
  }
}

bool RingHarness::form(TimeNs limit) {
  for (Rank& rank : ranks_) {
    for (auto& shard : rank.shards) shard->start(now_);
  }
  return run_until(
      [&] {
        return std::all_of(ranks_.begin(), ranks_.end(),
                           [&](const Rank& r) { return r.formed == lanes(); });
      },
      limit);
}

void RingHarness::run_for(TimeNs duration) {
  for (const TimeNs end = now_ + duration; now_ < end;) step();
}

void RingHarness::post(std::uint16_t rank, const ring::OpSpec& spec) {
  ranks_[rank].waiting.push_back(spec);
  retry_posts(ranks_[rank]);
}

void RingHarness::leave(std::uint16_t rank) {
  for (auto& shard : ranks_[rank].shards) shard->leave(now_);
}

void RingHarness::retry_posts(Rank& rank) {
  for (std::size_t lane = 0; lane < rank.shards.size(); ++lane) {
    for (const ring::OpSpec& spec : rank.waiting) {
      if (spec.op_seq <= rank.waiting_lane_posted[lane]) continue;
      if (rank.shards[lane]->post(spec, now_) != ring::PostResult::kOk) break;
      rank.waiting_lane_posted[lane] = spec.op_seq;
    }
  }
  const std::uint64_t posted =
      *std::min_element(rank.waiting_lane_posted.begin(), rank.waiting_lane_posted.end());
  std::erase_if(rank.waiting, [&](const auto& spec) { return spec.op_seq <= posted; });
}

void RingHarness::send(std::uint16_t to, rte_mbuf* mbuf) {
  const auto* bytes = rte_pktmbuf_mtod(mbuf, const std::byte*);
  const std::vector<std::byte> frame(bytes, bytes + mbuf->data_len);
  if (options_.driver_holds_ns > 0) {
    held_by_driver_.emplace(now_ + options_.driver_holds_ns, mbuf);
  } else {
    rte_pktmbuf_free(mbuf);
  }
  const int copies = chance(options_.loss) ? 0 : chance(options_.duplication) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    Flight flight{to, frame};
    if (chance(options_.corruption)) {
      flight.bytes[random_() % frame.size()] ^= static_cast<std::byte>(1u << random_() % 8);
    }
    const TimeNs jitter =
        options_.jitter_ns > 0
            ? static_cast<TimeNs>(uniform_(random_) * static_cast<double>(options_.jitter_ns))
            : 0;
    network_.emplace(now_ + options_.delay_ns + jitter, std::move(flight));
  }
}

void RingHarness::deliver(const Flight& flight) {
  Rank& rank = ranks_[flight.to];
  if (rank.frozen) return;
  rte_mbuf* mbuf = rte_pktmbuf_alloc(rank.packets);
  if (mbuf == nullptr) return;  // As a NIC without a descriptor: the frame is lost.
  auto* bytes = reinterpret_cast<std::byte*>(
      rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(flight.bytes.size())));
  std::copy(flight.bytes.begin(), flight.bytes.end(), bytes);
  wire::FrameView frame;
  wire::Packet packet;
  if (wire::parse_frame({bytes, flight.bytes.size()}, frame) != wire::Drop::kNone ||
      frame.kind != wire::FrameKind::kUdp || frame.destination_port != 4791 ||
      wire::decode(frame.payload, packet) != wire::Drop::kNone) {
    rte_pktmbuf_free(mbuf);
    return;
  }
  for (auto& shard : rank.shards) {
    const auto& config = shard->config();
    const std::uint32_t id = packet.common.connection_id;
    const bool wanted =
        packet.common.type == wire::PacketType::kHello
            ? shard->wants_hello(packet.hello, packet.common.lane)
            : id == config.sender_connection_id || id == config.receiver_connection_id;
    if (!wanted) continue;
    shard->on_packet(mbuf, packet, frame.source_ip, frame.ecn == 3, now_);
    return;
  }
  rte_pktmbuf_free(mbuf);
}

void RingHarness::step() {
  now_ += options_.step_ns;
  while (!held_by_driver_.empty() && held_by_driver_.begin()->first <= now_) {
    rte_pktmbuf_free(held_by_driver_.begin()->second);
    held_by_driver_.erase(held_by_driver_.begin());
  }
  while (!network_.empty() && network_.begin()->first <= now_) {
    const auto next = network_.begin();
    const Flight flight = std::move(next->second);
    network_.erase(next);
    deliver(flight);
  }
  for (std::uint16_t r = 0; r < options_.nranks; ++r) {
    Rank& rank = ranks_[r];
    if (rank.frozen) continue;
    for (auto& shard : rank.shards) {
      shard->flush(now_);
      ring::Outbox out;
      shard->poll(now_, true, out);
      for (std::size_t i = 0; i < out.down_count; ++i) {
        send(static_cast<std::uint16_t>((r + 1) % options_.nranks), out.down[i]);
      }
      for (std::size_t i = 0; i < out.up_count; ++i) {
        send(static_cast<std::uint16_t>((r + options_.nranks - 1) % options_.nranks), out.up[i]);
      }
      for (ring::Event event; shard->pop_event(event);) {
        switch (event.type) {
          case ring::EventType::kFormed:
            ++rank.formed;
            break;
          case ring::EventType::kOpDone:
            ++rank.lanes_done[event.op_seq];
            break;
          case ring::EventType::kAborted:
            ++rank.aborted;
            break;
          case ring::EventType::kClosed:
            ++rank.closed;
            break;
        }
      }
    }
    if (!rank.waiting.empty()) retry_posts(rank);
  }
}

bool RingHarness::done(std::uint16_t rank, std::uint64_t op_seq) const {
  const auto found = ranks_[rank].lanes_done.find(op_seq);
  return found != ranks_[rank].lanes_done.end() && found->second == lanes();
}

std::uint64_t RingHarness::counter(std::uint64_t ring::ShardCounters::*member) const {
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks_) {
    for (const auto& shard : rank.shards) sum += shard->counters().*member;
  }
  return sum;
}

std::uint64_t RingHarness::drops(wire::Drop drop) const {
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks_) {
    for (const auto& shard : rank.shards) {
      sum += shard->counters().drops[static_cast<std::size_t>(drop)];
    }
  }
  return sum;
}

std::uint32_t RingHarness::leaked_mbufs() {
  for (auto& [time, mbuf] : held_by_driver_) rte_pktmbuf_free(mbuf);
  held_by_driver_.clear();
  std::uint32_t leaked = 0;
  for (Rank& rank : ranks_) {
    rank.shards.clear();
    for (rte_mempool** pool : {&rank.packets, &rank.control}) {
      if (*pool == nullptr) continue;
      leaked += rte_mempool_in_use_count(*pool);
      rte_mempool_free(*pool);
      *pool = nullptr;
    }
  }
  return leaked;
}

// The reference.

namespace {

constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa5};

template <class T>
T wrap_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <class T>
T fold(RedOp op, T a, T b) {
  switch (op) {
    case RedOp::kSum:
    case RedOp::kAvg:
      return wrap_add(a, b);
    case RedOp::kMin:
      return std::min(a, b);
    case RedOp::kMax:
      return std::max(a, b);
    case RedOp::kProd:
      break;
  }
  throw std::logic_error("this reference has no such redop");
}

template <class T>
T load(const std::vector<std::byte>& bytes, std::uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void expect_into(std::vector<std::byte>& expected,
                 const std::vector<std::vector<std::vector<std::byte>>>& inputs,
                 std::uint64_t count, RedOp op) {
  const std::uint64_t nranks = inputs.size();
  const std::uint64_t line = 64 / sizeof(T);
  const std::uint64_t segment = ((count + nranks - 1) / nranks + line - 1) / line * line;
  for (std::uint64_t i = 0; i < count; ++i) {
    T sum{};
    bool first = true;
    std::uint64_t contributions = 0;
    for (std::uint64_t step = 0; step < nranks; ++step) {
      for (const auto& member : inputs[(i / segment + step) % nranks]) {
        const T value = load<T>(member, i);
        sum = first ? value : fold(op, sum, value);
        first = false;
        ++contributions;
      }
    }
    if (op == RedOp::kAvg) sum = static_cast<T>(sum / static_cast<T>(contributions));
    std::memcpy(expected.data() + i * sizeof(T), &sum, sizeof(T));
  }
}

}  // namespace

AllReduceCase::AllReduceCase(std::uint16_t nranks, std::uint16_t members, std::uint64_t count,
                             DataType type, RedOp op, std::uint64_t seed, bool in_place)
    : members_(members),
      count_(count),
      type_(type),
      op_(op),
      in_place_(in_place),
      inputs_(nranks),
      outputs_(nranks) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> value(-1000, 1000);
  const std::size_t bytes = count * element_bytes(type);
  for (std::uint16_t rank = 0; rank < nranks; ++rank) {
    for (std::uint16_t member = 0; member < members; ++member) {
      std::vector<std::byte> input(bytes);
      for (std::uint64_t i = 0; i < count; ++i) {
        if (type == DataType::kFloat32) {
          const float v = value(random);
          std::memcpy(input.data() + i * 4, &v, 4);
        } else if (type == DataType::kFloat64) {
          const double v = static_cast<double>(value(random)) / 3;
          std::memcpy(input.data() + i * 8, &v, 8);
        } else {
          const std::uint64_t v = random();
          std::memcpy(input.data() + i * element_bytes(type), &v, element_bytes(type));
        }
      }
      std::vector<std::byte> output(bytes + 2 * kGuard, kGuardByte);
      if (in_place) std::copy(input.begin(), input.end(), output.begin() + kGuard);
      inputs_[rank].push_back(std::move(input));
      outputs_[rank].push_back(std::move(output));
    }
  }
  expected_.resize(bytes);
  compute_expected();
}

void AllReduceCase::compute_expected() {
  switch (type_) {
    case DataType::kFloat32:
      return expect_into<float>(expected_, inputs_, count_, op_);
    case DataType::kFloat64:
      return expect_into<double>(expected_, inputs_, count_, op_);
    case DataType::kInt32:
      return expect_into<std::int32_t>(expected_, inputs_, count_, op_);
    case DataType::kInt64:
      return expect_into<std::int64_t>(expected_, inputs_, count_, op_);
    case DataType::kInt8:
      return expect_into<std::int8_t>(expected_, inputs_, count_, op_);
    case DataType::kUint8:
      return expect_into<std::uint8_t>(expected_, inputs_, count_, op_);
    default:
      throw std::logic_error("this reference has no such datatype");
  }
}

ring::OpSpec AllReduceCase::spec(std::uint16_t rank, std::uint64_t op_seq) {
  ring::OpSpec spec;
  spec.op_seq = op_seq;
  spec.count = count_;
  spec.tag = 99;
  spec.datatype = type_;
  spec.redop = op_;
  for (std::uint16_t member = 0; member < members_; ++member) {
    spec.outputs[member] = outputs_[rank][member].data() + kGuard;
    spec.inputs[member] = in_place_ ? spec.outputs[member] : inputs_[rank][member].data();
  }
  return spec;
}

std::string AllReduceCase::wrong(std::uint16_t rank) const {
  for (std::uint16_t member = 0; member < members_; ++member) {
    const auto& output = outputs_[rank][member];
    const auto start = output.begin() + kGuard;
    const auto [expected, actual] = std::mismatch(expected_.begin(), expected_.end(), start);
    if (expected != expected_.end()) {
      return fmt::format("rank {} member {}: byte {} of {} is {:#x}, expected {:#x}", rank, member,
                         expected - expected_.begin(), expected_.size(),
                         static_cast<unsigned>(*actual), static_cast<unsigned>(*expected));
    }
    const auto is_guard = [](std::byte b) { return b == kGuardByte; };
    if (!std::all_of(output.begin(), start, is_guard) ||
        !std::all_of(output.end() - kGuard, output.end(), is_guard)) {
      return fmt::format("rank {} member {}: wrote outside its output", rank, member);
    }
  }
  return {};
}

}  // namespace gradwire::test
