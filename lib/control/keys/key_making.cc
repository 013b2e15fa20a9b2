// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/key_making.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace gradwire::control {

bool KeyMaking::work() try {
  if (error_ || no_memory_ || cancelled_.load(std::memory_order_relaxed)) {
    return keys_->free_some();
  }
  const std::size_t most = std::max<std::size_t>(kLinksPerPiece / keys_->common().lanes, 1);
  const std::size_t end = std::min(ranks_.size(), next_ + most);
  std::optional<security::X25519Exchange> own;
  for (; next_ < end; ++next_) {
    if (auto made = make(ranks_[next_], own); !made) {
      error_ = made.error();
      return false;
    }
  }
  return next_ == ranks_.size();
} catch (const std::bad_alloc&) {
  no_memory_ = true;
  return false;
}

std::optional<Error> KeyMaking::error() const {
  if (!no_memory_) return error_;
  return Error{ErrorCode::kResourceExhausted, "no memory is left for the keys of the group"};
}

Result<void> KeyMaking::make(Rank& rank, std::optional<security::X25519Exchange>& own) {
  const LinkCommon& common = keys_->common();
  if (rank.pair == nullptr) {
    if (!own) own.emplace(*own_);
    const auto pair =
        security::pair_secret(cluster_->by_id(file_)->cluster, *own, common.incarnation,
                              {rank.public_key, rank.incarnation});
    if (!pair) {
      return fail(pair.error().code,
                  fmt::format("the entry of rank {}: {}", rank.rank, pair.error().message));
    }
    rank.pair = PairPtr(new PairSecret(*pair));
    rank.made = true;
  }
  const security::Secret32 no_job;
  keys_->add(rank.rank, rank.incarnation,
             security::root_secret(job_ == nullptr ? no_job : job_->secret, rank.pair->bytes));
  return {};
}

void KeyMaking::keep_pairs(PairCache& cache) const {
  for (const Rank& rank : ranks_) {
    if (!rank.made) continue;
    cache.keep({own_->public_key(), rank.public_key, rank.incarnation, file_}, rank.pair);
  }
}

}  // namespace gradwire::control
