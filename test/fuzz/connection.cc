// SPDX-License-Identifier: BSD-3-Clause
// One shard of a ring, production code on real mbufs, whose two neighbors are hostile: they send
// packets of every type with right checksums and addresses, and with whatever fields, order and
// time the input says. The shard may touch nothing but the memory of unfinished ops, must send
// nothing but frames that a neighbor can read, must close within its limit, and must give back
// every mbuf.
//
// The input: ten bytes of configuration, then actions, a byte each and then their fields.
#include <rte_mbuf.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "collective/shapes/shape.h"
#include "collective/shard.h"
#include "fuzz/eal.h"
#include "fuzz/input.h"
#include "fuzz/repair.h"
#include "sim/world/slow_backend.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;
using wire::PacketType;

constexpr std::uint64_t kUpstream = 101;
constexpr std::uint64_t kDownstream = 102;
constexpr std::uint64_t kUpstreamToken = 103;  ///< of packets from there
constexpr std::uint64_t kDownstreamToken = 104;
constexpr std::size_t kMaxOpBytes = 4096;
constexpr std::size_t kTagAt = 4;  ///< in the header
constexpr std::size_t kFromRankAt = 46;
constexpr std::size_t kTokenAt = 56;

rte_mempool* large_pool;
rte_mempool* small_pool;  // runs dry
rte_mempool* control_pool;

wire::IpAddress ip(std::uint8_t last) { return {.family = 4, .bytes = {10, 0, 0, last}}; }

collective::ShardConfig config_from(Input& input) {
  collective::ShardConfig config;
  config.key = {7, 1};
  config.nranks = static_cast<std::uint16_t>(2 + input.pick(4));
  config.rank = static_cast<std::uint16_t>(input.pick(config.nranks));
  config.member_count = static_cast<std::uint16_t>(1 + input.pick(2));
  config.lanes = static_cast<std::uint8_t>(1 + input.pick(2));
  config.payload_bytes = 64 * (1 + input.pick(4));
  config.incarnation = 100;
  // With two ranks both are one.
  const bool one = config.nranks == 2;
  config.upstream.incarnation = kUpstream;
  config.downstream.incarnation = one ? kUpstream : kDownstream;
  config.upstream.tokens = {203, kUpstreamToken};
  config.downstream.tokens = {one ? 203u : 204u, one ? kUpstreamToken : kDownstreamToken};
  wire::FrameAddresses addresses;
  addresses.source_ip = ip(1);
  addresses.destination_ip = ip(2);
  config.downstream.frame = *wire::FrameTemplate::make(addresses);
  addresses.destination_ip = ip(3);
  config.upstream.frame = *wire::FrameTemplate::make(addresses);
  config.downstream.ip = ip(one ? 3 : 2);
  config.upstream.ip = ip(3);
  config.downstream.sources = config.upstream.sources = {wire::kSourcePortsMax, true};
  const std::uint8_t room = input.u8();
  config.packet_pool = (room & 1) != 0 ? small_pool : large_pool;
  config.control_pool = control_pool;
  config.window_packets = 2u + (room >> 1 & 7);
  config.transit_packets = 1u + (room >> 4 & 7);
  const std::uint8_t bounds = input.u8();
  config.eager_packets = 1u + (bounds & 7);
  config.max_active_ops = 1u << (bounds >> 3 & 3);
  config.max_chunks = 64;
  config.congestion = static_cast<transport::CongestionKind>((bounds >> 5) % 3);
  const std::uint8_t backend = input.u8();
  config.batch_entries = 1u + (backend & 3);
  config.pending_entries = config.batch_entries + (backend >> 2 & 15);
  config.received_mbufs_are_exclusive = (backend & 0x40) != 0;
  if ((backend & 0x80) != 0) config.exchange_bytes = 1024;
  config.timeouts.silence_ns = 2'000'000'000;
  return config;
}

