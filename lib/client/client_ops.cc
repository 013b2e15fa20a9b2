// SPDX-License-Identifier: BSD-3-Clause
// Ops of a client: posted, tested, waited for.
#include <fmt/format.h>

#include <algorithm>

#include "client/client.h"

namespace gradwire::client {
namespace {

constexpr auto kLeft = "the group has been left";

void pause_briefly() noexcept {
  for (int i = 0; i < 32; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

}  // namespace

Result<std::shared_ptr<gw_work>> Client::post(const std::shared_ptr<gw_group>& group,
                                              const PostArguments& arguments) {
  auto made = make_work(*group, arguments);
  if (!made) return made;
  const std::shared_ptr<gw_work> work = std::move(*made);
  work->client = shared_from_this();
  work->group = group;

  Lock lock(mutex_);
  if (auto alive = connection_.check_alive(); !alive) return tl::unexpected(alive.error());
  connection_.drain_completions();
  connection_.drain_control_sometimes();
  if (group->aborted) return fail(ErrorCode::kAborted, group->abort_text);
  if (group->left) return fail(ErrorCode::kInvalidArgument, kLeft);

  ipc::CommandEntry command;
  ipc::CommandExtra extra;
  extra.factor = arguments.factor;
  if (auto placed = place(memory_, lock, *work, arguments, command, extra); !placed) {
    return tl::unexpected(placed.error());
  }
  Result<void> claimed = work->stream ? memory_.take_event(lock, *work) : Result<void>{};
  if (claimed) claimed = works_.claim(work);
  if (claimed && work->copies) work->copies->after = memory_.results_under(*work);
  if (!claimed) {
    give_up(memory_, *work);
    return tl::unexpected(claimed.error());
  }
  keep_residuals(*work);
  if (work->fed != nullptr || work->ready.event != nullptr || work->copies) {
    lock.unlock();
    const Result<void> fed = feed(*work);
    lock.lock();
    Result<void> may_go = fed;
    // Another thread may have heard of it meanwhile, and what is held of the group has ended then.
    if (may_go && group->aborted) may_go = fail(ErrorCode::kAborted, group->abort_text);
    if (may_go && group->left) may_go = fail(ErrorCode::kInvalidArgument, kLeft);
    if (!may_go) {
      works_.release_slot(*work);
      give_up(memory_, *work);
      return tl::unexpected(may_go.error());
    }
    if (work->fed != nullptr) {
      ++counters_.copies;
      counters_.copied_bytes += work->extent.input;
    }
  }
  command.ready_event =
      has_partner(work->call.collective) ? arguments.pair_stream : work->ready.handle;
  command.request_id = work->request_id;
  command.group_handle = group->handle;
  command.collective = work->call.collective;
  command.tag = work->call.tag;
  command.datatype = static_cast<std::uint8_t>(work->call.datatype);
  command.redop = static_cast<std::uint8_t>(work->call.redop);
  if (work->up_to) command.flags = ipc::CommandEntry::kUpTo;
  command.set_wire(work->call.wire);
  const bool waits = !connection_.dead() && HeldCommands::must_wait(*work);
  if (!waits && connection_.send_command(command, extra, arguments.more)) {
    work->state = gw_work::State::kPosted;
  }
  if (waits && !arguments.more) connection_.ring_if_due();
  if (auto alive = connection_.check_alive(); !alive) {
    works_.release_slot(*work);
    give_up(memory_, *work);
    return tl::unexpected(alive.error());
  }
  work->posted_at = Clock::now();
  work->number = is_transfer(work->call.collective) ? ++group->transfers : ++group->posted;
  works_.await(work);
  ++counters_.ops_posted;
  if (waits) held_.hold(work, command, extra);
  return work;
}

void Client::flush() noexcept {
  const Lock lock(mutex_);
  connection_.ring_if_due();
}

void Client::take_in() {
  const Lock lock(mutex_);
  connection_.drain_for_poller();
}

Result<bool> Client::test(gw_work& work) {
  Lock lock(mutex_);
  connection_.ring_if_due();
  connection_.drain_completions();
  if (!is_over(work) || connection_.poll().is_open()) connection_.drain_control_sometimes();
  works_.report(lock, work);
  if (work.state != gw_work::State::kReported) return false;
  if (auto good = outcome(work); !good) return tl::unexpected(good.error());
  return true;
}

Result<void> Client::wait(gw_work& work, std::chrono::milliseconds timeout,
                          std::optional<void*> stream) {
  const auto start = Clock::now();
  const Deadline deadline = start + timeout;
  if (stream && work.copies) {
    auto plain = work.copies->before->device().check_not_captured(*stream, kWaitElsewhere);
    if (!plain) return plain;
  }
  Lock lock(mutex_);
  connection_.ring_if_due();
  connection_.drain_completions();
  const Deadline spin_end = std::min(deadline, start + connection_.begin_spin());
  while (!is_over(work) && Clock::now() < spin_end) {
    lock.unlock();
    pause_briefly();
    lock.lock();
    connection_.drain_completions();
  }
  if (!is_over(work)) {
    connection_.drain_control_sometimes();
    if (timeout.count() > 0) {
      ++counters_.sleeps;
      connection_.wait_until(lock, deadline, [&work] { return is_over(work); });
    }
  }
  const auto ended = [&]() -> Result<void> {
    works_.report(lock, work);
    return work.copies ? works_.await_return(lock, work, deadline, stream) : outcome(work);
  };
  if (is_over(work)) return ended();
  const double seconds = std::chrono::duration<double>(Clock::now() - work.posted_at).count();
  std::string text = fmt::format("{} is not done {:.3f} s after it was posted; it goes on",
                                 client::describe(work), seconds);
  if (work.state == gw_work::State::kHeld) {
    text += "; its CUDA stream, or that of an op before it, has not come to it yet";
  } else if (timeout.count() > 0) {
    const std::string waits_for = who_is_waited_for(lock, *work.group);
    // The answer took a while, and may be that of a group that has ended since.
    connection_.drain_completions();
    if (is_over(work)) return ended();
    if (!waits_for.empty()) text += fmt::format("; the daemon says: {}", waits_for);
  }
  return fail(ErrorCode::kTimedOut, std::move(text));
}

bool Client::is_reported(const gw_work& work) {
  const Lock lock(mutex_);
  return work.state == gw_work::State::kReported;
}

std::uint64_t Client::op_seq(const gw_work& work) {
  const Lock lock(mutex_);
  return work.op_seq;
}

std::uint64_t Client::moved_bytes(const gw_work& work) {
  const Lock lock(mutex_);
  return work.state == gw_work::State::kReported ? work.moved_bytes : 0;
}

void Client::release(gw_work& work) {
  // The last reference may be `self`: the lock must outlive it, and the client the lock.
  const std::shared_ptr<Client> client = work.client;
  std::shared_ptr<gw_work> last;
  const Lock lock(mutex_);
  // What has come of it, or with it, is taken in here: its handle cannot be asked any more.
  connection_.drain_for_poller();
  last = std::move(work.self);
  works_.release(work);
}

}  // namespace gradwire::client
