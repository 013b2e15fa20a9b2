// SPDX-License-Identifier: BSD-3-Clause
// One shard with direct, two-step and gathered ops, production code on real mbufs, all of whose
// peers are hostile: they send contributions, receipts and inquiries with right checksums, tokens
// and addresses, and with whatever fields, order and time the input says. The shard may touch
// nothing but the memory of unfinished ops, ends each of them once, must send nothing but frames
// that a peer can read, must close within its limit, and must give back every mbuf. Some groups
// have a rank without members, and in some of these the shard is that rank, to which nobody posts.
//
// The input: seven bytes of configuration, then actions, a byte each and then their fields.
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/collective_call.h"
#include "collective/shard.h"
#include "fuzz/hostile_peers.h"
#include "fuzz/input.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;
using collective::Shape;
using wire::PacketType;

constexpr std::size_t kPayloadMax = 512;

std::uint16_t neighbor(const collective::ShardConfig& config, bool next) {
  if (config.folds_only()) return collective::attached_rank(config.rank, config.nranks);
  return next ? collective::downstream_rank(config.rank, config.nranks)
              : collective::upstream_rank(config.rank, config.nranks);
}

collective::ShardConfig config_from(Input& input) {
  collective::ShardConfig config;
  config.key = {7, 1};
  config.nranks = static_cast<std::uint16_t>(3 + input.pick(7));
  config.rank = static_cast<std::uint16_t>(input.pick(config.nranks));
  config.member_count = static_cast<std::uint16_t>(1 + input.pick(2));
  config.lanes = static_cast<std::uint8_t>(1 + input.pick(2));
  config.lane = static_cast<std::uint8_t>(input.pick(config.lanes));
  const std::uint8_t room = input.u8();
  config.payload_bytes = 64 * (1u + (room & 3));
  config.direct.op_bytes = 4096;
  config.direct.two_step_bytes = (room & 4) != 0 ? 8192 : 0;
  // One rank that only folds, alone or beside an owner; with 0x10 it is this one.
  const bool folding = (room & 0x80) != 0;
  if (folding) {
    config.folding_ranks = 1;
    config.direct.two_step_bytes = 8192;
    if ((room & 0x10) != 0) {
      config.rank = config.nranks;
      config.member_count = 1;
    }
  }
  if ((room & 0x20) != 0 || folding) {
    std::vector<std::uint16_t> owners;
    if ((room & 0x20) != 0) owners.push_back(0);
    owners.push_back(folding ? config.nranks : std::uint16_t{2});
    config.direct.owners =
        std::make_shared<const collective::Owners>(std::move(owners), config.all_ranks());
  }
  config.direct.gathered_bytes = (room & 8) != 0 ? 4096 : 0;
  config.direct.gathered_ranks = 2;
  config.incarnation = kIncarnation + config.rank;
  config.packet_pool = (room & 0x40) != 0 ? small_pool : large_pool;
  config.control_pool = control_pool;
  config.max_active_ops = 8;
  config.max_chunks = 1024;
  config.timeouts.silence_ns = 2'000'000'000;
  add_peers(config, neighbor(config, false), neighbor(config, true));
  return config;
}

class Run {
 public:
  explicit Run(Input& input)
      : input_(input), config_(config_from(input)), first_kind_(input.pick(6)) {
    auto made = collective::Shard::create(config_, reduce::make_cpu_backend(16));
    FUZZ_CHECK(made.has_value());
    shard_ = std::move(*made);
    shard_->start(now_);
    hello(PacketType::kHello, neighbor(config_, false));
    hello(PacketType::kHelloAck, neighbor(config_, true));
    if (config_.rank < config_.folding_ranks) {
      hello(PacketType::kHello, config_.nranks);
      hello(PacketType::kHelloAck, config_.nranks);
    }
  }

  void act() {
    switch (input_.pick(16)) {
      case 0:
      case 1:
        return post();
      case 2:
      case 3:
      case 4:
        return fitting();
      case 5:
        return all_of(input_.pick(2) != 0);
      case 6:
        return any_contribution();
      case 7:
        return receipt(PacketType::kReceipt, false);
      case 8:
        return receipt(input_.pick(2) != 0 ? PacketType::kReceipt : PacketType::kInquiry, true);
      case 9:
        return again();
      case 10:
        now_ += static_cast<TimeNs>(input_.u8()) << input_.pick(24);
        return;
      case 11:
      case 12: {
        const bool idle = input_.pick(2) != 0;
        return poll(idle, input_.pick(65));
      }
      case 13:
        return keep_alive();
      case 14:
        if (input_.pick(16) == 15) shard_->leave(now_);
        return;
      default:
        release_held(0);
        shard_->flush(now_);
    }
  }

