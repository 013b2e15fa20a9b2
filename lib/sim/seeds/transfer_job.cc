// SPDX-License-Identifier: BSD-3-Clause
#include "sim/seeds/transfer_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "sim/reference/guards.h"
#include "sim/units.h"

namespace gradwire::sim {
namespace {

/// As progress.cc has them.
constexpr TimeNs kStillLimit = 5'000 * kMs;
constexpr TimeNs kEndLimit = 30'000 * kMs;

std::byte byte_of(std::uint64_t seed, std::uint64_t at) {
  const std::uint64_t word = (seed + at / 8) * 0x9e3779b97f4a7c15u;
  return static_cast<std::byte>((word ^ word >> 29) >> 8 * (at % 8));
}

}  // namespace

TransferJob::TransferJob(World& world, std::vector<std::uint16_t> ranks, const TransferPlans& plans)
    : world_(world),
      ranks_(std::move(ranks)),
      clients_(plans.ahead.size()),
      random_(plans.seed),
      late_(plans.late),
      late_ns_(plans.late_ns) {
  std::map<std::array<std::uint16_t, 3>, std::size_t> last;  // by pair and stream
  for (const PlannedTransfer& plan : plans.transfers) {
    const std::size_t index = transfers_.size();
    Transfer transfer;
    transfer.plan = plan;
    const auto [before, is_first] =
        last.insert({{plan.pair.source, plan.pair.destination, plan.pair.stream}, index});
    if (!is_first) transfer.before = before->second;
    before->second = index;
    transfer.source.memory.assign(plan.terms.bytes + 2 * kGuard, kGuardByte);
    transfer.destination.memory.assign(plan.terms.bytes + plan.spare + 2 * kGuard, kGuardByte);
    for (std::uint64_t i = 0; i < plan.terms.bytes; ++i) {
      transfer.source.memory[kGuard + i] = byte_of(plan.seed, i);
    }
    transfers_.push_back(std::move(transfer));
    clients_[ranks_[plan.pair.source]].order.push_back(id_of(index, true));
    clients_[ranks_[plan.pair.destination]].order.push_back(id_of(index, false));
  }
  for (std::size_t rank = 0; rank < clients_.size(); ++rank) {
    Client& client = clients_[rank];
    client.ahead = plans.ahead[rank];
    client.posted.assign(client.order.size(), false);
    if (client.ahead < client.order.size()) continue;
    // Nothing of it waits for an order: whoever posts all may do it in any.
    for (std::size_t i = client.order.size(); i > 1; --i) {
      std::swap(client.order[i - 1], client.order[random_.below(i)]);
    }
  }
}

void TransferJob::fail(std::string text) {
  if (!failure_.empty()) return;
  failure_ = fmt::format("at {} us: {}", world_.now() / 1000, text);
}

void TransferJob::on_formed(std::uint16_t rank) {
  clients_[rank].formed = true;
  post_more(rank);
}

bool TransferJob::may_post(std::uint64_t id) {
  const std::size_t before = transfers_[id / 2].before;
  return before == SIZE_MAX || end_of(id_of(before, id % 2 == 0)).state == State::kDone;
}

void TransferJob::post_more(std::uint16_t rank) {
  Client& client = clients_[rank];
  if (client.scheduled || !client.formed) return;
  client.scheduled = true;
  const TimeNs late = random_.chance(late_) ? random_.between(0, late_ns_) : 0;
  world_.at(world_.now() + late, [this, rank] {
    clients_[rank].scheduled = false;
    post_one(rank);
  });
}

void TransferJob::post_one(std::uint16_t rank) {
  Client& client = clients_[rank];
  if (client.stopped || client.lost || client.under_way >= client.ahead) return;
  for (std::size_t i = 0; i < client.order.size(); ++i) {
    if (client.posted[i]) continue;
    const std::uint64_t id = client.order[i];
    if (!may_post(id)) {
      // Who goes by the common order waits; who posts all goes on with another pair.
      if (client.ahead < client.order.size()) return;
      continue;
    }
    Transfer& transfer = transfers_[id / 2];
    End& end = end_of(id);
    collective::TransferSpec spec;
    spec.id = id;
    spec.end =
        id % 2 == 0 ? collective::TransferEnd::kSource : collective::TransferEnd::kDestination;
    spec.pair = transfer.plan.pair;
    spec.terms = transfer.plan.terms;
    if (transfer.plan.up_to && id % 2 == 1) {
      spec.up_to = true;
      spec.terms.bytes += transfer.plan.spare;
    }
    if (odd_ != nullptr && *odd_->end == id) spec.terms = odd_->terms;
    spec.from = spec.to = end.memory.data() + kGuard;
    if (!world_.post(group_, rank, spec)) return;
    client.posted[i] = true;
    ++client.under_way;
    end.state = State::kPosted;
    post_more(rank);
    return;
  }
}

std::string TransferJob::wrong(const Transfer& transfer) const {
  const std::vector<std::byte>& memory = transfer.destination.memory;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const bool inside = i >= kGuard && i < memory.size() - transfer.plan.spare - kGuard;
    const std::byte right = inside ? byte_of(transfer.plan.seed, i - kGuard) : kGuardByte;
    if (memory[i] == right) continue;
    return fmt::format("byte {} of {} is {:#x}, expected {:#x}",
                       static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(kGuard),
                       transfer.plan.terms.bytes, static_cast<unsigned>(memory[i]),
                       static_cast<unsigned>(right));
  }
  return {};
}

