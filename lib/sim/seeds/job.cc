// SPDX-License-Identifier: BSD-3-Clause
#include "sim/seeds/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "collective/ops/op_table.h"

namespace gradwire::sim {

Job::Job(World& world, const GroupOptions& group, std::vector<PlannedOp> ops,
         std::vector<std::uint32_t> ops_ahead)
    : world_(world),
      ops_(std::move(ops)),
      nranks_(ring_ranks(group)),
      ops_ahead_(std::move(ops_ahead)),
      clients_(group.hosts.size()) {
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i].plan.count != 0 && (middle_ == 0 || i <= ops_.size() / 2)) middle_ = i + 1;
  }
  const std::vector<std::uint16_t> ranks = ranks_of(group);
  for (const PlannedOp& op : ops_) cases_.emplace_back(nranks_, ranks, op.plan);
  for (Client& client : clients_) client.done_ops.assign(ops_.size() + 1, false);
  for (std::size_t rank = nranks_; rank < clients_.size(); ++rank) {
    clients_[rank].posted = clients_[rank].done = ops_.size();
    clients_[rank].first_unfinished = ops_.size() + 1;
  }
}

void Job::fail(std::string text) {
  if (!failure_.empty()) return;
  failure_ = fmt::format("at {} us: {}", world_.now() / 1000, text);
}

void Job::on_formed(std::uint16_t rank) {
  clients_[rank].formed = true;
  post_next(rank);
  if (transfers(rank)) transfers_->on_formed(rank);
  end_if_finished(rank);
}

void Job::post_next(std::uint16_t rank) {
  Client& client = clients_[rank];
  if (client.post_scheduled || client.gone || client.failed || client.crashed ||
      client.posted == ops_.size() || client.posted - client.done >= ops_ahead_[rank]) {
    return;
  }
  const TimeNs late_ns = ops_[client.posted].late_ns[rank];
  const auto post = [this, rank] {
    Client& c = clients_[rank];
    c.post_scheduled = false;
    if (c.gone || c.failed || c.crashed) return;
    const std::uint64_t op_seq = c.posted + 1;
    collective::OpSpec spec = cases_[c.posted].spec(rank, op_seq);
    if (odd_ != nullptr) odd_->apply(spec, rank);
    if (!world_.post(group_, rank, spec)) return;
    c.posted = op_seq;
    post_next(rank);
  };
  client.post_scheduled = true;
  world_.at(world_.now() + late_ns, post);
}

void Job::on_done(std::uint16_t rank, std::uint64_t op_seq) {
  Client& client = clients_[rank];
  if (op_seq == 0 || op_seq > client.posted || client.done_ops[op_seq]) {
    fail(fmt::format("rank {} is done with op {}, which it has not posted or had done", rank,
                     op_seq));
    return;
  }
  client.done_ops[op_seq] = true;
  ++client.done;
  while (client.first_unfinished <= ops_.size() && client.done_ops[client.first_unfinished]) {
    ++client.first_unfinished;
  }
  OpCase& op = cases_[op_seq - 1];
  if (client.quiet) {
    fail(fmt::format("rank {} completed op {} after it had an error for it", rank, op_seq));
  }
  // An op without elements is done when the next rank has posted it, a broadcast where it has come:
  // neither says anything of all other ranks.
  const bool odd = odd_ != nullptr && odd_->is_odd(op_seq, rank);
  if (!odd && op.plan().needs_all(op.is_root(rank)) && op_seq > last_possible_) {
    fail(fmt::format("rank {} completed op {}, though a rank failed that had posted {} only", rank,
                     op_seq, last_possible_));
  }
  if (odd_ != nullptr && !may_end(rank, op_seq)) {
    fail(fmt::format("rank {} completed op {}, which others call otherwise", rank, op_seq));
  }
  const std::string wrong = odd ? std::string() : op.wrong(rank);
  if (!wrong.empty()) fail(fmt::format("op {} is wrong: {}", op_seq, wrong));
  op.retire(rank);
  if (when_first_done && op.plan().count != 0) {
    const bool first = std::count_if(clients_.begin(), clients_.end(),
                                     [&](const Client& c) { return c.done_ops[op_seq]; }) == 1;
    if (first && op_seq == middle_) when_first_done(rank, op_seq);
  }
  post_next(rank);
  end_if_finished(rank);
}