/// A backend that finishes late, in another order, and lets one chunk fail.
class FailingBackend final : public reduce::Backend {
 public:
  FailingBackend(double chance, std::uint64_t seed, std::uint32_t fails_at)
      : slow_(16, chance, seed), fails_at_(fails_at) {}
  const char* name() const noexcept override { return "failing"; }
  std::size_t submit(std::span<const reduce::Entry> entries) noexcept override {
    return slow_.submit(entries);
  }
  std::size_t poll(std::span<reduce::Completion> done) noexcept override {
    const std::size_t count = slow_.poll(done);
    for (std::size_t i = 0; i < count; ++i) done[i].ok = ++completed_ != fails_at_;
    return count;
  }
  const reduce::BackendCounters& counters() const noexcept override { return slow_.counters(); }
  void hurry() noexcept { slow_.hurry(); }

 private:
  sim::SlowBackend slow_;
  std::uint32_t fails_at_;  ///< 0: none
  std::uint32_t completed_ = 0;
};

class Run {
 public:
  explicit Run(Input& input) : input_(input), config_(config_from(input)) {
    const double chance = input.pick(2) != 0 ? 1.0 : 0.3;
    const std::uint64_t seed = 1 + input.pick(8);
    const std::uint32_t fails_at = input.pick(4) == 3 ? input.u8() : 0;
    std::unique_ptr<reduce::Backend> backend;
    if (chance == 1.0 && seed == 1 && fails_at == 0) {
      backend = reduce::make_cpu_backend(16);  // done before it returns, as daemons have it
    } else {
      auto failing = std::make_unique<FailingBackend>(chance, seed, fails_at);
      backend_ = failing.get();
      backend = std::move(failing);
    }
    auto made = collective::Shard::create(config_, std::move(backend));
    FUZZ_CHECK(made.has_value());
    shard_ = std::move(*made);
    shard_->start(now_);
    if (input.pick(4) != 0) {
      hello(PacketType::kHello, 0);
      hello(PacketType::kHelloAck, 0);
    }
  }

  void act() {
    switch (input_.pick(18)) {
      case 0:
        return hello(PacketType::kHello, input_.u8());
      case 1:
        return hello(PacketType::kHelloAck, input_.u8());
      case 2:
      case 3:
      case 4:
        return fitting_data();
      case 5:
        return any_data();
      case 6:
        return ping();
      case 7:
        return acknowledge_all();
      case 8:
        return acknowledge_any();
      case 9:
        return abort_packet();
      case 10:
        if (input_.pick(4) == 0) return progress_check();
        return bye(input_.pick(2) != 0 ? PacketType::kBye : PacketType::kByeAck);
      case 11:
        return raw();
      case 12:
        return again();
      case 13:
        return post();
      case 14:
        now_ += static_cast<TimeNs>(input_.u8()) << input_.pick(24);
        return;
      case 15:
      case 16: {
        const bool idle = input_.pick(2) != 0;
        const std::size_t down_room = input_.pick(65);
        return poll(idle, down_room, input_.pick(65));
      }
      default:
        break;
    }
    switch (input_.pick(6)) {
      case 0:
        shard_->leave(now_);
        break;
      case 1: {
        AbortReason reason{.code = AbortCode::kClientAbort, .op_seq = 1};
        reason.set_detail("the input says so");
        shard_->abort(reason, now_);
        break;
      }
      case 2:
        release_held(0);
        break;
      default:
        shard_->flush(now_);
    }
  }

  void finish() {
    if (backend_ != nullptr) backend_->hurry();
    shard_->leave(now_);
    for (int round = 0; round < 400 && !closed_; ++round) {
      poll(true, collective::OutboxSide::kCapacity, collective::OutboxSide::kCapacity);
      now_ += 10'000'000;
    }
    FUZZ_CHECK(closed_);
    shard_.reset();
    release_held(0);
    for (rte_mempool* pool : {large_pool, small_pool, control_pool})
      FUZZ_CHECK(rte_mempool_in_use_count(pool) == 0);
  }

 private:
  /// Each of exactly its size, so that a sanitizer sees an access past the end.
  struct OpMemory {
    std::uint64_t op_seq = 0;
    std::vector<std::unique_ptr<std::byte[]>> buffers;
  };

