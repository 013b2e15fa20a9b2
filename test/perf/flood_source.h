// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A worker lcore that puts frames into a ring at a set rate, as a NIC's queue would fill. A
/// frame's bytes are written whole, each time, so that the receiver's core has to fetch them from
/// elsewhere, as after a NIC's write. The mbuf around them is not touched: a driver fills it in on
/// the receiver's own core. What finds the ring full is lost and counted. Set aside, it does the
/// same with a ring that nobody else knows, and empties that itself.
#pragma once

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_pause.h>
#include <rte_ring.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

namespace gradwire::perf {

/// How often another thread has had the calling thread's core.
inline long times_preempted() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

class FloodSource {
 public:
  enum class Into : std::uint8_t { kNothing, kLane, kAside };

  /// Starts on `lcore`, idle.
  explicit FloodSource(unsigned lcore) : lcore_(lcore) {
    constexpr unsigned kFlags = RING_F_SP_ENQ | RING_F_SC_DEQ;
    lane_ = rte_ring_create("to_lane", kDescriptors, SOCKET_ID_ANY, kFlags);
    aside_ = rte_ring_create("aside", kDescriptors, SOCKET_ID_ANY, kFlags);
    pool_ = rte_pktmbuf_pool_create_by_ops("foreign", 2 * kDescriptors + kElsewhere, kCache, 0,
                                           RTE_PKTMBUF_HEADROOM + 9'216, SOCKET_ID_ANY, "stack");
    started_ = lane_ != nullptr && aside_ != nullptr && pool_ != nullptr &&
               rte_eal_remote_launch(
                   [](void* self) {
                     static_cast<FloodSource*>(self)->work();
                     return 0;
                   },
                   this, lcore) == 0;
  }
  /// The lane's ring has been emptied.
  ~FloodSource() {
    stop_.store(true, std::memory_order_release);
    if (started_) rte_eal_wait_lcore(lcore_);
    rte_mempool_free(pool_);
    rte_ring_free(lane_);
    rte_ring_free(aside_);
  }
  FloodSource(const FloodSource&) = delete;
  FloodSource& operator=(const FloodSource&) = delete;

  [[nodiscard]] bool started() const { return started_; }
  /// While it is paused and every frame is back.
  void set(std::vector<std::byte> frame, double frames_per_second) {
    frame_ = std::move(frame);
    // A frame that is dropped keeps its mbuf's lengths.
    const auto prepare = [](rte_mempool*, void* bytes, void* object, unsigned) {
      auto* const mbuf = static_cast<rte_mbuf*>(object);
      rte_pktmbuf_reset(mbuf);
      mbuf->data_len = *static_cast<const std::uint16_t*>(bytes);
      mbuf->pkt_len = mbuf->data_len;
    };
    auto bytes = static_cast<std::uint16_t>(frame_.size());
    rte_mempool_obj_iter(pool_, prepare, &bytes);
    rate_ = frames_per_second / static_cast<double>(rte_get_tsc_hz());
  }
  void run(Into into) { wanted_.store(into, std::memory_order_release); }
  /// @return false if it has not come to rest within a second.
  [[nodiscard]] bool pause() {
    wanted_.store(Into::kNothing, std::memory_order_release);
    const std::uint64_t deadline = rte_get_tsc_cycles() + rte_get_tsc_hz();
    while (now_.load(std::memory_order_acquire) != Into::kNothing) {
      if (rte_get_tsc_cycles() > deadline) return false;
      rte_pause();
    }
    return true;
  }
  /// The receiver's thread, once a round: what has come goes on to `queue` as far as there is room.
  void pass_on(rte_ring* queue) {
    std::array<void*, 64> frames;
    const unsigned room = std::min<unsigned>(rte_ring_free_count(queue), frames.size());
    const unsigned come = rte_ring_dequeue_burst(lane_, frames.data(), room, nullptr);
    if (come != 0) rte_ring_enqueue_bulk(queue, frames.data(), come, nullptr);
  }
  /// Since it was made, while it is paused: frames that came into a ring, and that found it full.
  [[nodiscard]] std::uint64_t sent() const { return sent_; }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }
  [[nodiscard]] long preempted() const { return preempted_; }
  /// Frames that are somewhere else than in the mempool.
  [[nodiscard]] unsigned abroad() const { return rte_mempool_in_use_count(pool_); }

 private:
  static constexpr unsigned kBurst = 8;
  static constexpr unsigned kDescriptors = 512;
  /// As a lane's own (lib/port/pools.cc), which a driver would fill its queue from.
  static constexpr unsigned kCache = 64;
  static constexpr unsigned kElsewhere = 2 * (kCache + kCache / 2) + 64;
  static constexpr double kMostBehind = 4'096;

  void work() {
    std::uint64_t begin = 0;
    double done = 0;
    while (!stop_.load(std::memory_order_acquire)) {
      const Into into = wanted_.load(std::memory_order_acquire);
      const std::uint64_t now = rte_get_tsc_cycles();
      if (into != now_.load(std::memory_order_relaxed)) {
        preempted_ = times_preempted();
        now_.store(into, std::memory_order_release);
        begin = now;
        done = 0;
      }
      const double due = static_cast<double>(now - begin) * rate_ - done;
      if (into == Into::kNothing || due < kBurst) {
        rte_pause();
        continue;
      }
      // After a pause of this core it does not catch up: no link would carry such a burst.
      if (due > kMostBehind) done += due - kBurst;
      send(into);
      done += kBurst;
    }
    now_.store(Into::kNothing, std::memory_order_release);
  }

  void send(Into into) {
    std::array<void*, kBurst> frames;
    if (rte_mempool_get_bulk(pool_, frames.data(), kBurst) != 0) {
      lost_ += kBurst;
      return;
    }
    for (void* object : frames) {
      char* const buffer = rte_mbuf_buf_addr(static_cast<rte_mbuf*>(object), pool_);
      std::memcpy(buffer + RTE_PKTMBUF_HEADROOM, frame_.data(), frame_.size());
    }
    rte_ring* const ring = into == Into::kLane ? lane_ : aside_;
    const unsigned taken = rte_ring_enqueue_burst(ring, frames.data(), kBurst, nullptr);
    sent_ += taken;
    lost_ += kBurst - taken;
    if (taken < kBurst) rte_mempool_put_bulk(pool_, frames.data() + taken, kBurst - taken);
    if (into != Into::kAside) return;
    const unsigned back = rte_ring_dequeue_burst(aside_, frames.data(), kBurst, nullptr);
    rte_mempool_put_bulk(pool_, frames.data(), back);
  }

  rte_ring* lane_ = nullptr;
  rte_ring* aside_ = nullptr;
  rte_mempool* pool_ = nullptr;
  unsigned lcore_;
  bool started_ = false;
  std::vector<std::byte> frame_;
  double rate_ = 0;  ///< frames by cycle
  std::uint64_t sent_ = 0;
  std::uint64_t lost_ = 0;
  long preempted_ = 0;
  alignas(64) std::atomic<Into> wanted_{Into::kNothing};
  alignas(64) std::atomic<Into> now_{Into::kNothing};
  std::atomic<bool> stop_{false};
};

}  // namespace gradwire::perf