bool Job::may_end(std::uint16_t rank, std::uint64_t op_seq) const {
  if (op_seq != odd_->op_seq) return true;
  const OpCase& op = cases_[op_seq - 1];
  const bool odd = odd_->is_odd(op_seq, rank);
  const OddCalls::Call own = odd_->call_of(op.plan(), op_seq, rank);
  if (own.count != 0) return odd || !op.plan().needs_all(op.is_root(rank));
  // One of no elements waits until the next rank has said the same, unless it says nothing more of
  // it: it has left, or is far ahead.
  const auto next = static_cast<std::uint16_t>((rank + 1) % nranks_);
  const Client& there = clients_[next];
  if (there.left || there.posted >= op_seq + collective::OpTable::kDescriptorsKept) return true;
  return own == odd_->call_of(op.plan(), op_seq, next);
}

void Job::on_transfer_done(std::uint16_t rank, std::uint64_t id) {
  transfers_->on_done(rank, id);
  if (!transfers_->failure().empty()) fail(transfers_->failure());
  end_if_finished(rank);
}

void Job::on_failed(std::uint16_t rank, const AbortReason& reason) {
  Client& client = clients_[rank];
  client.failed = true;
  client.reason = reason;
  client.failed_at = world_.now();
  if (transfers(rank)) transfers_->stop_posting(rank);
  last_possible_ = std::min(last_possible_, client.posted);
}

void Job::on_quiet(std::uint16_t rank) {
  Client& client = clients_[rank];
  if (!client.failed) return;  // It left.
  client.quiet = true;
  if (transfers(rank)) transfers_->on_lost(rank);
  for (std::uint64_t op_seq = 1; rank < nranks_ && op_seq <= ops_.size(); ++op_seq) {
    if (!client.done_ops[op_seq]) cases_[op_seq - 1].retire(rank);
  }
  end_if_finished(rank);
}

void Job::on_crash(std::uint16_t rank) {
  Client& client = clients_[rank];
  if (client.crashed) return;
  client.crashed = true;
  if (transfers(rank)) transfers_->on_lost(rank);
  last_possible_ = std::min(last_possible_, client.posted);
  for (std::uint64_t op_seq = 1; rank < nranks_ && op_seq <= ops_.size(); ++op_seq) {
    if (!client.done_ops[op_seq]) cases_[op_seq - 1].retire(rank);
  }
}

void Job::end_if_finished(std::uint16_t rank) {
  Client& client = clients_[rank];
  if (client.left || client.crashed || !has_ended(client)) return;
  client.left = true;
  world_.at(world_.now() + 1'000, [this, rank] {
    if (!clients_[rank].crashed) world_.leave(group_, rank);
  });
}

void Job::leave_all() {
  for (std::uint16_t rank = 0; rank < clients_.size(); ++rank) {
    if (clients_[rank].left || clients_[rank].crashed) continue;
    clients_[rank].left = true;
    world_.leave(group_, rank);
  }
}

bool Job::finished() const {
  return std::all_of(clients_.begin(), clients_.end(),
                     [&](const Client& client) { return has_ended(client); });
}

bool Job::closed() const {
  for (std::uint16_t rank = 0; rank < clients_.size(); ++rank) {
    if (!world_.closed(group_, rank)) return false;
  }
  return true;
}

void Job::check_memory() {
  if (transfers_ != nullptr) {
    transfers_->check_memory();
    if (!transfers_->failure().empty()) fail(transfers_->failure());
  }
  for (std::uint16_t rank = 0; rank < nranks_; ++rank) {
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const Client& client = clients_[rank];
      if (!client.done_ops[i + 1] && !client.quiet && !client.crashed) continue;
      const std::string touched = cases_[i].touched(rank);
      if (!touched.empty()) {
        fail(fmt::format("memory of op {} was changed after the op had ended: {}", i + 1, touched));
      }
    }
  }
}

std::uint64_t Job::one_sided() const {
  std::uint64_t count = 0;
  for (std::size_t op_seq = 1; op_seq <= ops_.size(); ++op_seq) {
    if (cases_[op_seq - 1].plan().count == 0) continue;
    bool done = false;
    bool lost = false;
    for (std::uint16_t rank = 0; rank < nranks_; ++rank) {
      const Client& client = clients_[rank];
      done |= client.done_ops[op_seq];
      lost |= client.quiet && !client.done_ops[op_seq] && op_seq <= client.posted;
    }
    count += done && lost ? 1 : 0;
  }
  return count;
}

std::uint64_t Job::completed() const {
  std::uint64_t count = 0;
  for (std::uint16_t rank = 0; rank < nranks_; ++rank) count += clients_[rank].done;
  return count;
}

}  // namespace gradwire::sim
