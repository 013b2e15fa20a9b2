// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What was sent on a link and is not acknowledged: a record for each chunk, with everything that
/// is needed to send it again. A record holds its mbuf until the chunk is acknowledged. One lane
/// owns it; it allocates at construction only.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/require.h"
#include "collective/ops/chunk.h"
#include "transport/sender.h"

namespace gradwire::collective {

struct SentRecord {
  enum class State : std::uint8_t { kFree, kInFlight, kLost };
  State state = State::kFree;
  std::uint32_t generation = 0;
  std::uint32_t index = 0;  ///< among the records
  std::uint64_t last_packet_number = 0;
  ReadyChunk chunk;
};

class InFlight {
 public:
  explicit InFlight(std::uint32_t packets);

  [[nodiscard]] std::size_t size() const noexcept { return records_.size(); }
  [[nodiscard]] std::size_t free() const noexcept { return free_.size(); }
  [[nodiscard]] bool empty() const noexcept { return free_.size() == records_.size(); }
  /// Whether it has a chunk of the op. It looks through all records.
  [[nodiscard]] bool has_any_of(std::uint64_t op_seq) const noexcept;
  /// Whether it has a chunk of that op or one before it.
  [[nodiscard]] bool has_any_up_to(std::uint64_t op_seq) const noexcept;
  /// Records whose chunk is to be sent again.
  [[nodiscard]] std::uint32_t lost() const noexcept { return lost_; }
  [[nodiscard]] std::span<SentRecord> records() noexcept { return records_; }

  /// A record for a chunk that is sent for the first time, if one is free.
  [[nodiscard]] SentRecord& take(const ReadyChunk& chunk) noexcept {
    require(!free_.empty(), "a chunk is sent if a record is free");
    SentRecord& record = records_[free_.back()];
    require_dear([&] { return record.state == SentRecord::State::kFree; }, "a free record is free");
    free_.pop_back();
    record.chunk = chunk;
    ++record.generation;
    return record;
  }
  void mark_sent(SentRecord& record) noexcept {
    if (record.state == SentRecord::State::kLost) --lost_;
    record.state = SentRecord::State::kInFlight;
  }
  void mark_lost(SentRecord& record) noexcept {
    require(record.state != SentRecord::State::kLost, "a record is lost once until it is sent");
    record.state = SentRecord::State::kLost;
    ++lost_;
  }
  /// The chunk is acknowledged, or nobody waits for it any more.
  /// @return its mbuf, which is the caller's.
  [[nodiscard]] rte_mbuf* release(SentRecord& record) noexcept {
    require(record.state != SentRecord::State::kFree, "a record is released once");
    if (record.state == SentRecord::State::kLost) --lost_;
    record.state = SentRecord::State::kFree;
    free_.push_back(record.index);
    return std::exchange(record.chunk.mbuf, nullptr);
  }
  void release_all() noexcept;

  /// What the transport calls a record while it is used. find() knows it until release().
  [[nodiscard]] transport::Cookie cookie_of(const SentRecord& record) const noexcept {
    return std::uint64_t{record.generation} << 32 | record.index;
  }
  /// nullptr if that use is over.
  [[nodiscard]] SentRecord* find(transport::Cookie cookie) noexcept {
    if (cookie == transport::kNoCookie) return nullptr;
    const auto index = static_cast<std::uint32_t>(cookie);
    require(index < records_.size(), "the transport gives back the cookies that it was given");
    SentRecord& record = records_[index];
    const bool current = record.state != SentRecord::State::kFree &&
                         record.generation == static_cast<std::uint32_t>(cookie >> 32);
    return current ? &record : nullptr;
  }
  /// The one that was sent longest ago and is not lost; nullptr if there is none.
  [[nodiscard]] SentRecord* oldest() noexcept;

 private:
  std::vector<SentRecord> records_;
  std::vector<std::uint32_t> free_;
  std::uint32_t lost_ = 0;
};

}  // namespace gradwire::collective