  wire::CommonHeader common(bool down) {
    wire::CommonHeader header;
    header.lane = config_.lane;
    header.group_tag = wire::group_tag(config_.key);
    header.from_rank = rank_of(down);
    header.packet_number = number();
    header.token = (down ? config_.upstream.tokens : config_.downstream.tokens).from;
    return header;
  }
  /// The neighbor that sends down, or up.
  std::uint16_t rank_of(bool down) const {
    return down ? collective::upstream_rank(config_.rank, config_.nranks)
                : collective::downstream_rank(config_.rank, config_.nranks);
  }

  /// Puts it into an mbuf and decodes it, as the lane does.
  void deliver(std::span<const std::byte> packet) {
    rte_mbuf* frame = rte_pktmbuf_alloc(large_pool);
    if (frame == nullptr) return;
    auto* room = reinterpret_cast<std::byte*>(
        rte_pktmbuf_append(frame, static_cast<std::uint16_t>(packet.size())));
    FUZZ_CHECK(room != nullptr);
    std::memcpy(room, packet.data(), packet.size());
    const wire::Drop why = wire::decode({room, packet.size()}, decoded_);
    if (why != wire::Drop::kNone) {
      rte_pktmbuf_free(frame);
      return;
    }
    last_.assign(packet.begin(), packet.end());
    const bool from_upstream = decoded_.common.from_rank == rank_of(true);
    const auto from = shard_->source_of(decoded_.common, ip(from_upstream ? 3 : 2));
    shard_->on_packet(frame, decoded_, from, false, now_);
  }

  void hello(PacketType type, std::uint8_t change) {
    const bool down = type == PacketType::kHello;
    const std::uint16_t n = config_.nranks;
    wire::HelloBody body;
    body.key = config_.key;
    body.incarnation = down ? config_.upstream.incarnation : config_.downstream.incarnation;
    body.payload_bytes = config_.payload_bytes;
    body.from_rank = rank_of(down);
    body.to_rank = config_.rank;
    body.nranks = n;
    body.lanes = config_.lanes;
    body.credit_chunks = 4 + (change >> 2);
    body.posted_op_seq = change >> 6;
    if ((change & 1) != 0) body.credit_chunks = input_.u64();
    if ((change & 2) != 0) body.incarnation = input_.u8();
    if ((change & 0x24) == 0x24) body.table_digest = input_.u8();
    std::array<std::byte, 512> out{};
    const std::size_t bytes =
        encode_hello(out, type, common(down), body, wire::kHeaderBytes + config_.payload_bytes);
    deliver({out.data(), bytes});
  }

  std::uint64_t number() {
    switch (input_.pick(8)) {
      case 0:
        return std::max<std::uint64_t>(number_ - std::min<std::uint64_t>(input_.u8(), number_), 1);
      case 1:
        return number_ += 1 + input_.u8();
      case 2:
        return 1 + input_.u64() % wire::kLastPacketNumber;
      default:
        return ++number_;
    }
  }

