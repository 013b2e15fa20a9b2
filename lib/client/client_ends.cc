// SPDX-License-Identifier: BSD-3-Clause
// How ops of a client end: by an answer, by an error, and who waits for them.
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>

#include "client/client.h"

namespace gradwire::client {
namespace {

void pause_briefly() noexcept {
  for (int i = 0; i < 32; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

bool is_over(const gw_work& work) noexcept {
  return work.state == gw_work::State::kFinished || work.state == gw_work::State::kReturning ||
         work.state == gw_work::State::kReported;
}

}  // namespace

void Client::finish(gw_work& work, ErrorCode code, std::string text, std::uint64_t op_seq) {
  const std::shared_ptr<gw_work> keep = slots_[work.request_id % kSlots];
  release_slot(work);
  stop_awaiting(work);
  give_back_staging(std::move(work.splits));
  give_back_event(std::move(work.ready));
  work.code = code;
  work.text = std::move(text);
  work.op_seq = op_seq;
  // The daemon may hear of the end of the group before it reads the command.
  if (code == ErrorCode::kNotFound && work.group->left) {
    work.code = code = ErrorCode::kAborted;
    work.text = "the group was left before the op was finished";
  }
  if (code == ErrorCode::kOk) {
    ++counters_.ops_done;
  } else {
    ++counters_.ops_failed;
    work.copy_out = false;
    if (code == ErrorCode::kAborted) mark_aborted(*work.group, work.text);
  }
  if (work.self == nullptr) work.copy_out = false;
  if (!work.copy_out) drop_staging(work);
  if (work.self == nullptr) {
    work.state = gw_work::State::kReported;
    return;
  }
  work.state = gw_work::State::kFinished;
  if (work.copy_out) uncopied_.push_back(&work);
  work.unreported = true;
  add_unreported();
}

void Client::fail_all_work(ErrorCode code, const std::string& text) {
  const std::vector<gw_work*> works = in_flight_;
  for (gw_work* work : works) {
    // A work that is still being posted belongs to the posting thread, which finishes it.
    if (work->state != gw_work::State::kPosting) finish(*work, code, text, 0);
  }
}

void Client::report(Lock& lock, gw_work& work) {
  if (work.state == gw_work::State::kReturning) return settle_return(work);
  if (work.state != gw_work::State::kFinished) return;
  if (work.copy_out) {
    work.state = gw_work::State::kCopying;
    lock.unlock();
    Mapping& mapping = *work.staging.mapping;
    const Result<void> copied =
        work.copies
            ? work.group->copies_of(work.call.collective)
                  .bring_back(*work.copies, work.output, work.result, mapping, work.extent.output)
            : mapping.copy(work.output, work.result, work.extent.output);
    lock.lock();
    if (copied && work.copies) {
      work.state = gw_work::State::kReturning;
      // From here on each thread that waits for it looks at the stream itself.
      changed_.notify_all();
      wake_leader();
      return settle_return(work);
    }
    end_copy(work, copied);
  }
  conclude(work);
}

void Client::end_copy(gw_work& work, const Result<void>& copied) {
  std::erase(uncopied_, &work);
  if (copied) {
    ++counters_.copies;
    counters_.copied_bytes += work.extent.output;
  } else {
    work.code = copied.error().code;
    work.text = fmt::format("the result of {} cannot be copied to where it belongs: {}",
                            describe(work), copied.error().message);
  }
  drop_staging(work);
}

void Client::conclude(gw_work& work) {
  work.state = gw_work::State::kReported;
  work.unreported = false;
  remove_unreported();
  if (work.code == ErrorCode::kAborted && work.group->abort_unreported) {
    work.group->abort_unreported = false;
    remove_unreported();
  }
  changed_.notify_all();
  wake_leader();
}

Result<void> Client::outcome(const gw_work& work) {
  if (work.code == ErrorCode::kOk) return {};
  return fail(work.code,
              work.text.empty() ? "the op failed, and the daemon did not say why" : work.text);
}

std::string Client::describe(const gw_work& work) const {
  const GroupConfig& group = work.group->config;
  const CollectiveCall& call = work.call;
  std::string what;
  if (reduces(call.collective)) what += fmt::format("{} of ", name_of(call.redop));
  if (call.collective != Collective::kBarrier) {
    what += fmt::format("{} {}, {} bytes, ", call.count, name_of(call.datatype),
                        std::max(work.extent.input, work.extent.output));
  }
  if (has_root(call.collective)) what += fmt::format("root {}, ", call.root);
  if (has_partner(call.collective)) {
    what += fmt::format("{} process {} at rank {}, ",
                        call.collective == Collective::kSend ? "to" : "from", call.root,
                        group.processes().rank_of(call.root));
  }
  return fmt::format("{} {} of rank {} in group {:016x} epoch {} ({}tag {})",
                     name_of(call.collective), work.number, group.rank, group.key.group_id,
                     group.key.epoch, what, call.tag);
}

Result<bool> Client::test(gw_work& work) {
  Lock lock(mutex_);
  ring_if_due();
  drain_completions();
  if (!is_over(work) || epoll_fd_) drain_control_sometimes();
  report(lock, work);
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
  ring_if_due();
  drain_completions();
  const bool on_lane_core = region_ != nullptr && queue_.lane_core() == ::sched_getcpu();
  const Deadline spin_end = std::min(deadline, start + wait_policy_.begin(on_lane_core));
  while (!is_over(work) && Clock::now() < spin_end) {
    lock.unlock();
    pause_briefly();
    lock.lock();
    drain_completions();
  }
  if (!is_over(work)) {
    drain_control_sometimes();
    if (timeout.count() > 0) {
      ++counters_.sleeps;
      wait_until(lock, deadline, [&work] { return is_over(work); });
    }
  }
  const auto ended = [&]() -> Result<void> {
    report(lock, work);
    return work.copies ? await_return(lock, work, deadline, stream) : outcome(work);
  };
  if (is_over(work)) return ended();
  const double seconds = std::chrono::duration<double>(Clock::now() - work.posted_at).count();
  std::string text = fmt::format("{} is not done {:.3f} s after it was posted; it goes on",
                                 describe(work), seconds);
  if (work.state == gw_work::State::kHeld) {
    text += "; its CUDA stream, or that of an op before it, has not come to it yet";
  } else if (timeout.count() > 0) {
    const std::string waits_for = who_is_waited_for(lock, *work.group);
    // The answer took a while, and may be that of a group that has ended since.
    drain_completions();
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

void Client::release(gw_work& work) {
  // The last reference may be `self`: the lock must outlive it, and the client the lock.
  const std::shared_ptr<Client> client = work.client;
  std::shared_ptr<gw_work> last;
  const Lock lock(mutex_);
  // What has come of it, or with it, is taken in here: its handle cannot be asked any more.
  look_for_poller();
  last = std::move(work.self);
  stop_awaiting(work);
  if (work.unreported) {
    work.unreported = false;
    remove_unreported();
  }
  if (work.state == gw_work::State::kFinished || work.state == gw_work::State::kReturning) {
    std::erase(uncopied_, &work);
    drop_staging(work);
    work.state = gw_work::State::kReported;
  }
}

}  // namespace gradwire::client
