// SPDX-License-Identifier: BSD-3-Clause
// Ops on a CUDA stream where gradient memory is the host's. The daemon knows nothing of streams
// then: a command is held here until its input has been copied, and the result is copied back when
// the daemon is done. Nothing of this waits; whoever posts, tests or waits next moves it on.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "client/client.h"

namespace gradwire::client {

using namespace std::chrono_literals;

/// Between two looks at a stream.
constexpr std::chrono::microseconds kPauseMost = 200us;

Result<void> Client::begin_copies(gw_work& work) {
  Mapping* const mapping =
      work.staging.mapping != nullptr ? work.staging.mapping.get() : work.output_mapping.get();
  const bool is_read = work.extent.input != 0;
  const bool from_elsewhere = is_read && work.input_mapping == nullptr;
  const bool to_elsewhere = work.extent.output != 0 && work.output_mapping == nullptr;
  const void* const from = from_elsewhere ? work.input : nullptr;
  const void* to = to_elsewhere ? work.output : nullptr;
  if (from == nullptr && to == nullptr) to = work.output != nullptr ? work.output : work.input;
  return work.group->copies_of(work.call.collective)
      .begin(*work.copies, *work.stream, {from, to},
             {work.fed != nullptr ? mapping : nullptr, work.fed, work.input, work.extent.input},
             is_read);
}

bool Client::must_wait(const gw_work& work) {
  // A stream that failed is found out, and named, by advance_streams().
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

void Client::hold(const std::shared_ptr<gw_work>& work, const ipc::CommandEntry& command,
                  double factor) {
  work->state = gw_work::State::kHeld;
  auto& queue =
      is_transfer(work->call.collective) ? work->group->held_transfers : work->group->held;
  queue.push_back({work, command, factor});
  // A thread that sleeps has to look at streams from now on.
  if (held_++ == 0) wake_leader();
}

void Client::take_back_leaving() {
  const auto through = std::partition(leaving_.begin(), leaving_.end(),
                                      [](const auto& memory) { return is_pending(memory.until); });
  for (auto it = through; it != leaving_.end(); ++it) give_back_staging(std::move(it->slot));
  came_back_ += static_cast<std::uint64_t>(leaving_.end() - through);
  leaving_.erase(through, leaving_.end());
}

bool Client::await_leaving(Lock& lock, Deadline deadline, std::uint64_t before) {
  while (!dead_ && came_back_ == before && !leaving_.empty() && Clock::now() < deadline) {
    lock.unlock();
    std::this_thread::sleep_for(kPauseMost);
    lock.lock();
    take_back_leaving();
  }
  return came_back_ != before && Clock::now() < deadline;
}

void Client::advance_streams() {
  take_back_leaving();
  if (held_ == 0) return;
  std::vector<std::shared_ptr<gw_group>> groups;
  for (const auto& [handle, group] : groups_) groups.push_back(group);
  for (const auto& group : groups) {
    push_held(*group, group->held);
    push_held(*group, group->held_transfers);
  }
}

void Client::push_held(gw_group& group, std::deque<HeldCommand>& queue) {
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
      send_and_forget(ipc::MessageType::kAbort, ipc::bytes_of(body));
      mark_aborted(group, text);
      fail_held(group, ErrorCode::kSystem, text);
      return;
    }
    if (!*ready) return;
    const HeldCommand next = std::move(queue.front());
    queue.pop_front();
    --held_;
    send_command(*next.work, next.command, next.factor);
    if (dead_) {
      // It was in no queue when the others were told.
      finish(*next.work, dead_reason_.code, dead_reason_.message, 0);
      return;
    }
  }
}

void Client::fail_held(gw_group& group, ErrorCode code, const std::string& text) {
  for (auto* queue : {&group.held, &group.held_transfers}) {
    const std::deque<HeldCommand> failed = std::move(*queue);
    queue->clear();
    held_ -= failed.size();
    for (const HeldCommand& each : failed) finish(*each.work, code, text, 0);
  }
}

void Client::drop_staging(gw_work& work) {
  const StreamOp::EventPtr until = work.copies ? work.copies->last() : nullptr;
  if (is_pending(until)) {
    const bool returns = work.copies->back != nullptr;
    leaving_.push_back({std::move(work.staging), work.output_mapping, until,
                        returns ? work.output : nullptr, returns ? work.extent.output : 0});
    return;
  }
  give_back_staging(std::move(work.staging));
}

void Client::settle_return(gw_work& work) {
  const auto passed = work.copies->back->has_passed();
  if (passed && !*passed) return;
  end_copy(work, passed ? Result<void>{} : tl::unexpected(passed.error()));
  conclude(work);
}

Result<void> Client::await_return(Lock& lock, gw_work& work, Deadline deadline,
                                  std::optional<void*> stream) {
  const StreamOp::EventPtr back = work.copies->back;
  if (stream && back != nullptr && work.code == ErrorCode::kOk) {
    lock.unlock();
    const Result<void> ordered = back->hold_back(*stream);
    lock.lock();
    if (ordered) {
      if (work.state == gw_work::State::kReturning) {
        end_copy(work, {});
        conclude(work);
      }
      return outcome(work);
    }
    // If CUDA does not let it, this thread waits instead.
  }
  auto pause = 5us;
  while (true) {
    if (work.state == gw_work::State::kReturning) settle_return(work);
    // A wait on a stream may have reported the op before the copy was over.
    if (work.state == gw_work::State::kReported && !is_pending(back)) break;
    if (Clock::now() >= deadline) {
      return fail(ErrorCode::kTimedOut,
                  fmt::format("{} is done, but its result is still being copied to the GPU; it "
                              "goes on",
                              describe(work)));
    }
    lock.unlock();
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, kPauseMost);
    lock.lock();
  }
  return outcome(work);
}

}  // namespace gradwire::client