  void finish() {
    shard_->leave(now_);
    for (int round = 0; round < 400 && !closed_; ++round) {
      poll(true, collective::OutboxSide::kCapacity);
      now_ += 10'000'000;
    }
    FUZZ_CHECK(closed_);
    shard_.reset();
    release_held(0);
    for (rte_mempool* pool : {large_pool, small_pool, control_pool})
      FUZZ_CHECK(rte_mempool_in_use_count(pool) == 0);
  }

 private:
  struct Posted {
    std::vector<std::unique_ptr<std::byte[]>> memory;  ///< exact sizes, so that a sanitizer sees
    bool active = false;
  };

  /// What an op is called with: it follows from its number, so that peers know.
  collective::OpSpec spec_of(std::uint64_t op_seq) const {
    constexpr std::array kKinds = {Collective::kAllReduce, Collective::kAllGather,
                                   Collective::kBarrier,   Collective::kReduceScatter,
                                   Collective::kReduce,    Collective::kBroadcast};
    constexpr std::array kTypes = {DataType::kFloat32, DataType::kBfloat16, DataType::kInt8};
    constexpr std::array<std::uint32_t, 5> kCounts = {1, 7, 40, 200, 600};
    const std::uint64_t mixed = op_seq * 0x9e3779b97f4a7c15u;
    collective::OpSpec spec;
    spec.op_seq = op_seq;
    spec.collective = kKinds[(op_seq + first_kind_) % kKinds.size()];
    spec.datatype = kTypes[(mixed >> 40) % kTypes.size()];
    spec.count = spec.collective == Collective::kBarrier ? 0 : kCounts[(mixed >> 48) % 5];
    if (has_root(spec.collective)) {
      spec.root = static_cast<std::uint32_t>((mixed >> 56) % config_.processes().count());
    }
    return spec;
  }
  collective::OpPlan plan_of(const collective::OpSpec& spec) const {
    return collective::plan_op(config_.shape_group(), config_.lane, config_.lanes,
                               config_.payload_bytes,
                               {spec.collective, spec.datatype, spec.root, spec.count, spec.redop});
  }
  std::uint16_t some_peer() {
    const std::uint32_t ranks = config_.all_ranks();
    return static_cast<std::uint16_t>((config_.rank + 1 + input_.pick(ranks - 1)) % ranks);
  }
  /// Ops that this rank is in; others tell one that only folds of them.
  std::uint64_t ops() const { return config_.folds_only() ? told_ : posted_.size(); }
  wire::CommonHeader common(std::uint16_t rank) { return header_from(config_, rank, ++number_); }

  void deliver(std::span<const std::byte> packet) {
    if (!give(*shard_, packet, decoded_, (number_ & 7) == 7, now_)) return;
    last_.assign(packet.begin(), packet.end());
    take_events();
  }

  void hello(PacketType type, std::uint16_t rank) {
    deliver(greeting(config_, type, common(rank)));
  }

  /// So that silence does not end every run.
  void keep_alive() {
    for (const bool next : {false, true}) {
      std::array<std::byte, 128> out{};
      deliver({out.data(), encode_ping(out, common(neighbor(config_, next)))});
    }
    if (config_.rank < config_.folding_ranks) {
      std::array<std::byte, 128> out{};
      deliver({out.data(), encode_ping(out, common(config_.nranks))});
    }
  }

  void post() {
    if (config_.folds_only()) return;
    collective::OpSpec spec = spec_of(posted_.size() + 1);
    const std::uint64_t blocks = config_.processes().count();
    const std::uint64_t element = element_bytes(spec.datatype);
    const bool wide_in = spec.collective == Collective::kReduceScatter;
    const bool wide_out = spec.collective == Collective::kAllGather;
    Posted posted;
    posted.active = true;
    for (std::uint16_t member = 0; member < config_.member_count; ++member) {
      const std::uint64_t in = spec.count * element * (wide_in ? blocks : 1);
      const std::uint64_t out = spec.count * element * (wide_out ? blocks : 1);
      posted.memory.push_back(std::make_unique<std::byte[]>(in));
      spec.inputs[member] = posted.memory.back().get();
      posted.memory.push_back(std::make_unique<std::byte[]>(out));
      spec.outputs[member] = posted.memory.back().get();
    }
    if (shard_->post(spec, now_) != collective::PostResult::kOk) return;
    posted_.emplace(spec.op_seq, std::move(posted));
    take_events();
  }

