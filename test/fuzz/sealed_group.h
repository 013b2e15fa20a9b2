// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All ranks of a group whose packets are sealed: production shards and keys, joined by a network
/// that loses nothing unless it is told to. Whatever is delivered to a shard, it checks what
/// becomes of it: a packet is opened if and only if the other rank sealed it so and it comes for
/// the first time (sealed_link.h); one that is not changes nothing but the counter of its reason.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collective/links/seals.h"
#include "collective/shard.h"
#include "fuzz/sealed_config.h"
#include "fuzz/sealed_link.h"
#include "support/describe_shard.h"

namespace gradwire::fuzz {

using security::Mode;
using wire::Drop;

/// On its way, or seen there.
struct SealedPacket {
  std::uint8_t lane = 0;
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  PacketBytes bytes;
};

class SealedGroup {
 public:
  static constexpr std::size_t kSeenMax = 64;

  struct Options {
    std::uint16_t nranks = 2;
    std::uint8_t lanes = 1;
    Mode mode = Mode::kEncrypt;
    unsigned generation_bits = 0;
    std::uint8_t shape = 0;  ///< bits: payloads of 128 bytes, and shapes that ops have
    std::uint32_t window = 2;
  };
  explicit SealedGroup(const Options& options)
      : nranks_(options.nranks),
        lanes_(options.lanes),
        mode_(options.mode),
        generation_bits_(options.generation_bits) {
    for (std::uint8_t lane = 0; lane < lanes_; ++lane) add_links(lane);
    for (std::uint8_t lane = 0; lane < lanes_; ++lane) {
      for (std::uint16_t rank = 0; rank < nranks_; ++rank) {
        add_shard({lane, rank}, options.shape, options.window);
      }
    }
    posted_.resize(shards_.size());
    done_.resize(shards_.size());
    for (int i = 0; i < 40 && !all_formed(); ++i) round();
    FUZZ_CHECK(all_formed());
  }

  std::uint16_t nranks() const { return nranks_; }
  std::uint8_t lanes() const { return lanes_; }
  bool aborted() const { return aborted_; }
  bool all_done() const { return least_done() == ops_.size(); }
  /// The last that were sent.
  const std::deque<SealedPacket>& seen() const { return seen_; }
  std::deque<SealedPacket>& on_way() { return on_way_; }
  void pass(TimeNs time) { now_ += time; }
  /// Keys come so many rounds late from now on.
  void delay_keys(std::uint32_t rounds) { key_delay_ = rounds; }
  /// What a rank sealed may be anything from now on.
  void lies() { lied_ = true; }
  SealedLink& link(std::uint8_t lane, std::uint16_t from, std::uint16_t to) {
    return *links_[index(lane, from) * nranks_ + to];
  }

