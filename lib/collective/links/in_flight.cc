// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/in_flight.h"

#include <algorithm>

namespace gradwire::collective {

InFlight::InFlight(std::uint32_t packets) : records_(packets) {
  free_.reserve(packets);
  for (std::uint32_t i = packets; i-- > 0;) {
    records_[i].index = i;
    free_.push_back(i);
  }
}

bool InFlight::has_any_of(std::uint64_t op_seq) const noexcept {
  return std::any_of(records_.begin(), records_.end(), [&](const SentRecord& record) {
    return record.state != SentRecord::State::kFree && record.chunk.id.op_seq == op_seq;
  });
}

bool InFlight::has_any_up_to(std::uint64_t op_seq) const noexcept {
  return std::any_of(records_.begin(), records_.end(), [&](const SentRecord& record) {
    return record.state == SentRecord::State::kInFlight && record.chunk.id.op_seq <= op_seq;
  });
}

void InFlight::release_all() noexcept {
  for (SentRecord& record : records_) {
    if (record.state != SentRecord::State::kFree) rte_pktmbuf_free(release(record));
  }
}

SentRecord* InFlight::oldest() noexcept {
  SentRecord* oldest = nullptr;
  for (SentRecord& record : records_) {
    if (record.state == SentRecord::State::kInFlight &&
        (oldest == nullptr || record.last_packet_number < oldest->last_packet_number)) {
      oldest = &record;
    }
  }
  return oldest;
}

}  // namespace gradwire::collective
