// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Segments under way between the two processes of a link: transfers of its group, in gradient
/// memory. In each direction they are numbered by themselves, and number n goes by stream n %
/// kStreams of the pair, from stream 1 on. So what the n-th receive takes is the n-th send,
/// whatever it carries: a header says (messages.h). No segment waits for another one, but for those
/// that have no place yet.
///
/// Engine's lock guards them. Nothing allocates but the client library.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "client/gradwire.h"
#include "nccl_net/messages.h"

namespace gradwire::nccl_net {

struct Connection;

/// Those of one direction, at one end.
class Segments {
 public:
  /// Places at each end for each direction: with their headers, they fill one hugepage.
  static constexpr std::uint32_t kSlots = 15;
  static constexpr std::uint64_t kMemoryBytes = 2ull << 20;
  static constexpr std::uint32_t kStreams = 15;

  /// One that has ended.
  struct Ended {
    std::uint32_t slot = 0;
    std::uint64_t bytes = 0;  ///< with its header
    Connection* connection = nullptr;
    std::uint64_t message = 0;
  };

  /// @param other   the process at the other end, in the group
  /// @param memory  [kMemoryBytes]
  void use(gw_group* group, std::uint32_t other, char* memory);
  /// Whether one more can be under way.
  [[nodiscard]] bool has_room() const { return free_ != 0 && tail_ - head_ < kRing; }
  /// So many were given to the daemon, ever.
  [[nodiscard]] std::uint64_t begun() const { return tail_; }
  /// So many of those have not ended.
  [[nodiscard]] std::uint32_t under_way() const { return under_way_; }
  /// All that have a place, and whatever has ended is read and given back.
  [[nodiscard]] bool is_idle() const { return under_way_ == 0 && free_ == kAllFree; }
  /// Why transfers fail; empty: they do not.
  [[nodiscard]] const std::string& broken() const { return broken_; }

  /// Room is there. Copies the segment. @return false: it is broken.
  bool send(const SegmentHeader& header, const char* data, std::uint64_t bytes,
            Connection* connection);
  /// Room is there. @return false: it is broken.
  bool receive();
  /// Calls `ended` with each that has ended well: the oldest first, as a rule. Its slot is taken
  /// until give_back().
  template <class Function>
  void take_ends(Function&& ended) {
    std::uint32_t misses = broken_.empty() && ++calls_ % kLookAtAll != 0 ? kMissesMost : UINT32_MAX;
    for (std::uint64_t n = head_; n != tail_ && misses > 0; ++n) {
      Transfer& transfer = at(n);
      if (transfer.work == nullptr) continue;
      if (!has_ended(transfer)) {
        --misses;
      } else if (transfer.ended.bytes > 0) {
        ended(static_cast<const Ended&>(transfer.ended));
      }
    }
    while (head_ != tail_ && at(head_).work == nullptr) ++head_;
  }
  void give_back(std::uint32_t slot) { free_ |= 1u << slot; }
  [[nodiscard]] const char* memory_of(std::uint32_t slot) const {
    return memory_ + std::uint64_t{slot} * kSlotBytes;
  }
  /// Before the group is left.
  void free_works();

 private:
  static constexpr std::uint32_t kAllFree = (1u << kSlots) - 1;
  static constexpr std::uint64_t kSlotBytes = kMemoryBytes / kSlots / 64 * 64;
  static constexpr std::uint64_t kRing = 64;
  /// How many that have not ended one call looks at, and which call looks at all.
  static constexpr std::uint32_t kMissesMost = 3;
  static constexpr std::uint32_t kLookAtAll = 16;
  static_assert(kSlotBytes >= sizeof(SegmentHeader) + kSegmentBytes);

  struct Transfer {
    gw_work* work = nullptr;  ///< null: it has ended
    Ended ended;              ///< without bytes: it has failed
  };

  [[nodiscard]] Transfer& at(std::uint64_t n) { return transfers_[n % kRing]; }
  Transfer& take_slot();
  bool post(gw_call& call, Transfer& transfer);
  bool has_ended(Transfer& transfer);

  gw_group* group_ = nullptr;
  std::uint32_t other_ = 0;
  char* memory_ = nullptr;
  std::string broken_;
  std::array<Transfer, kRing> transfers_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  std::uint32_t under_way_ = 0;
  std::uint32_t free_ = kAllFree;
  std::uint32_t calls_ = 0;
};

}  // namespace gradwire::nccl_net