  /// All ranks send, what is on its way arrives, and keys that were wished for come.
  void round() {
    now_ += 200'000;
    post_pending();
    for (std::size_t i = 0; i < shards_.size(); ++i) poll(i);
    std::deque<SealedPacket> arrives;
    arrives.swap(on_way_);
    for (const SealedPacket& sent : arrives) deliver(sent);
    for (auto& shard : shards_) shard->flush(now_);
    supply();
    for (std::size_t i = 0; i < shards_.size(); ++i) take_events(i);
    for (; held_.size() > 8; held_.pop_front()) rte_pktmbuf_free(held_.front());
  }
  /// As a lane does with a packet from that rank's address.
  void deliver(const SealedPacket& sent) {
    const auto& [lane, source, to, bytes] = sent;
    collective::Shard& shard = *shards_[index(lane, to)];
    wire::Packet packet;
    if (wire::decode_header(bytes, packet) != Drop::kNone) return;
    if (packet.common.group_tag != wire::group_tag(kSealedGroup)) return;
    auto from = shard.source_of(packet.common, ip(source));
    if (from.drop != Drop::kNone) return dropped(shard, packet, from, bytes);
    FUZZ_CHECK(from.sealed && packet.common.sealed == flag());
    FUZZ_CHECK(packet.common.from_rank < nranks_ && packet.common.from_rank != to);
    const Drop right = link(lane, packet.common.from_rank, to).receive(bytes);
    rte_mbuf* frame = put(bytes);
    std::span<const std::byte> opened(rte_pktmbuf_mtod(frame, const std::byte*), bytes.size());
    // A driver may hold the buffer too: then it is opened in another one.
    const bool shared = (bytes.back() & std::byte{7}) == std::byte{7};
    if (shared) rte_mbuf_refcnt_update(held_.emplace_back(frame), 1);
    const std::string before =
        right == Drop::kNone ? std::string() : test::describe(shard, now_, {right});
    const std::uint64_t copies = shard.counters().copies;
    from.drop = shard.open(packet.common, frame, opened);
    FUZZ_CHECK(from.drop == right);
    if (shared && mode_ == Mode::kEncrypt) {
      FUZZ_CHECK(shard.counters().copies == copies + 1);
      FUZZ_CHECK(std::memcmp(rte_pktmbuf_mtod(held_.back(), const void*), bytes.data(),
                             bytes.size()) == 0);
    } else {
      FUZZ_CHECK(shard.counters().copies == copies);
    }
    if (right == Drop::kNone && wire::decode_body(opened, packet) != Drop::kNone) {
      FUZZ_CHECK(lied_);
      return rte_pktmbuf_free(frame);
    }
    const std::uint64_t drops = shard.counters().drops[static_cast<std::size_t>(right)];
    shard.on_packet(frame, packet, from, false, now_);
    if (right == Drop::kNone) return;
    FUZZ_CHECK(shard.counters().drops[static_cast<std::size_t>(right)] == drops + 1);
    FUZZ_CHECK(copies != shard.counters().copies || test::describe(shard, now_, {right}) == before);
  }
  /// An all-reduce of so many elements, on all ranks. Not more than four at once.
  void post(std::size_t count) {
    if (ended_ || aborted_ || ops_.size() >= least_done() + 4) return;
    const std::uint64_t op_seq = ops_.size() + 1;
    Op& op = ops_.emplace_back();
    op.count = count;
    op.lanes_done.resize(nranks_);
    for (std::uint16_t rank = 0; rank < nranks_; ++rank) {
      collective::OpSpec spec;
      spec.op_seq = op_seq;
      spec.count = op.count;
      spec.datatype = DataType::kInt32;
      auto& memory = op.memory.emplace_back();
      memory.push_back(std::make_unique<std::byte[]>(op.count * 4));
      for (std::size_t i = 0; i < op.count; ++i) {
        const std::int32_t mine = value(op_seq, rank, i);
        std::memcpy(memory.back().get() + 4 * i, &mine, 4);
      }
      spec.inputs[0] = memory.back().get();
      if (op_seq % 2 == 0) memory.push_back(std::make_unique<std::byte[]>(op.count * 4));
      spec.outputs[0] = memory.back().get();
      op.specs.push_back(spec);
    }
    post_pending();
  }

  /// A rank leaves, or ends the group with an error: not every op will be done.
  void end(std::size_t which, bool leaves) {
    ended_ = true;
    collective::Shard& shard = *shards_[which % shards_.size()];
    if (leaves) return shard.leave(now_);
    AbortReason reason{.code = AbortCode::kClientAbort, .op_seq = 1};
    reason.set_detail("the input says so");
    shard.abort(reason, now_);
  }
  /// All leave, and give back what they have.
  void close() {
    for (auto& shard : shards_) shard->leave(now_);
    for (int i = 0; i < 600 && closed_ < shards_.size(); ++i) {
      now_ += 10'000'000;
      round();
    }
    FUZZ_CHECK(closed_ == shards_.size());
    shards_.clear();
    for (rte_mbuf* frame : held_) rte_pktmbuf_free(frame);
    for (rte_mempool* pool : {large_pool, control_pool})
      FUZZ_CHECK(rte_mempool_in_use_count(pool) == 0);
  }

 private:
  struct Place {
    std::uint8_t lane = 0;
    std::uint16_t rank = 0;
  };
  struct Wish {
    std::size_t shard;
    collective::KeyWish key;
    std::uint64_t due;  ///< round
  };
  struct Op {
    /// By rank. Each of exactly its size, so that a sanitizer sees an access past the end.
    std::vector<std::vector<std::unique_ptr<std::byte[]>>> memory;
    std::size_t count = 0;
    std::vector<std::uint32_t> lanes_done;  ///< by rank
    std::vector<collective::OpSpec> specs;  ///< by rank
    std::set<std::size_t> shards_done;
  };

