// SPDX-License-Identifier: BSD-3-Clause
// Which transfers a seed has. Drawn apart, so that all else of a seed stays as it is without.
#include <algorithm>

#include "sim/seeds/sizes.h"
#include "sim/units.h"

namespace gradwire::sim {
namespace {

constexpr std::uint64_t kBytesMax = 1u << 19;  ///< of all transfers of a seed

class Draw {
 public:
  explicit Draw(Scenario& s) : s_(s), random_(s.seed * 0x9e3779b97f4a7c15u + 7) {}

  void run() {
    processes_ = static_cast<std::uint16_t>(std::min<std::size_t>(ranks_of(s_.group).size(), 24));
    if (processes_ < 2 || (random_.chance(0.4) && s_.profile != "crowd" && s_.profile != "pairs") ||
        s_.profile == "death" || s_.profile == "all-reduce") {
      return;
    }
    // Each pair once at the most: a rank has all of its processes' pairs.
    s_.group.shard.transfers.pairs_max = 1024;
    fit_pools(s_);
    for (std::uint64_t i = random_.below(4) + 1; i > 0; --i) draw_pattern();
    s_.transfers.seed = random_.next();
    s_.transfers.late = random_.pick({0.0, 0.1, 0.5});
    s_.transfers.late_ns = random_.pick<TimeNs>({200 * kUs, 5 * kMs});
    const auto all = static_cast<std::uint32_t>(2 * s_.transfers.transfers.size());
    s_.transfers.ahead.assign(s_.nranks, random_.pick({2u, 3u, all, all}));
    if (random_.chance(0.7)) {
      for (std::uint32_t& ahead : s_.transfers.ahead) ahead = random_.pick({2u, 3u, 8u, all});
    }
    draw_rooms();
    draw_streams();
  }

 private:
  /// Drawn apart from all else, so that a seed without it stays as it was.
  void draw_rooms() {
    Random random(s_.seed * 0x9e3779b97f4a7c15u + 23);
    if (!random.chance(0.4)) return;
    const double chance = random.pick({0.2, 0.7, 1.0});
    const std::uint64_t payload = s_.group.shard.payload_bytes;
    for (PlannedTransfer& transfer : s_.transfers.transfers) {
      if (transfer.terms.call != wire::TransferCall::kSendRecv || !random.chance(chance)) continue;
      transfer.up_to = true;
      const std::uint64_t most =
          random.pick<std::uint64_t>({1, payload, payload, 4 * payload, 100 * payload});
      transfer.spare = random.chance(0.3) ? 0 : random.below(most) + 1;
    }
  }
  /// Likewise.
  void draw_streams() {
    Random random(s_.seed * 0x9e3779b97f4a7c15u + 24);
    if (!random.chance(0.35)) return;
    const auto streams = random.pick<std::uint16_t>({2, 3, 16, collective::kStreamsMax});
    s_.group.shard.transfers.streams = streams;
    for (PlannedTransfer& transfer : s_.transfers.transfers) {
      if (transfer.terms.call != wire::TransferCall::kSendRecv) continue;
      transfer.pair.stream = static_cast<std::uint16_t>(random.below(streams));
    }
  }
  [[nodiscard]] std::uint64_t draw_bytes() {
    const std::uint64_t payload = s_.group.shard.payload_bytes;
    const std::uint64_t most = random_.pick<std::uint64_t>(
        {payload, 2 * payload, 8 * payload, 8 * payload, 300 * payload});
    const std::uint64_t bytes = random_.chance(0.1) ? 0 : random_.below(most + 1);
    const std::uint64_t left = kBytesMax - std::min(bytes_, kBytesMax);
    bytes_ += std::min(bytes, left);
    return std::min(bytes, left);
  }
  void add(std::uint16_t source, std::uint16_t destination, wire::TransferCall call) {
    PlannedTransfer transfer;
    transfer.pair = {source, destination};
    transfer.terms = {draw_bytes(), static_cast<std::uint32_t>(random_.below(3)), call};
    transfer.seed = random_.next();
    s_.transfers.transfers.push_back(transfer);
  }
  [[nodiscard]] std::uint16_t process() {
    return static_cast<std::uint16_t>(random_.below(processes_));
  }
  void draw_pattern() {
    switch (random_.below(4)) {
      case 0: {  // any to any, some pairs again and again
        const std::uint16_t source = process();
        const std::uint16_t destination = process();
        for (std::uint64_t i = random_.below(30) + 1; i > 0; --i) {
          const bool same = random_.chance(0.4);
          // One after the other: compilers differ in the order of a call's arguments.
          const std::uint16_t to = same ? destination : process();
          const std::uint16_t from = same ? source : process();
          add(from, to, wire::TransferCall::kSendRecv);
        }
        break;
      }
      case 1:
        for (std::uint16_t ahead = 0; ahead < processes_; ++ahead) {
          for (std::uint16_t source = 0; source < processes_; ++source) {
            add(source, static_cast<std::uint16_t>((source + ahead) % processes_),
                wire::TransferCall::kAllToAll);
          }
        }
        break;
      case 2: {
        const std::uint16_t root = process();
        for (std::uint16_t other = 0; other < processes_; ++other) {
          add(other, root, wire::TransferCall::kGather);
        }
        break;
      }
      default: {
        const std::uint16_t root = process();
        for (std::uint16_t other = 0; other < processes_; ++other) {
          add(root, other, wire::TransferCall::kScatter);
        }
        break;
      }
    }
  }

  Scenario& s_;
  Random random_;
  std::uint16_t processes_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace

void draw_transfers(Scenario& scenario) {
  if (scenario.profile == "crowd") crowd(scenario);
  Draw(scenario).run();
}

void leave_transfers_alone(Scenario& s) {
  collective::ShardConfig& shard = s.group.shard;
  shard.transfers.alone = true;
  shard.direct.op_bytes = shard.direct.two_step_bytes = shard.direct.gathered_bytes = 0;
  s.ops.clear();
  s.cut_after_first_done = false;
  // A rank may wait for longer than the silence limit for what the other has not posted.
  Random random(s.seed * 0x9e3779b97f4a7c15u + 26);
  if (random.chance(0.3)) s.transfers.late_ns = 3 * shard.timeouts.silence_ns / 2;
  fit_pools(s);
}

}  // namespace gradwire::sim
