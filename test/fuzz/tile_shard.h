// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The shard with ops by tiles that the target `tiles` fuzzes, and what is right of it whatever its
/// peers do: what it sends, when it ends ops and itself, and what is in results.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "collective/shard.h"
#include "collective/tiles/tile_memory.h"
#include "fuzz/hostile_peers.h"
#include "fuzz/input.h"
#include "fuzz/tile_contents.h"
#include "fuzz/tile_group.h"
#include "fuzz/tile_op.h"

namespace gradwire::fuzz {

class TileShard {
 public:
  explicit TileShard(Input& input)
      : formats_((input.peek() & kFormats) != 0),
        config_(tile_group_from(input)),
        contents_(config_, input.pick(8), formats_) {
    auto made = collective::Shard::create(config_, reduce::make_cpu_backend(16));
    FUZZ_CHECK(made.has_value());
    shard_ = std::move(*made);
    shard_->start(now_);
  }

  [[nodiscard]] const collective::ShardConfig& config() const { return config_; }
  [[nodiscard]] const TileContents& contents() const { return contents_; }
  [[nodiscard]] collective::OpSpec spec_of(std::uint64_t op_seq) const {
    return contents_.spec_of(op_seq);
  }
  [[nodiscard]] collective::TileCut cut_of_op(std::uint64_t op_seq) const {
    return cut_of(config_, spec_of(op_seq));
  }
  /// That an owner has of an op, on this lane.
  [[nodiscard]] std::uint32_t chunks_of(std::uint64_t op_seq, std::uint16_t owner) const {
    const collective::TileCut cut = cut_of_op(op_seq);
    return cut.supported() ? static_cast<std::uint32_t>(cut.chunks(owner, config_.lane)) : 0;
  }
  [[nodiscard]] bool is_by_tiles(const collective::OpSpec& spec) const {
    return collective::plan_op(
               config_.shape_group(), config_.lane, config_.lanes, config_.payload_bytes,
               {spec.collective, spec.datatype, spec.root, spec.count, spec.redop, spec.wire})
               .shape == collective::Shape::kTiles;
  }

  [[nodiscard]] std::uint64_t posted() const { return posted_.size(); }
  /// The first op that was posted and has not ended; if there is none, the next.
  [[nodiscard]] std::uint64_t oldest_unfinished() const {
    for (const auto& [op_seq, op] : posted_) {
      if (op.active()) return op_seq;
    }
    return posted_.size() + 1;
  }
  /// What it asked a rank for the last time: parts, and results. nullptr: for nothing yet.
  using LastPulls = std::array<wire::TilePullHeader, 2>;
  [[nodiscard]] const LastPulls* pulls_of(std::uint16_t rank) const {
    const auto found = pulls_.find(rank);
    return found != pulls_.end() ? &found->second : nullptr;
  }
  /// Low halves of the numbers of what it sent last.
  [[nodiscard]] std::uint32_t last_pull() const { return last_pull_; }
  [[nodiscard]] std::uint32_t last_call() const { return last_call_; }
  /// The last packet that it was given.
  [[nodiscard]] const std::vector<std::byte>& last_given() const { return last_; }
  [[nodiscard]] bool closed() const { return closed_; }

  /// From now on it may have been given bytes of another op or chunk, so results may be anything.
  void forget_contents() { contents_known_ = false; }
  void pass(TimeNs time) { now_ += time; }
  void leave() { shard_->leave(now_); }
  void flush() { shard_->flush(now_); }
  /// Ends it.
  void end() {
    shard_.reset();
    release_held(0);
  }

