// SPDX-License-Identifier: BSD-3-Clause
// Profile calls: some ranks call an op otherwise than the others, or one end of a transfer differs.
// Every rank must hear of it by name, or have its values.
#include "sim/seeds/odd_calls.h"

#include <algorithm>

#include "sim/seeds/sizes.h"
#include "sim/units.h"

namespace gradwire::sim {
namespace {

OddCalls::Call as_planned(const OpPlan& plan) {
  return {.count = plan.count,
          .tag = plan.tag,
          .collective = plan.collective,
          .datatype = plan.datatype,
          .redop = plan.redop,
          .root = plan.root,
          .element_bytes = plan.element_bytes};
}

/// Of an op that has memory for all of these.
void change_collective(OddCalls::Call& call, const OpPlan& plan, std::uint32_t processes,
                       Random& random) {
  const auto root = static_cast<std::uint32_t>(random.below(processes));
  switch (random.below(plan.in_place ? 3 : 5)) {
    case 0:
      call.collective = Collective::kReduce;
      call.root = root;
      return;
    case 1:
      call.collective = Collective::kBroadcast;
      call.root = root;
      call.redop = RedOp::kSum;
      return;
    case 2:
      call = {.tag = call.tag, .collective = Collective::kBarrier, .datatype = DataType::kUint8};
      return;
    case 3:
      call.collective = Collective::kAllGather;
      call.count /= processes;
      call.redop = RedOp::kSum;
      return;
    default:
      call.collective = Collective::kReduceScatter;
      call.count /= processes;
      return;
  }
}

/// What a rank calls in the place of `plan`, with the memory that it has for that.
OddCalls::Call draw_call(const Scenario& s, const OpPlan& plan, std::uint16_t rank,
                         Random& random) {
  const std::vector<std::uint16_t> ranks = ranks_of(s.group);
  const auto processes = static_cast<std::uint32_t>(ranks.size());
  OddCalls::Call call = as_planned(plan);
  const bool sums = reduces(plan.collective) && plan.redop != RedOp::kPremulSum;
  const bool barrier = plan.collective == Collective::kBarrier;
  switch (random.below(6)) {
    case 0:
      if (barrier || plan.count == 0) break;
      call.count = random.chance(0.4) ? 0 : random.below(plan.count);
      return call;
    case 1:
      if (!sums) break;
      call.redop = plan.redop == RedOp::kSum ? RedOp::kMax : RedOp::kSum;
      return call;
    case 2:
      if (barrier || plan.datatype == DataType::kBytes || (sums && plan.redop != RedOp::kSum) ||
          plan.redop == RedOp::kPremulSum) {
        break;
      }
      call.datatype = plan.datatype == DataType::kUint8 ? DataType::kInt8 : DataType::kUint8;
      return call;
    case 3:
      if (plan.collective != Collective::kAllReduce || !sums) break;
      change_collective(call, plan, processes, random);
      return call;
    case 4: {
      if (!has_root(plan.collective)) break;
      // Not a process of this rank, which would need memory for it.
      const auto root = static_cast<std::uint32_t>(random.below(processes));
      if (ranks[root] == rank || root == plan.root) break;
      call.root = root;
      return call;
    }
    default:
      break;
  }
  call.tag += 1;
  return call;
}

void draw_odd_transfer(Scenario& s, Random& random) {
  const std::size_t which = random.below(s.transfers.transfers.size());
  const wire::TransferTerms& planned = s.transfers.transfers[which].terms;
  s.odd.end = 2 * which + random.below(2);
  s.odd.terms = planned;
  // A receive that takes fewer bytes does not differ from a send of fewer.
  const bool fewer_fit = s.transfers.transfers[which].up_to && *s.odd.end % 2 == 0;
  if (planned.bytes == 0 || random.chance(0.3) || fewer_fit) {
    s.odd.terms.tag += 1;
  } else {
    s.odd.terms.bytes = random.below(planned.bytes);
  }
}

}  // namespace

OddCalls::Call OddCalls::call_of(const OpPlan& plan, std::uint64_t op, std::uint16_t rank) const {
  return is_odd(op, rank) ? *calls[rank] : as_planned(plan);
}

void draw_odd_calls(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 12);
  s.may_abort = true;
  if (!s.transfers.transfers.empty() && random.chance(0.3)) return draw_odd_transfer(s, random);
  s.odd.op_seq = 1 + random.below(s.ops.size());
  OpPlan& plan = s.ops[s.odd.op_seq - 1].plan;
  // What sends no packets of its own shows the least.
  if (random.chance(0.4)) {
    plan.count = 0;
    if (random.chance(0.3)) {
      plan = {.tag = plan.tag, .seed = plan.seed, .collective = Collective::kBarrier};
    }
  }
  s.odd.calls.resize(s.nranks);
  const bool many = random.chance(0.3);
  const bool alike = random.chance(0.5);
  const std::uint64_t first = random.below(s.nranks);
  const std::uint64_t same = random.next();
  for (std::uint16_t rank = 0; rank < s.nranks; ++rank) {
    const bool odd = rank == first || (many && random.chance(0.5));
    // One at least calls it as planned.
    if (!odd || rank == (first + 1) % s.nranks) continue;
    Random own(alike ? same : random.next());
    s.odd.calls[rank] = draw_call(s, plan, rank, own);
  }
}

}  // namespace gradwire::sim