void TransferJob::on_sized(std::uint64_t id, std::uint64_t bytes) {
  Transfer& transfer = transfers_[id / 2];
  if (!transfer.plan.up_to || id % 2 == 0 || transfer.destination.state != State::kPosted ||
      transfer.told != UINT64_MAX) {
    fail(fmt::format("the size of transfer {} is told, and nobody asked", id / 2));
  }
  transfer.told = bytes;
}

void TransferJob::on_done(std::uint16_t rank, std::uint64_t id) {
  Client& client = clients_[rank];
  Transfer& transfer = transfers_[id / 2];
  const wire::ProcessPair& pair = transfer.plan.pair;
  End& end = end_of(id);
  const auto name = [&] {
    return fmt::format("transfer {} from process {} to process {}", id / 2, pair.source,
                       pair.destination);
  };
  if (end.state != State::kPosted) return fail(name() + " ended though it was not under way");
  if (odd_ != nullptr && *odd_->end / 2 == id / 2) fail(name() + " ended though its ends differ");
  if (client.lost) fail(name() + " ended after its rank had an error for it");
  if (transfer.destination.state == State::kWaiting || transfer.source.state == State::kWaiting) {
    fail(name() + " ended before both ends had posted it");
  }
  end.state = State::kDone;
  if (id % 2 == 1 && transfer.plan.up_to && transfer.told != transfer.plan.terms.bytes) {
    fail(fmt::format("{}: {} bytes are told, and {} were sent", name(), transfer.told,
                     transfer.plan.terms.bytes));
  }
  if (!transfer.destination.retired) {
    if (const std::string what = wrong(transfer); !what.empty()) fail(name() + ": " + what);
  }
  retire(end);
  --client.under_way;
  ++client.done;
  ++completed_;
  post_more(rank);
}

void TransferJob::retire(End& end) {
  end.retired = true;
  std::fill(end.memory.begin(), end.memory.end(), kRetiredByte);
}

void TransferJob::on_lost(std::uint16_t rank) {
  Client& client = clients_[rank];
  if (client.lost) return;
  client.lost = true;
  for (const std::uint64_t id : client.order) retire(end_of(id));
}

void TransferJob::check_memory() {
  for (const Transfer& transfer : transfers_) {
    for (const End* end : {&transfer.source, &transfer.destination}) {
      if (!end->retired) continue;
      if (std::any_of(end->memory.begin(), end->memory.end(),
                      [](std::byte byte) { return byte != kRetiredByte; })) {
        fail(
            fmt::format("memory of a transfer from process {} to process {} was changed after it "
                        "had ended",
                        transfer.plan.pair.source, transfer.plan.pair.destination));
      }
    }
  }
}

std::string TransferJob::look(bool due) {
  const TimeNs now = world_.now();
  std::uint64_t moved = completed_;
  for (std::uint16_t rank = 0; rank < clients_.size(); ++rank) {
    for (const auto& shard : world_.rank(group_, rank).shards) {
      moved += shard->counters().pieces_received + shard->counters().transfer_ends_done;
    }
  }
  if (moved != moved_ || moved_at_ == 0) moved_at_ = now;
  moved_ = moved;
  for (Transfer& transfer : transfers_) {
    const bool both =
        transfer.source.state != State::kWaiting && transfer.destination.state != State::kWaiting;
    const bool ended =
        transfer.source.state == State::kDone && transfer.destination.state == State::kDone;
    if (!both || ended || !due) {
      transfer.both_since = 0;
      continue;
    }
    if (transfer.both_since == 0) transfer.both_since = now;
    const TimeNs took = now - transfer.both_since;
    const TimeNs still = std::min(took, now - moved_at_);
    if (still < kStillLimit && took < kEndLimit) continue;
    return fmt::format(
        "no progress: the transfer from process {} to process {} has not ended, though both have "
        "posted it for {} ms and packets get through; no transfer moved for {} ms",
        transfer.plan.pair.source, transfer.plan.pair.destination, took / kMs, still / kMs);
  }
  return {};
}

}  // namespace gradwire::sim
