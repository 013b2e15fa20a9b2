// SPDX-License-Identifier: BSD-3-Clause
#include "collective/in_flight.h"

namespace gradwire::collective {

InFlight::InFlight(std::uint32_t packets) : records_(packets) {
  free_.reserve(packets);
  for (std::uint32_t i = packets; i-- > 0;) free_.push_back(i);
}

void InFlight::release_all() noexcept {
  for (SentRecord& record : records_) {
    if (record.state != SentRecord::State::kFree) release(record);
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
