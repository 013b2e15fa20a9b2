// SPDX-License-Identifier: BSD-3-Clause
// The keys of groups whose mode is not off.
#include <fmt/format.h>

#include <utility>

#include "control/formation/formation.h"
#include "control/plans/plan_request.h"

namespace gradwire::control {

Result<JobKeyPtr> Formation::job_key_of(const ipc::JoinBody& body, const Client& client) const {
  const security::KeyId id = keys_.for_join(client.peer.uid, body.wants).job;
  if (!is_key(id)) return JobKeyPtr();
  const auto found = client.job_keys.find(id);
  if (found != client.job_keys.end()) return found->second;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the join names the job's key {}, and this connection has not brought "
                          "it: ask for the daemon's entry with that key",
                          security::text_of(id)));
}

void Formation::make_keys(Group& group, TimeNs now) {
  auto making = keys_.making_for(group.wanted, group.uid, group.table, group.job, group.key_room);
  if (!making) return paths_.unreachable(group, making.error(), now);
  // A group that ends meanwhile takes its turn from no other: its keys could be 1,023 ranks'.
  group.making = {making->get(), [making = *making](KeyMaking* it) { it->cancel(); }};
  const auto done = [this, making = *making, handle = group.handle, uid = group.uid] {
    keys_.keep_pairs_of(*making, uid);
    // From here on the worker frees them, also if the group ends before it takes them.
    auto keys = making->take();
    if (Group* waiting = groups_.by_handle(handle)) waiting->made_keys = std::move(keys);
  };
  worker_.submit_in_turn(
      group.uid, [making = *making] { return making->work(); }, done);
  // A worker that has no thread is through already.
  if (group.made_keys != nullptr && take_keys(group, now)) create_plan(group, now);
}

bool Formation::take_keys(Group& group, TimeNs now) {
  if (const auto error = group.making->error()) {
    paths_.unreachable(group, *error, now);
    return false;
  }
  put_keys(group.wanted, std::exchange(group.made_keys, nullptr));
  group.making.reset();  // it has secrets that nobody needs any more
  return true;
}

}  // namespace gradwire::control