  void contribution(std::uint16_t rank, const collective::OpSpec& spec, std::uint32_t chunk,
                    std::uint8_t step, std::size_t bytes) {
    bytes = std::min(bytes, kPayloadMax);
    wire::DataHeader data;
    data.op_seq = spec.op_seq;
    data.total_count = spec.count;
    data.chunk = chunk;
    data.datatype = spec.datatype;
    data.redop = spec.redop;
    data.collective = spec.collective;
    data.root =
        spec.root == collective::kNoRoot ? wire::kNoRoot : static_cast<std::uint16_t>(spec.root);
    data.step = step;
    std::array<std::byte, wire::kHeaderBytes + kPayloadMax> out{};
    const std::span<std::byte> payload(out.data() + wire::kHeaderBytes, bytes);
    std::ranges::fill(payload, static_cast<std::byte>(chunk + rank));
    const bool damaged = input_.pick(32) == 31;
    wire::encode_contribution(
        std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes), common(rank),
        data, spec.op_seq - std::min<std::uint64_t>(spec.op_seq, input_.pick(4)),
        wire::crc32c(payload) + (damaged ? 1 : 0));
    deliver({out.data(), wire::kHeaderBytes + bytes});
  }

  /// Chunk `index` of those that `rank` sends in the op, if its size is right.
  void fitting_chunk(std::uint16_t rank, const collective::OpSpec& spec, std::uint32_t index) {
    const collective::OpPlan plan = plan_of(spec);
    if (plan.shape == Shape::kGathered) {
      if (config_.folds_only() || rank >= config_.nranks) return;
      const std::uint32_t distance =
          collective::gathered::distance(rank, config_.rank, config_.nranks);
      const std::uint32_t step = static_cast<std::uint32_t>(std::bit_width(distance)) - 1;
      const std::uint64_t slot = collective::gathered::slot_bytes(
          config_.shape_group(), spec.collective, spec.datatype, spec.count);
      const std::uint64_t all = collective::gathered::message_bytes(slot, step, config_.nranks);
      const std::uint64_t at = std::uint64_t{index} * config_.payload_bytes;
      const std::uint64_t bytes = at < all ? all - at : 1;
      return contribution(rank, spec, index, static_cast<std::uint8_t>(step + 1),
                          std::min<std::uint64_t>(bytes, config_.payload_bytes));
    }
    if (!collective::is_off_ring(plan.shape) || plan.partition.total_chunks() == 0) return;
    const auto chunk = static_cast<std::uint32_t>(index % plan.partition.total_chunks());
    const bool wide = reduces(spec.collective) && input_.pick(4) != 0;
    const DataType type =
        wide ? collective::direct::part_type(config_.shape_group(), spec.datatype) : spec.datatype;
    const std::uint32_t width = spec.collective == Collective::kBarrier ? 1 : element_bytes(type);
    contribution(rank, spec, chunk, 0, plan.partition.elements(chunk) * width);
  }

  std::uint64_t op_near() {
    const std::uint64_t posted = ops();
    const std::uint64_t op_seq = posted + 2 - std::min<std::uint64_t>(input_.pick(5), posted + 1);
    return std::max<std::uint64_t>(op_seq, 1);
  }
  void fitting() {
    const std::uint16_t rank = some_peer();
    fitting_chunk(rank, spec_of(op_near()), input_.pick(8));
  }
  /// What all ranks send in the last op, from the nearest or from the farthest on.
  void all_of(bool backwards) {
    if (config_.folds_only()) ++told_;
    if (ops() == 0) return;
    const collective::OpSpec spec = spec_of(ops());
    const std::uint32_t ranks = config_.all_ranks();
    for (std::uint32_t ahead = 1; ahead < ranks; ++ahead) {
      const std::uint32_t by = backwards ? ranks - ahead : ahead;
      const auto rank = static_cast<std::uint16_t>((config_.rank + by) % ranks);
      for (std::uint32_t index = 0; index < 16; ++index) fitting_chunk(rank, spec, index);
    }
  }
  void any_contribution() {
    const std::uint16_t rank = some_peer();
    const std::uint8_t change = input_.u8();
    collective::OpSpec spec = spec_of(op_near());
    if ((change & 1) != 0) spec.op_seq = input_.small_or_any() | 1;
    if ((change & 2) != 0) spec.count = input_.small_or_any() & 0xffff'ffff'ffff;
    if ((change & 4) != 0) spec.datatype = static_cast<DataType>(input_.pick(8));
    const std::uint32_t chunk = (change & 8) != 0 ? input_.u32() : input_.u8();
    const auto step = static_cast<std::uint8_t>((change & 16) != 0 ? input_.u8() : input_.pick(5));
    contribution(rank, spec, chunk, step, 1 + (change & 32 ? input_.u8() : 63u));
  }

  void receipt(PacketType type, bool any) {
    const std::uint16_t rank = some_peer();
    wire::Receipt receipt;
    receipt.entered = any ? input_.small_or_any() : ops();
    receipt.received = any ? input_.small_or_any()
                           : receipt.entered - input_.pick(2) * (receipt.entered > 0 ? 1u : 0u);
    receipt.chunks = any ? input_.u64() : 0;
    receipt.echo = input_.u8();
    std::array<std::byte, 128> out{};
    deliver({out.data(), encode_receipt(out, type, common(rank), receipt)});
  }

  void again() {
    const std::vector<std::byte> packet = last_;
    if (!packet.empty()) deliver(packet);
  }

  void poll(bool idle, std::size_t room) {
    auto out = std::make_unique<collective::Outbox>();
    for (auto& box : out->boxes) box.room = std::min(room, collective::OutboxSide::kCapacity);
    shard_->flush(now_);
    static_cast<void>(shard_->poll(now_, idle, *out));
    for (auto& box : out->boxes) {
      FUZZ_CHECK(box.count <= box.room);
      for (std::size_t i = 0; i < box.count; ++i) sent(box.frames[i]);
    }
    release_held(16);
    FUZZ_CHECK(shard_->deadline(now_) >= 0);
    take_events();
  }

  void take_events() {
    collective::Event event;
    while (shard_->pop_event(event)) {
      FUZZ_CHECK(!closed_);
      if (event.type == collective::EventType::kOpDone && config_.folds_only()) {
        FUZZ_CHECK(folded_.insert(event.op_seq).second);
      } else if (event.type == collective::EventType::kOpDone) {
        const auto found = posted_.find(event.op_seq);
        FUZZ_CHECK(found != posted_.end() && found->second.active);
        found->second.active = false;
        found->second.memory.clear();
      }
      // Nothing refers to client memory once an abort was told.
      const bool closes = event.type == collective::EventType::kClosed;
      if (event.type == collective::EventType::kAborted || closes) {
        for (auto& [op_seq, posted] : posted_) posted.memory.clear();
      }
      closed_ |= closes;
    }
  }

  void sent(rte_mbuf* frame) {
    wire::FrameView view;
    const std::span<const std::byte> bytes(rte_pktmbuf_mtod(frame, const std::byte*),
                                           rte_pktmbuf_data_len(frame));
    FUZZ_CHECK(wire::parse_frame(bytes, view) == wire::Drop::kNone);
    FUZZ_CHECK(wire::decode(view.payload, decoded_) == wire::Drop::kNone);
    const wire::CommonHeader& header = decoded_.common;
    FUZZ_CHECK(header.from_rank == config_.rank);
    const auto to = static_cast<std::uint16_t>(header.token - kTokenTo);
    FUZZ_CHECK(to < config_.all_ranks() && to != config_.rank);
    FUZZ_CHECK(numbers_sent_[to].insert(header.packet_number).second);
    if (header.type == PacketType::kContribution) {
      FUZZ_CHECK(wire::payload_crc_ok(decoded_));
      // One that only folds is in whatever ops it was told of.
      const collective::OpPlan plan = plan_of(spec_of(decoded_.data.op_seq));
      FUZZ_CHECK(config_.folds_only() || collective::is_off_ring(plan.shape));
      FUZZ_CHECK(config_.folds_only() ||
                 (plan.shape == Shape::kGathered) == (decoded_.data.step != 0));
    }
    held_.push_back(frame);  // as a driver does, for a while
  }
  void release_held(std::size_t keep) {
    for (; held_.size() > keep; held_.pop_front()) rte_pktmbuf_free(held_.front());
  }

  Input& input_;
  collective::ShardConfig config_;
  std::uint64_t first_kind_;                ///< which collective op 0 would be
  std::map<std::uint64_t, Posted> posted_;  // outlives the shard
  std::uint64_t told_ = 0;                  ///< the last op of which all tell one that only folds
  std::set<std::uint64_t> folded_;          ///< ops that it has ended
  std::unique_ptr<collective::Shard> shard_;
  wire::Packet decoded_;
  std::deque<rte_mbuf*> held_;
  std::vector<std::byte> last_;
  TimeNs now_ = 1'000'000'000;
  std::uint64_t number_ = 0;
  std::map<std::uint16_t, std::set<std::uint64_t>> numbers_sent_;
  bool closed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  make_pools();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  play<Run>(data, size, 1000);
  return 0;
}