  void data(const wire::DataHeader& header, std::size_t bytes) {
    bytes = std::min<std::size_t>(bytes, 1024);
    std::array<std::byte, wire::kHeaderBytes + 1024> out{};
    const std::span<std::byte> payload(out.data() + wire::kHeaderBytes, bytes);
    std::fill(payload.begin(), payload.end(), static_cast<std::byte>(input_.u8()));
    const wire::CommonHeader head = common(true);
    encode_data(std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes), head,
                header, wire::crc32c(payload) + (input_.pick(32) == 31 ? 1 : 0));
    deliver({out.data(), wire::kHeaderBytes + bytes});
  }

  /// A chunk that this rank gets of an op that it posted, or of the one after.
  void fitting_data() {
    const std::uint64_t posted = shard_->status(now_).posted_op_seq;
    wire::DataHeader header;
    header.op_seq = posted - std::min<std::uint64_t>(input_.pick(3), posted) + input_.pick(2);
    if (header.op_seq == 0) header.op_seq = 1;
    shape_of(header.op_seq, header);
    const collective::OpPlan plan = collective::plan_op(
        {config_.rank, config_.nranks, config_.member_count, config_.exchange_bytes}, 0, 1,
        config_.payload_bytes,
        {header.collective, header.datatype, header.root, header.total_count});
    const collective::Partition& partition = plan.partition;
    if (partition.total_chunks() == 0) return;
    header.chunk = static_cast<std::uint32_t>(input_.u8() % partition.total_chunks());
    header.count = static_cast<std::uint16_t>(partition.elements(header.chunk));
    const collective::Place place =
        collective::place_of(plan.shape, plan.route, partition.segment_of(header.chunk));
    const bool gathering = place.gets_gathering && (!place.gets_reducing || input_.pick(2) != 0);
    header.hop = gathering ? place.gathering_hop : place.reducing_hop;
    data(header, header.count * element_bytes(header.datatype));
  }

  void any_data() {
    wire::DataHeader header;
    header.op_seq = input_.small_or_any();
    shape_of(header.op_seq, header);
    const std::uint8_t change = input_.u8();
    if ((change & 1) != 0) header.total_count = input_.u64() >> 16;
    if ((change & 2) != 0) header.datatype = static_cast<DataType>(input_.pick(kDataTypeCount + 1));
    if ((change & 4) != 0) header.redop = static_cast<RedOp>(input_.pick(kRedOpCount + 1));
    if ((change & 8) != 0) header.tag = input_.u32();
    header.chunk = (change & 16) != 0 ? input_.u32() : input_.u8();
    header.hop = input_.u8();
    header.count = (change & 32) != 0 ? input_.u16() : input_.u8();
    const std::size_t element = is_valid(header.datatype) ? element_bytes(header.datatype) : 1;
    data(header, (change & 64) != 0 ? input_.u8() : header.count * element);
  }

  void ping() {
    std::array<std::byte, wire::kHeaderBytes> out{};
    deliver({out.data(), encode_ping(out, common(true))});
  }

  void acknowledge(const wire::AckHeader& ack) {
    std::array<std::byte, 1280> out{};
    deliver({out.data(), encode_ack(out, common(false), ack)});
  }
  void acknowledge_all() {
    wire::AckHeader ack;
    ack.range_count = largest_sent_ != 0 ? 1 : 0;
    ack.ranges[0] = {1, largest_sent_};
    ack.credit_chunks = credit_ += input_.u8();
    ack.posted_op_seq = shard_->status(now_).posted_op_seq + input_.pick(2);
    acknowledge(ack);
  }
  void acknowledge_any() {
    wire::AckHeader ack;
    ack.range_count = static_cast<std::uint8_t>(input_.pick(5));
    std::uint64_t at = largest_sent_ + input_.pick(2) * input_.pick(4);
    for (std::size_t i = 0; i < ack.range_count; ++i) {
      at -= std::min<std::uint64_t>(input_.pick(16), at);
      ack.ranges[i].last = at;
      at -= std::min<std::uint64_t>(input_.pick(16), at);
      ack.ranges[i].first = at;
      at -= std::min<std::uint64_t>(2 + input_.pick(8), at);
    }
    ack.credit_chunks = input_.small_or_any();
    ack.posted_op_seq = input_.small_or_any();
    ack.delay_ns = input_.u32();
    ack.ecn_ce_count = input_.u32();
    acknowledge(ack);
  }

  void abort_packet() {
    AbortReason reason;
    reason.code = static_cast<AbortCode>(1 + input_.pick(12));
    reason.culprit_rank = input_.u8();
    reason.reporter_rank = input_.u8();
    reason.op_seq = input_.u8();
    const auto text = input_.bytes(input_.pick(32));
    std::copy_n(reinterpret_cast<const char*>(text.data()), text.size(), reason.detail);
    std::array<std::byte, 512> out{};
    deliver({out.data(), encode_abort(out, common(input_.pick(2) != 0), reason)});
  }

  void bye(PacketType type) {
    std::array<std::byte, 128> out{};
    const wire::ByeBody body{input_.small_or_any()};
    deliver({out.data(), encode_bye(out, type, common(input_.pick(2) != 0), body)});
  }

  void progress_check() {
    std::array<std::byte, 128> out{};
    const wire::ProgressCheckBody body{input_.small_or_any() | 1, input_.small_or_any(),
                                       static_cast<std::uint16_t>(input_.pick(4))};
    deliver({out.data(), encode_progress_check(out, common(true), body)});
  }

  void raw() {
    const auto bytes = input_.bytes(wire::kHeaderBytes + input_.u8());
    std::array<std::byte, wire::kHeaderBytes + 256> packet{};
    std::copy(bytes.begin(), bytes.end(), packet.begin());
    // A packet without a token gets the right one, so that the fuzzer gets past that check.
    const auto token = std::span(packet).subspan(kTokenAt, 8);
    if (std::ranges::count(token, std::byte{}) == 8) {
      const bool down = packet[kFromRankAt + 1] == static_cast<std::byte>(rank_of(true));
      token.back() = static_cast<std::byte>(down ? kUpstreamToken : kDownstreamToken);
      const std::uint32_t tag = wire::group_tag(config_.key);
      for (std::size_t i = 0; i < 4; ++i) {
        packet[kTagAt + i] = static_cast<std::byte>(tag >> (24 - 8 * i));
      }
    }
    repair_packet({packet.data(), bytes.size()});
    deliver({packet.data(), bytes.size()});
  }

  void again() {
    const std::vector<std::byte> packet = last_;
    if (!packet.empty()) deliver(packet);
  }

  /// The shape that an op has, posted or to be posted: from its number, so that neighbors know.
  void shape_of(std::uint64_t op_seq, wire::DataHeader& header) const {
    const std::uint64_t mixed = op_seq * 0x9e3779b97f4a7c15u;
    header.datatype = static_cast<DataType>((mixed >> 8) % kDataTypeCount);
    header.redop = static_cast<RedOp>((mixed >> 16) % kRedOpCount);
    const std::uint64_t processes = std::uint64_t{config_.nranks} * config_.member_count;
    header.total_count =
        (mixed >> 24) % (kMaxOpBytes / element_bytes(header.datatype) / processes + 1);
    constexpr std::array<Collective, 7> kKinds = {
        Collective::kAllReduce, Collective::kAllReduce,     Collective::kReduce,
        Collective::kBroadcast, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBarrier};
    header.collective = kKinds[(mixed >> 40) % kKinds.size()];
    if (header.collective == Collective::kBarrier) {
      header.total_count = 0;
      header.datatype = DataType::kUint8;
    }
    if (!reduces(header.collective)) header.redop = RedOp::kSum;
    if (has_root(header.collective)) {
      header.root = static_cast<std::uint16_t>((mixed >> 44) % processes);
    }
  }

  void post() {
    const std::uint64_t op_seq = shard_->status(now_).posted_op_seq + 1;
    wire::DataHeader shape;
    shape_of(op_seq, shape);
    collective::OpSpec spec;
    spec.op_seq = op_seq;
    spec.count = shape.total_count;
    spec.datatype = shape.datatype;
    spec.redop = shape.redop;
    spec.collective = shape.collective;
    spec.root = shape.root;
    OpMemory memory{op_seq, {}};
    const bool in_place = input_.pick(2) != 0;
    const std::size_t bytes = spec.count * element_bytes(spec.datatype) * config_.nranks *
                              std::size_t{config_.member_count};
    for (std::uint16_t member = 0; member < config_.member_count; ++member) {
      memory.buffers.push_back(std::make_unique<std::byte[]>(bytes));
      spec.outputs[member] = memory.buffers.back().get();
      if (!in_place) memory.buffers.push_back(std::make_unique<std::byte[]>(bytes));
      spec.inputs[member] = memory.buffers.back().get();
    }
    if (shard_->post(spec, now_) == collective::PostResult::kOk)
      memories_.push_back(std::move(memory));
  }

  void poll(bool idle, std::size_t down_room, std::size_t up_room) {
    auto out = std::make_unique<collective::Outbox>();
    out->down().room = std::min(down_room, collective::OutboxSide::kCapacity);
    out->up().room = std::min(up_room, collective::OutboxSide::kCapacity);
    shard_->flush(now_);
    static_cast<void>(shard_->poll(now_, idle, *out));
    FUZZ_CHECK(out->down().count <= out->down().room && out->up().count <= out->up().room);
    for (std::size_t i = 0; i < out->down().count; ++i) sent(out->down().frames[i], true);
    for (std::size_t i = 0; i < out->up().count; ++i) sent(out->up().frames[i], false);
    release_held(16);
    static_cast<void>(shard_->deadline(now_));
    collective::Event event;
    while (shard_->pop_event(event)) {
      FUZZ_CHECK(!closed_);
      if (event.type == collective::EventType::kOpDone) {
        FUZZ_CHECK(std::erase_if(memories_, [&](const OpMemory& memory) {
                     return memory.op_seq == event.op_seq;
                   }) == 1);
      }
      // Nothing refers to client memory once an abort was told.
      if (event.type == collective::EventType::kAborted) memories_.clear();
      if (event.type == collective::EventType::kClosed) {
        closed_ = true;
        memories_.clear();
      }
    }
  }

  void sent(rte_mbuf* frame, bool down) {
    wire::FrameView view;
    const std::span<const std::byte> bytes(rte_pktmbuf_mtod(frame, const std::byte*),
                                           rte_pktmbuf_data_len(frame));
    FUZZ_CHECK(wire::parse_frame(bytes, view) == wire::Drop::kNone);
    FUZZ_CHECK(wire::decode(view.payload, decoded_) == wire::Drop::kNone);
    const wire::CommonHeader& header = decoded_.common;
    FUZZ_CHECK(header.from_rank == config_.rank);
    FUZZ_CHECK(header.group_tag == wire::group_tag(config_.key));
    FUZZ_CHECK(header.token == (down ? config_.downstream.tokens : config_.upstream.tokens).to);
    // No packet number is used twice on a link, whatever the type.
    const std::size_t link = down || config_.nranks == 2 ? 0 : 1;
    FUZZ_CHECK(numbers_sent_[link].insert(header.packet_number).second);
    if (wire::wants_ack(header.type)) {
      FUZZ_CHECK(wire::payload_crc_ok(decoded_));
      FUZZ_CHECK(header.packet_number > largest_sent_);
      largest_sent_ = header.packet_number;
    }
    held_.push_back(frame);  // as a driver does, for a while
  }
  void release_held(std::size_t keep) {
    for (; held_.size() > keep; held_.pop_front()) rte_pktmbuf_free(held_.front());
  }

  Input& input_;
  collective::ShardConfig config_;
  FailingBackend* backend_ = nullptr;
  std::deque<OpMemory> memories_;  // outlives the shard
  std::unique_ptr<collective::Shard> shard_;
  wire::Packet decoded_;
  std::deque<rte_mbuf*> held_;
  std::vector<std::byte> last_;
  TimeNs now_ = 1'000'000'000;
  std::uint64_t number_ = 0;
  std::uint64_t largest_sent_ = 0;
  std::array<std::set<std::uint64_t>, 2> numbers_sent_;
  std::uint64_t credit_ = 0;
  bool closed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  start_eal();
  constexpr std::uint16_t kRoom = RTE_PKTMBUF_HEADROOM + 2048;
  large_pool = rte_pktmbuf_pool_create("fuzz_large", 1023, 0, 0, kRoom, SOCKET_ID_ANY);
  small_pool = rte_pktmbuf_pool_create("fuzz_small", 7, 0, 0, kRoom, SOCKET_ID_ANY);
  control_pool = rte_pktmbuf_pool_create("fuzz_control", 127, 0, 0, kRoom, SOCKET_ID_ANY);
  FUZZ_CHECK(large_pool != nullptr && small_pool != nullptr && control_pool != nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  play<Run>(data, size, 1000);
  return 0;
}
