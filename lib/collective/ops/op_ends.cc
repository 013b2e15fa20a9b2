// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ops/op_ends.h"

#include "base/probe.h"
#include "base/require.h"

namespace gradwire::collective {

void OpEnds::finish(Op& op) noexcept {
  const std::uint64_t op_seq = op.spec.op_seq;
  // The next rank has posted it: there is a part of each rank in it, or it is one_way and has
  // waited for that.
  require(op.eager_sent == 0 || op.rules.to < links_.size(), "what went ahead went by a link");
  if (op.eager_sent > 0) links_[op.rules.to]->sender().give_back_eager(op);
  folds_.backend().make_visible();
  ops_.close(op);
  ++counters_.ops_done;
  OpRecord record = op.record;
  record.retransmissions = counters_.retransmissions - record.retransmissions;
  GRADWIRE_PROBE6(op_done, config_.key.group_id, op_seq, config_.rank, config_.lane, record.bytes,
                  record.retransmissions);
  if (tells_) events_.put({EventType::kOpDone, op_seq, record});
}

}  // namespace gradwire::collective
