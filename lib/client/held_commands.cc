// SPDX-License-Identifier: BSD-3-Clause
#include "client/held_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace gradwire::client {

bool HeldCommands::must_wait(const gw_work& work) {
  // A stream that failed is found out, and named, by advance().
  if (work.copies && work.copies->fed != nullptr) {
    const auto passed = work.copies->fed->has_passed();
    if (!passed || !*passed) return true;
  }
  const gw_group& group = *work.group;
  if (!is_transfer(work.call.collective)) return !group.held.empty();
  // A recv waits for none of this process's sends.
  const auto& before = group.held_transfers;
  if (work.call.collective != Collective::kRecv) return !before.empty();
  return std::any_of(before.begin(), before.end(), [](const HeldCommand& other) {
    return other.work->call.collective != Collective::kSend;
  });
}

void HeldCommands::hold(const std::shared_ptr<gw_work>& work, const ipc::CommandEntry& command,
                        const ipc::CommandExtra& extra) {
  work->state = gw_work::State::kHeld;
  auto& queue =
      is_transfer(work->call.collective) ? work->group->held_transfers : work->group->held;
  queue.push_back({work, command, extra});
  // A thread that sleeps has to look at streams from now on.
  if (held_++ == 0) connection_.wake_leader();
}

void HeldCommands::advance() {
  if (held_ == 0) return;
  std::vector<std::shared_ptr<gw_group>> groups;
  for (const auto& [handle, group] : groups_) groups.push_back(group);
  for (const auto& group : groups) {
    push(*group, group->held);
    push(*group, group->held_transfers);
  }
}

void HeldCommands::push(gw_group& group, std::deque<HeldCommand>& queue) {
  while (!queue.empty()) {
    const std::shared_ptr<gw_work> work = queue.front().work;
    const Result<bool> ready = work->copies && work->copies->fed != nullptr
                                   ? work->copies->fed->has_passed()
                                   : Result<bool>(true);
    if (!ready) {
      // The others wait for this process's part, and what it posts next would be taken for it.
      const std::string text = fmt::format("the input of {} did not come from the GPU: {}",
                                           describe(*work), ready.error().message);
      ipc::AbortRequest body;
      body.group_handle = group.handle;
      ipc::copy_text(body.text, text);
      connection_.send_and_forget(ipc::MessageType::kAbort, ipc::bytes_of(body));
      works_.mark_aborted(group, text);
      fail(group, ErrorCode::kSystem, text);
      return;
    }
    if (!*ready) return;
    const HeldCommand next = std::move(queue.front());
    queue.pop_front();
    --held_;
    if (connection_.send_command(next.command, next.extra, false)) {
      next.work->state = gw_work::State::kPosted;
    }
    if (connection_.dead()) {
      // It was in no queue when the others were told.
      works_.finish(*next.work, connection_.dead_reason().code, connection_.dead_reason().message,
                    0);
      return;
    }
  }
}

void HeldCommands::fail(gw_group& group, ErrorCode code, const std::string& text) {
  for (auto* queue : {&group.held, &group.held_transfers}) {
    const std::deque<HeldCommand> failed = std::move(*queue);
    queue->clear();
    held_ -= failed.size();
    for (const HeldCommand& each : failed) works_.finish(*each.work, code, text, 0);
  }
}

void HeldCommands::drop_all() {
  for (const auto& [handle, group] : groups_) {
    group->held.clear();
    group->held_transfers.clear();
  }
  held_ = 0;
}

}  // namespace gradwire::client
