// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How far a group has come on this rank: it forms, is formed, leaves, was aborted or is closed.
/// All parts of a shard read that; Membership alone changes it. One lane owns it.
#pragma once

#include "base/require.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

class Group {
 public:
  [[nodiscard]] ShardState state() const noexcept { return state_; }
  [[nodiscard]] bool forming() const noexcept { return state_ == ShardState::kForming; }
  [[nodiscard]] bool formed() const noexcept { return state_ == ShardState::kFormed; }
  [[nodiscard]] bool aborted() const noexcept { return state_ == ShardState::kAborted; }
  /// Whether packets are taken: it forms, is formed or leaves.
  [[nodiscard]] bool live() const noexcept {
    return state_ == ShardState::kForming || state_ == ShardState::kFormed ||
           state_ == ShardState::kLeaving;
  }
  void become(ShardState next) noexcept {
    require(may_become(next), "a group forms, is formed, leaves or is aborted, and closes at last");
    state_ = next;
  }

 private:
  [[nodiscard]] bool may_become(ShardState next) const noexcept {
    switch (next) {
      case ShardState::kIdle:
        return false;
      case ShardState::kForming:
        return state_ == ShardState::kIdle;
      case ShardState::kFormed:
        return state_ == ShardState::kForming;
      case ShardState::kLeaving:
        return state_ == ShardState::kFormed;
      case ShardState::kAborted:
        return live();
      case ShardState::kClosed:
        return state_ == ShardState::kLeaving || state_ == ShardState::kAborted;
    }
    return false;
  }

  ShardState state_ = ShardState::kIdle;
};

}  // namespace gradwire::collective