  security::Secret32 root_of(std::uint16_t a, std::uint16_t b) const {
    security::Secret32 root;
    root.span()[0] = static_cast<std::byte>(16 * std::min(a, b) + std::max(a, b));
    return root;
  }
  security::LinkContext context(std::uint8_t lane, std::uint16_t from, std::uint16_t to) const {
    return {kSealedGroup, lane, mode_, from, to, kIncarnation + from, kIncarnation + to};
  }
  std::size_t index(std::uint8_t lane, std::uint16_t rank) const {
    return std::size_t{lane} * nranks_ + rank;
  }
  void add_links(std::uint8_t lane) {
    for (std::uint16_t from = 0; from < nranks_; ++from) {
      for (std::uint16_t to = 0; to < nranks_; ++to) {
        links_.push_back(from == to
                             ? nullptr
                             : std::make_unique<SealedLink>(
                                   root_of(from, to), context(lane, from, to), generation_bits_));
      }
    }
  }
  std::shared_ptr<collective::Seals> make_seals(const Place& place) {
    std::vector<std::unique_ptr<security::LinkSeal>> by_rank(nranks_);
    for (std::uint16_t other = 0; other < nranks_; ++other) {
      chains_.emplace_back();
      if (other == place.rank) continue;
      security::LinkStart start = security::start_link(
          root_of(place.rank, other), context(place.lane, place.rank, other), security::Sha256{});
      by_rank[other] =
          std::make_unique<security::LinkSeal>(mode_, std::move(start.keys), generation_bits_);
      chains_.back() = std::move(start.chains);
    }
    return std::make_shared<collective::Seals>(mode_, std::move(by_rank));
  }
  void add_shard(const Place& place, std::uint8_t shape, std::uint32_t window) {
    collective::ShardConfig config = sealed_config(place.rank, nranks_, shape, window);
    config.lane = place.lane;
    config.lanes = lanes_;
    for (std::uint16_t other = 0; other < nranks_; ++other) {
      if (other == place.rank) continue;
      config.peers[other].tokens = {link(place.lane, place.rank, other).token(),
                                    link(place.lane, other, place.rank).token()};
    }
    config.upstream.tokens = config.peers[collective::upstream_rank(place.rank, nranks_)].tokens;
    config.downstream.tokens =
        config.peers[collective::downstream_rank(place.rank, nranks_)].tokens;
    config.seals = make_seals(place);
    auto made = collective::Shard::create(config, reduce::make_cpu_backend(16));
    FUZZ_CHECK(made.has_value());
    shards_.push_back(std::move(*made));
    places_.push_back(place);
    shards_.back()->start(now_);
  }

  void poll(std::size_t i) {
    auto out = std::make_unique<collective::Outbox>();
    static_cast<void>(shards_[i]->poll(now_, true, *out));
    for (const auto& box : out->boxes) {
      for (std::size_t n = 0; n < box.count; ++n) sent(places_[i], box.frames[n]);
    }
  }
  void sent(const Place& place, rte_mbuf* frame) {
    wire::FrameView view;
    FUZZ_CHECK(wire::parse_frame({rte_pktmbuf_mtod(frame, const std::byte*), frame->data_len},
                                 view) == Drop::kNone);
    wire::Packet decoded;
    FUZZ_CHECK(wire::decode_header(view.payload, decoded) == Drop::kNone);
    FUZZ_CHECK(decoded.common.sealed == flag() && decoded.common.from_rank == place.rank);
    const auto to = static_cast<std::uint16_t>(view.destination_ip.bytes[3] - 1);
    FUZZ_CHECK(to < nranks_ && to != place.rank);
    FUZZ_CHECK(decoded.common.token == link(place.lane, place.rank, to).token());
    FUZZ_CHECK(link(place.lane, place.rank, to).sent(view.payload) || lied_);
    on_way_.push_back(
        {place.lane, place.rank, to, PacketBytes(view.payload.begin(), view.payload.end())});
    seen_.push_back(on_way_.back());
    if (seen_.size() > kSeenMax) seen_.pop_front();
    rte_pktmbuf_free(frame);
  }
  std::uint8_t flag() const {
    return mode_ == Mode::kEncrypt ? wire::kEncryptedFlag : wire::kAuthenticatedFlag;
  }

  /// No neighbor's, by its address, flags or token.
  void dropped(collective::Shard& shard, const wire::Packet& packet,
               const collective::PacketSource& from, const PacketBytes& bytes) {
    const std::string before = test::describe(shard, now_, {from.drop});
    const std::uint64_t drops = shard.counters().drops[static_cast<std::size_t>(from.drop)];
    shard.on_packet(put(bytes), packet, from, false, now_);
    FUZZ_CHECK(shard.counters().drops[static_cast<std::size_t>(from.drop)] == drops + 1);
    FUZZ_CHECK(test::describe(shard, now_, {from.drop}) == before);
  }
  rte_mbuf* put(const PacketBytes& bytes) {
    rte_mbuf* frame = rte_pktmbuf_alloc(large_pool);
    FUZZ_CHECK(frame != nullptr);
    char* const room = rte_pktmbuf_append(frame, static_cast<std::uint16_t>(bytes.size()));
    FUZZ_CHECK(room != nullptr);
    std::memcpy(room, bytes.data(), bytes.size());
    return frame;
  }

