// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Two processes that post a gw_call each, and what of one is refused.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/collective_call.h"
#include "fixture.h"

namespace gradwire::test {

inline constexpr std::uint32_t kPairSize = 2;
inline constexpr std::uint64_t kElements = 5;

/// Two processes, each with an input and an output that no call outgrows.
struct CallPair {
  Fixture fixture{kPairSize};
  std::array<gw_client*, kPairSize> clients{};
  std::vector<gw_group*> groups;
  std::array<std::array<std::int32_t, 64>, kPairSize> inputs{};
  std::array<std::array<std::int32_t, 64>, kPairSize> outputs{};

  CallPair() {
    for (std::uint32_t p = 0; p < kPairSize; ++p) clients[p] = fixture.open(p);
    groups = join_all({clients[0], clients[1]});
  }
  ~CallPair() {
    for (gw_group* group : groups) gw_group_free(group);
    for (gw_client* client : clients) gw_close(client);
  }

  /// A call that process `p` may post.
  [[nodiscard]] gw_call call(Collective collective, std::uint32_t p) {
    gw_call call{};
    call.struct_bytes = sizeof call;
    call.collective = static_cast<gw_collective>(collective);
    if (collective == Collective::kBarrier) return call;
    if (collective != Collective::kRecv) call.input = inputs[p].data();
    if (collective != Collective::kSend) call.output = outputs[p].data();
    call.count = kElements;
    call.datatype = GW_INT32;
    if (has_partner(collective)) call.root = 1 - p;
    if (has_root(collective)) call.root = 1;
    return call;
  }
  [[nodiscard]] static CollectiveExtent extent(Collective collective, std::uint32_t p) {
    const std::uint32_t root = has_partner(collective) ? 1 - p : 1;
    return extent_of({collective, DataType::kInt32, RedOp::kSum, kElements, root, 0},
                     {p, kPairSize})
        .value();
  }
  void refused(std::uint32_t p, const gw_call& call, const std::string& text) {
    const std::uint64_t posted = counters_of(clients[p]).ops_posted;
    gw_work* work = nullptr;
    INFO(name_of(static_cast<Collective>(call.collective)));
    CHECK(gw_post(groups[p], &call, &work) == GW_INVALID_ARGUMENT);
    CHECK_THAT(gw_last_error(), Catch::Contains(text));
    CHECK(work == nullptr);
    CHECK(counters_of(clients[p]).ops_posted == posted);
    CHECK(gw_group_error(groups[p]) == GW_OK);
  }
};

}  // namespace gradwire::test
