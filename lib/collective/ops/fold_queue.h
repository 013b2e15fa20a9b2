// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Chunks that the reduce backend works on: places, batches, completions. It never calls back: its
/// user takes what is done by pop(). One lane owns it; it allocates at
/// construction only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/profile.h"
#include "base/require.h"
#include "collective/ops/chunk.h"
#include "reduce/backend.h"

namespace gradwire::collective {

/// A chunk in the queue, and what to do with it afterwards.
struct FoldWork {
  enum class Role : std::uint8_t { kArrival, kOutgoing, kLocal, kCheck, kDirect };
  Role role = Role::kArrival;
  bool forward = false;       ///< goes on in its own mbuf
  bool spill = false;         ///< goes on later, from the output
  bool keep_crc = false;      ///< the payload is as it came
  std::uint16_t sources = 0;  ///< Role::kDirect: where Direct has the addresses of its sources
  ReadyChunk chunk;           ///< `id.hop` is the hop it will be sent with

  /// Whether it takes a place among the chunks that are ready to be sent.
  [[nodiscard]] bool gets_ready() const noexcept { return forward || role == Role::kOutgoing; }
};

/// A finished entry. `work` belongs to the caller until release().
struct Folded {
  FoldWork* work = nullptr;
  bool ok = true;
  std::uint32_t crc = 0;  ///< of the packet, if the entry asked for it
};

class FoldQueue {
 public:
  /// @param batch_entries  handed to the backend at once.
  FoldQueue(std::unique_ptr<reduce::Backend> backend, std::uint32_t places,
            std::uint32_t batch_entries);

  [[nodiscard]] bool full() const noexcept { return free_count_ == 0; }
  /// Chunks that the backend has, or that wait for it.
  [[nodiscard]] std::uint32_t size() const noexcept { return places_ - free_count_; }
  [[nodiscard]] std::uint32_t places() const noexcept { return places_; }
  /// Whether the backend does an entry before it returns: no batch is made then.
  [[nodiscard]] bool runs_at_once() const noexcept { return at_once_; }
  /// Which place a chunk has, below places().
  [[nodiscard]] std::size_t place_of(const FoldWork& work) const noexcept {
    return static_cast<std::size_t>(&work - works_.data());
  }
  /// Whether that chunk is still on its way into the output, to be sent from there.
  [[nodiscard]] bool is_spilling(std::uint64_t op_seq, std::uint32_t chunk) const noexcept;

  /// A place, if the queue is not full. add() comes next.
  [[nodiscard]] FoldWork& take() noexcept {
    require(free_count_ > 0, "who takes a place in the fold queue has seen that one is free");
    FoldWork& work = *free_[--free_count_];
    work = FoldWork{};
    return work;
  }
  /// The entry that the next add() hands over, to be filled in.
  [[nodiscard]] reduce::Entry& entry() noexcept {
    require(batch_count_ < places_, "each entry of a batch has a place in the fold queue");
    return batch_[batch_count_];
  }
  /// Hands entry() over, for `work`. @return whether pop() may have something.
  bool add(FoldWork& work) noexcept;
  /// If the backend runs_at_once(): it is through with the entry when it returns. That takes no
  /// place. @return whether it was able to.
  [[nodiscard]] bool run(const reduce::Entry& entry) noexcept {
    const profile::Stage stage(profile::StageId::kReduce);
    return backend_->run(entry);
  }
  /// Gives the backend what waits for it.
  void submit() noexcept;
  /// @return whether `out` is something that is done.
  [[nodiscard]] bool pop(Folded& out) noexcept;
  void release(FoldWork& work) noexcept {
    require(free_count_ < places_, "a place in the fold queue is given back once");
    work.spill = false;
    free_[free_count_++] = &work;
  }
  /// Frees the entries that the backend has not got yet, and their mbufs. The others still come by
  /// pop().
  void drop_waiting() noexcept;

  [[nodiscard]] reduce::Backend& backend() noexcept { return *backend_; }
  [[nodiscard]] const reduce::Backend& backend() const noexcept { return *backend_; }

 private:
  std::unique_ptr<reduce::Backend> backend_;
  std::uint32_t places_;
  std::uint32_t batch_entries_;
  bool at_once_;
  std::vector<FoldWork> works_;
  std::vector<FoldWork*> free_;  ///< [0, free_count_): a stack
  std::uint32_t free_count_ = 0;
  std::vector<reduce::Entry> batch_;
  std::size_t batch_count_ = 0;
  std::array<reduce::Completion, 32> done_;  ///< [next_done_, done_count_) are still to be taken
  std::size_t next_done_ = 0;
  std::size_t done_count_ = 0;
};

}  // namespace gradwire::collective
