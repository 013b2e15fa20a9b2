// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Mempools of the simulator: real rte_mempools of mbufs, on a mempool driver of its own that
/// counts, can run dry at will, finds an mbuf that is freed twice, and overwrites what is freed, so
/// that whoever still reads it reads nonsense. Pools are kept and used again: a run makes none. It
/// needs an EAL (without hugepages it will do). One thread.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace gradwire::sim {

class Pool {
 public:
  /// `mbufs` with a data room of `room` bytes, at most. Throws if memory is short.
  Pool(std::uint32_t mbufs, std::uint32_t room);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] rte_mempool* get() const noexcept { return mempool_; }
  [[nodiscard]] std::uint32_t room() const noexcept { return room_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  /// As if it had been made with that many; all mbufs must be in the pool.
  void reset(std::uint32_t mbufs) noexcept;
  /// How many mbufs are withheld, so that the pool runs dry earlier. 0 = none.
  void withhold(std::uint32_t mbufs) noexcept { withheld_ = mbufs; }
  /// @return what withhold() needs so that `left` more can be had.
  [[nodiscard]] std::uint32_t withhold_all_but(std::uint32_t left) const noexcept {
    return limit_ - in_use_ > left ? limit_ - in_use_ - left : 0;
  }

  [[nodiscard]] std::uint32_t in_use() const noexcept { return in_use_; }
  /// How often nothing was left except what was withheld.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }
  [[nodiscard]] std::uint64_t double_frees() const noexcept { return double_frees_; }

  // The mempool driver's side.
  int enqueue(void* const* objects, unsigned count) noexcept;
  int dequeue(void** objects, unsigned count) noexcept;
  [[nodiscard]] unsigned available() const noexcept { return static_cast<unsigned>(stack_.size()); }

 private:
  rte_mempool* mempool_ = nullptr;
  std::uint32_t room_;
  std::uint32_t capacity_;
  std::uint32_t limit_;
  std::uint32_t withheld_ = 0;
  std::uint32_t in_use_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t double_frees_ = 0;
  bool filling_ = true;       ///< while the mempool is populated
  std::vector<void*> stack_;  ///< last in, first out: few mbufs are in use, and those are in cache
  std::vector<void*> order_;  ///< as they were at first: a run depends on no earlier one
};

/// Pools that no run uses now. Kept for the process's life.
class PoolBank {
 public:
  /// A pool of `mbufs`, at least `room` bytes each; give it back with put().
  [[nodiscard]] std::unique_ptr<Pool> take(std::uint32_t mbufs, std::uint32_t room);
  /// A pool with mbufs out is destroyed, not kept.
  void put(std::unique_ptr<Pool> pool);
  static PoolBank& instance();
  /// Before the EAL ends.
  void clear() { pools_.clear(); }

 private:
  /// Frees what is kept if memory is short.
  [[nodiscard]] std::unique_ptr<Pool> make(std::uint32_t mbufs, std::uint32_t room);

  std::vector<std::unique_ptr<Pool>> pools_;
};

}  // namespace gradwire::sim
