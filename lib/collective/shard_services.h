// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a shard does for its parts, which do not know each other: they tell it what ends the group,
/// and what concerns all of them. One lane owns it.
#pragma once

#include "base/abort_reason.h"
#include "base/types.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_spec.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

class ShardServices {
 public:
  /// Ends the group on this rank and tells all neighbors. Afterwards no part holds a packet; the
  /// caller looks whether the group is live before it goes on.
  virtual void abort(const AbortReason& reason, TimeNs now) noexcept = 0;
  /// Gives each part what the backend has done for it.
  virtual void take_folded(TimeNs now) noexcept = 0;
  /// Posts the next op, of which other ranks have told.
  virtual PostResult post_told(const OpSpec& told, TimeNs now) noexcept = 0;

 protected:
  ~ShardServices() = default;
};

/// Gives the backend what waits for it, and does what follows of what it is through with.
inline void fold(FoldQueue& folds, ShardServices& services, TimeNs now) noexcept {
  folds.submit();
  if (folds.size() != 0) services.take_folded(now);
}

}  // namespace gradwire::collective
