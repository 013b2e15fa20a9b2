// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/folding.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace gradwire::control {

Result<void> check_folding_ranks(const ipc::JoinBody& join) {
  const ipc::JoinRequest& request = join.request;
  if (request.folding_ranks == 0) return {};
  if (request.folding_ranks > request.nranks / 2 || request.ring_ranks() < 2) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} of {} ranks have no members: there must be two at least that have, "
                            "and as many as have none",
                            request.folding_ranks, request.nranks));
  }
  if (request.folds_only() && request.member != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("member {} of rank {}, which has no members: one client joins there, "
                            "as member 0",
                            request.member, request.rank));
  }
  for (std::size_t rank = 0; rank < join.table.size(); ++rank) {
    if (join.table[rank].folding == 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} of the ranks have no members, and the daemon of rank {} knows no "
                              "such ranks: it is of an older release, or an embedded rank",
                              request.folding_ranks, rank));
    }
    if (rank >= request.ring_ranks() && join.table[rank].folding < 2) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("rank {} has no members, and its daemon reduces on a GPU: one that only "
                      "sums for others needs gpu.device = \"\"",
                      rank));
    }
  }
  return {};
}

Result<void> check_folding_work(const PlanRequest& wanted, std::span<const ipc::RankInfo> table) {
  if (wanted.folding_ranks == 0 || wanted.two_step_bytes != 0) return {};
  std::string why = wanted.why_not_direct;
  if (why.empty()) {
    why = fmt::format("rank 0 has transport.direct_kib = {} and transport.two_step_kib = {}",
                      table[0].direct_kib, table[0].two_step_kib);
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} of the ranks have no members, to sum ops in two steps, but the group "
                          "has no such ops: {}",
                          wanted.folding_ranks, why));
}

Result<void> hang(PlanRequest& wanted) {
  const std::uint16_t rank = collective::attached_rank(wanted.rank, wanted.nranks);
  const auto found = std::ranges::find(wanted.peers, rank, &PeerPaths::rank);
  if (found == wanted.peers.end()) {
    return fail(ErrorCode::kInternal, "a rank without members has no path to the one it hangs on");
  }
  wanted.downstream = wanted.upstream = found->paths;
  wanted.tokens.clear();
  for (const collective::LinkTokens& tokens : found->tokens) {
    wanted.tokens.push_back({tokens, tokens});
  }
  wanted.peers.erase(found);
  return {};
}

}  // namespace gradwire::control