  void supply() {
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      for (collective::KeyWish wish; shards_[i]->pop_key_wish(wish);) {
        wishes_.push_back({i, wish, rounds_ + key_delay_});
      }
    }
    ++rounds_;
    std::erase_if(wishes_, [&](const Wish& wish) {
      if (wish.due >= rounds_) return false;
      security::KeyChain& chain =
          chains_[wish.shard * nranks_ + wish.key.rank]->of(wish.key.direction);
      FUZZ_CHECK(chain.generation() == wish.key.generation);
      static_cast<void>(
          shards_[wish.shard]->supply_key(wish.key, security::PacketKey(mode_, chain.next())));
      const Place& place = places_[wish.shard];
      if (wish.key.direction == security::Direction::kFrom) {
        link(place.lane, wish.key.rank, place.rank).supplied();
      }
      return true;
    });
  }

  static std::int32_t value(std::uint64_t op_seq, std::uint16_t rank, std::size_t i) {
    return static_cast<std::int32_t>(op_seq * 7919 + rank * 104'729u + i * 31);
  }
  /// What finds no room waits for a later round, as in the command lane.
  void post_pending() {
    for (std::size_t i = 0; i < shards_.size(); ++i) take_events(i);
    for (std::size_t i = 0; i < shards_.size() && !aborted_; ++i) {
      while (posted_[i] < ops_.size()) {
        const auto posted = shards_[i]->post(ops_[posted_[i]].specs[places_[i].rank], now_);
        FUZZ_CHECK(posted == collective::PostResult::kOk ||
                   posted == collective::PostResult::kFull ||
                   shards_[i]->status(now_).state != collective::ShardState::kFormed || lied_);
        if (posted != collective::PostResult::kOk) break;
        ++posted_[i];
      }
    }
  }
  void op_done(std::size_t shard, std::uint64_t op_seq) {
    const std::uint16_t rank = places_[shard].rank;
    FUZZ_CHECK(op_seq != 0 && op_seq <= ops_.size());
    ++done_[shard];
    Op& op = ops_[op_seq - 1];
    FUZZ_CHECK(op.shards_done.insert(shard).second);
    if (++op.lanes_done[rank] < lanes_) return;
    for (std::size_t i = 0; i < op.count && !lied_; ++i) {
      std::uint32_t sum = 0;
      for (std::uint16_t each = 0; each < nranks_; ++each) {
        sum += static_cast<std::uint32_t>(value(op_seq, each, i));
      }
      FUZZ_CHECK(std::memcmp(op.memory[rank].back().get() + 4 * i, &sum, 4) == 0);
    }
    op.memory[rank].clear();
  }
  void take_events(std::size_t i) {
    collective::Event event;
    while (shards_[i]->pop_event(event)) {
      if (event.type == collective::EventType::kOpDone) op_done(i, event.op_seq);
      if (event.type == collective::EventType::kAborted) aborted_ = true;
      if (event.type == collective::EventType::kClosed) ++closed_;
    }
  }
  bool all_formed() const {
    return std::ranges::all_of(shards_, [&](const auto& shard) {
      return shard->status(now_).state == collective::ShardState::kFormed;
    });
  }
  std::uint64_t least_done() const { return *std::ranges::min_element(done_); }

  std::uint16_t nranks_;
  std::uint8_t lanes_;
  Mode mode_;
  unsigned generation_bits_;
  bool lied_ = false;
  bool ended_ = false;
  bool aborted_ = false;                                       ///< some rank
  std::vector<std::unique_ptr<SealedLink>> links_;             ///< by lane, from and to
  std::vector<std::unique_ptr<security::LinkChains>> chains_;  ///< by lane, rank and other rank
  std::deque<Op> ops_;                                         // outlives the shards
  std::vector<std::unique_ptr<collective::Shard>> shards_;     ///< by lane and rank
  std::vector<Place> places_;                                  ///< of shards
  std::vector<std::uint64_t> posted_;                          ///< ops, by shard
  std::vector<std::uint64_t> done_;                            ///< likewise
  std::size_t closed_ = 0;
  std::deque<SealedPacket> on_way_;
  std::deque<SealedPacket> seen_;
  std::deque<rte_mbuf*> held_;
  std::vector<Wish> wishes_;
  std::uint64_t rounds_ = 0;
  std::uint32_t key_delay_ = 0;
  TimeNs now_ = 1'000'000'000;
};

}  // namespace gradwire::fuzz
