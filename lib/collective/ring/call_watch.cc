// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ring/call_watch.h"

namespace gradwire::collective {

void CallWatch::hear(const wire::SaidCall& said, std::uint64_t posted) noexcept {
  posted_there_ = std::max(posted_there_, posted);
  if (said.op_seq == 0 || said.op_seq <= agreed_) return;
  // Asked for an older one, it tells of the oldest that it still knows.
  if (said.op_seq + OpTable::kDescriptorsKept == posted + 1) {
    too_old_ = std::max(too_old_, said.op_seq - 1);
  }
  if (said.op_seq > ops_.posted()) {
    ahead_[said.op_seq % kAhead] = said;
  } else {
    compare(said);
  }
}

void CallWatch::on_posted(std::uint64_t op_seq) noexcept {
  const wire::SaidCall& said = ahead_[op_seq % kAhead];
  if (said.op_seq == op_seq) compare(said);
}

void CallWatch::hear_last(std::uint64_t op_seq, std::uint64_t digest) noexcept {
  left_ = true;
  last_ = {.op_seq = op_seq, .digest = digest};
}

bool CallWatch::differs_from_who_left() const noexcept {
  if (!left_) return false;
  const auto ours = ops_.digest(last_.op_seq);  // None if it is not posted here yet.
  const bool differs = last_.digest != 0 && ours.has_value() && *ours != last_.digest;
  return differ() || (differs && !planted(PlantedBug::kCallsNotCompared));
}

void CallWatch::compare(const wire::SaidCall& said) noexcept {
  const auto digest = ops_.digest(said.op_seq);
  if (!digest) return;  // It is too old here.
  if (*digest == said.digest || planted(PlantedBug::kCallsNotCompared)) {
    agreed_ = std::max(agreed_, said.op_seq);
  } else if (differs_.op_seq == 0 || said.op_seq < differs_.op_seq) {
    differs_ = said;
  }
}

std::uint64_t CallWatch::asks(std::uint64_t needed) const noexcept {
  if (differs_.op_seq != 0) {
    return mismatch() != nullptr ? 0 : lower() + (differs_.op_seq - lower()) / 2;
  }
  const std::uint64_t known = std::min(needed, posted_there_);
  return known > agreed() ? known : 0;
}

}  // namespace gradwire::collective