  /// What the next packet of that rank begins with.
  wire::CommonHeader common(std::uint16_t rank) { return header_from(config_, rank, ++number_); }
  /// Gives it a packet of the rank that the packet names.
  void deliver(std::span<const std::byte> packet) {
    if (!give(*shard_, packet, decoded_, (number_ & 7) == 7, now_)) return;
    last_.assign(packet.begin(), packet.end());
    take_events();
  }
  void post() {
    collective::OpSpec spec = spec_of(posted_.size() + 1);
    TileOp op(config_, spec);
    // It may be done at once.
    posted_.try_emplace(spec.op_seq, std::move(op));
    if (shard_->post(spec, now_) != collective::PostResult::kOk) {
      posted_.erase(spec.op_seq);
      return;
    }
    take_events();
  }
  /// @param room  in each box of frames.
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
  /// Frees frames that it sent, as a driver does that is done with them, but for the newest.
  void release_held(std::size_t keep) {
    for (; held_.size() > keep; held_.pop_front()) rte_pktmbuf_free(held_.front());
  }

 private:
  void take_events() {
    collective::Event event;
    while (shard_->pop_event(event)) {
      FUZZ_CHECK(!closed_);
      if (event.type == collective::EventType::kOpDone) ended(event.op_seq);
      // Nothing refers to client memory once an abort was told.
      const bool closes = event.type == collective::EventType::kClosed;
      // The backend can do whatever it is given.
      FUZZ_CHECK(shard_->reason().code != AbortCode::kReduceFailed);
      if (event.type == collective::EventType::kAborted || closes) {
        for (auto& [op_seq, op] : posted_) op.free_memory();
        over_ = true;
      }
      closed_ |= closes;
    }
  }
  void ended(std::uint64_t op_seq) {
    const auto found = posted_.find(op_seq);
    FUZZ_CHECK(found != posted_.end() && found->second.active());
    TileOp& op = found->second;
    op.end();
    const collective::OpSpec spec = spec_of(op_seq);
    if (contents_known_ && op.has_memory() && is_by_tiles(spec)) op.check_results(spec, contents_);
    op.free_memory();
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
    if (header.type == wire::PacketType::kTilePull) {
      pulls_[to][decoded_.tile_pull.results ? 1 : 0] = decoded_.tile_pull;
      last_pull_ = static_cast<std::uint32_t>(header.packet_number);
    } else if (header.type == wire::PacketType::kTileCall) {
      last_call_ = static_cast<std::uint32_t>(header.packet_number);
    } else if (header.type == wire::PacketType::kTilePiece) {
      check_piece(to, decoded_.tile);
    }
    held_.push_back(frame);  // as a driver does, for a while
  }
  void check_piece(std::uint16_t to, const wire::TileHeader& piece) {
    const auto found = posted_.find(piece.op_seq);
    // An encoded result lies in scratch, and is sent when the op is done here.
    const bool kept = piece.result && piece.format != WireFormat::kSame;
    FUZZ_CHECK(!over_ && (config_.folds_only() ||
                          (found != posted_.end() && (found->second.active() || kept))));
    FUZZ_CHECK(wire::payload_crc_ok(decoded_));
    const std::uint16_t owner = piece.result ? config_.rank : to;
    if (config_.folds_only() && !contents_known_) return;
    const std::vector<std::byte> right =
        contents_.wire_of(spec_of(piece.op_seq), piece.chunk, piece.result, owner, config_.rank);
    FUZZ_CHECK(!right.empty() && right.size() == decoded_.payload.size());
    FUZZ_CHECK(!contents_known_ || std::ranges::equal(right, decoded_.payload));
  }

  bool formats_;
  collective::ShardConfig config_;
  TileContents contents_;
  std::map<std::uint64_t, TileOp> posted_;  // outlives the shard
  std::unique_ptr<collective::Shard> shard_;
  wire::Packet decoded_;
  std::deque<rte_mbuf*> held_;
  std::vector<std::byte> last_;
  TimeNs now_ = 1'000'000'000;
  std::uint64_t number_ = 0;
  std::uint32_t last_pull_ = 0;
  std::uint32_t last_call_ = 0;
  std::map<std::uint16_t, LastPulls> pulls_;
  std::map<std::uint16_t, std::set<std::uint64_t>> numbers_sent_;
  bool contents_known_ = true;
  bool over_ = false;
  bool closed_ = false;
};

}  // namespace gradwire::fuzz
