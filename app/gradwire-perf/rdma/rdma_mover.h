// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Moves the pieces of an op (stream_op.h) by RDMA writes with immediate: one for each piece, put
/// where it belongs at once, or into the next of `depth` slots if it is to be folded. Both ends
/// know the order, so that nothing carries a header.
///
/// Credit: a rank may have `depth` writes under way that the next rank has not yet used up. The
/// immediate of each write, and a message of its own when half of the depth is owed, says how many
/// were used up in all. So a slot is never overwritten too early, and no receive queue is ever
/// empty. Writes may run ahead of the neighbor by one op.
///
/// One thread; nothing but its making allocates.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "rdma/rdma_wire.h"
#include "tcp/stream_mover.h"

namespace gradwire::perf {

struct RdmaFlow {
  std::uint64_t group_id = 0;  ///< for the probes
  std::uint16_t rank = 0;
  std::uint16_t nranks = 2;
  /// The memory that neighbors write to; laid out alike on each rank.
  std::span<std::byte> memory;
  std::uint64_t slots_offset = 0;  ///< in it, of [depth][slot_bytes]
  std::uint32_t slot_bytes = 0;
  std::uint32_t depth = 16;  ///< writes under way, from 2; the same on all ranks
};

/// Words under way besides writes: the neighbor owes at most two, until this rank polls.
inline constexpr std::uint32_t kRdmaWords = 4;

class RdmaMover final : public StreamMover {
 public:
  RdmaMover(RdmaWire& wire, const RdmaFlow& flow, const WaitOptions& wait);

  /// Afterwards nothing of the op's memory is read or written by the network.
  /// @return kTimedOut, kUnavailable or kMismatch, which names this rank, the op and the neighbor.
  [[nodiscard]] Result<void> run(StreamOp& op) override;
  /// Until the neighbors have got everything, words too. Then they need this rank no more.
  [[nodiscard]] Result<void> flush();
  /// Which op runs or comes next, from 0.
  [[nodiscard]] std::uint64_t op_seq() const noexcept { return op_seq_; }

 private:
  /// What is under way to a neighbor, in order.
  struct Posted {
    std::uint64_t chunk = 0;
    std::uint64_t op_seq = 0;
    std::uint32_t hop = 0;
    std::uint32_t bytes = 0;
    bool is_word = false;
    bool borrows = false;  ///< memory of the op, until it has completed
  };
  /// A queue of fixed size.
  template <class Item>
  class Queue {
   public:
    explicit Queue(std::size_t most) : items_(most) {}
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool full() const noexcept { return size_ == items_.size(); }
    void push(const Item& item) noexcept { items_[(first_ + size_++) % items_.size()] = item; }
    Item pop() noexcept {
      const Item item = items_[first_];
      first_ = (first_ + 1) % items_.size();
      --size_;
      return item;
    }

   private:
    std::vector<Item> items_;
    std::size_t first_ = 0;
    std::size_t size_ = 0;
  };
  struct Channel {
    explicit Channel(std::uint32_t depth) : posted(depth + kRdmaWords), arrived(depth) {}
    Queue<Posted> posted;
    Queue<std::uint32_t> arrived;     ///< bytes of writes that wait for their turn
    std::uint32_t written = 0;        ///< writes in all; the counts wrap around
    std::uint32_t used_up_there = 0;  ///< of them, as far as the neighbor has said
    std::uint32_t used_up = 0;        ///< of the neighbor's writes
    std::uint32_t told = 0;           ///< of which it knows
  };

  [[nodiscard]] RdmaEnd up() const noexcept {
    return flow_.nranks == 2 ? RdmaEnd::kDownstream : RdmaEnd::kUpstream;
  }
  [[nodiscard]] Channel& at(RdmaEnd end) noexcept { return channels_[static_cast<int>(end)]; }
  [[nodiscard]] std::uint32_t next() const noexcept { return (flow_.rank + 1u) % flow_.nranks; }
  [[nodiscard]] std::uint32_t previous() const noexcept {
    return (flow_.rank + flow_.nranks - 1u) % flow_.nranks;
  }
  [[nodiscard]] std::uint64_t next_slot(std::uint64_t& staged) const noexcept {
    return flow_.slots_offset + staged++ % flow_.depth * flow_.slot_bytes;
  }

  Result<bool> post(StreamOp& op);
  Result<bool> use_up(StreamOp& op);
  Result<bool> take_events();
  Result<void> complete(RdmaEnd end);
  Result<bool> give_credit();
  /// After a round without progress: looks at the clock and the neighbors, sleeps if it may.
  Result<void> idle(StreamOp* op);
  [[nodiscard]] tl::unexpected<Error> too_late(StreamOp* op);

  RdmaWire& wire_;
  const RdmaFlow flow_;
  const WaitOptions wait_;
  std::array<Channel, kRdmaEnds> channels_;
  std::uint64_t op_seq_ = 0;
  std::uint64_t staged_there_ = 0;  ///< writes into slots, in all
  std::uint64_t staged_here_ = 0;
  std::uint32_t borrowed_ = 0;  ///< writes under way from the op's memory
  // Of the wait that is going on.
  std::uint64_t idle_rounds_ = 0;
  std::optional<Clock::time_point> waits_since_;  ///< of this op
  Clock::time_point next_look_{};
};

}  // namespace gradwire::perf
