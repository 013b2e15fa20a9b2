// SPDX-License-Identifier: BSD-3-Clause
#include "client/works.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

namespace gradwire::client {
namespace {

using namespace std::chrono_literals;

/// Counts an op once for each memory that it uses.
void count_user(gw_work& work, int change) noexcept {
  const std::array<Mapping*, 4> uses = {work.input_mapping.get(), work.output_mapping.get(),
                                        work.residual_in_mapping.get(),
                                        work.residual_out_mapping.get()};
  for (auto use = uses.begin(); use != uses.end(); ++use) {
    if (*use == nullptr || std::find(uses.begin(), use, *use) != use) continue;
    (*use)->users += static_cast<std::uint32_t>(change);
  }
}

/// Whether one of the two writes where the other reads or writes.
bool share_memory(const gw_work& a, const gw_work& b) noexcept {
  struct Use {
    const std::byte* at;
    std::uint64_t bytes;
  };
  const auto reads = [](const gw_work& work) {
    return std::array{Use{work.input, work.extent.input},
                      Use{work.residual_in, work.residual_bytes}};
  };
  const auto writes = [](const gw_work& work) {
    return std::array{Use{work.output, work.extent.output},
                      Use{work.residual_out, work.residual_bytes}};
  };
  const auto any = [](const std::array<Use, 2>& ours, const std::array<Use, 2>& theirs) {
    return std::any_of(ours.begin(), ours.end(), [&](const Use& our) {
      return std::any_of(theirs.begin(), theirs.end(), [&](const Use& their) {
        return overlap(our.at, their.at, our.bytes, their.bytes);
      });
    });
  };
  return any(writes(a), writes(b)) || any(writes(a), reads(b)) || any(reads(a), writes(b));
}

}  // namespace

std::string describe(const gw_work& work) {
  const GroupConfig& group = work.group->config;
  const CollectiveCall& call = work.call;
  std::string what;
  if (reduces(call.collective)) what += fmt::format("{} of ", name_of(call.redop));
  if (call.collective != Collective::kBarrier) {
    what += fmt::format("{} {}, {} bytes, ", call.count, name_of(call.datatype),
                        std::max(work.extent.input, work.extent.output));
    if (call.wire != WireFormat::kSame) what += fmt::format("as {}, ", name_of(call.wire));
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

Result<void> outcome(const gw_work& work) {
  if (work.code == ErrorCode::kOk) return {};
  return fail(work.code,
              work.text.empty() ? "the op failed, and the daemon did not say why" : work.text);
}

Works::Works(Connection& connection, DaemonMemory& memory, const Groups& groups, Counters& counters)
    : connection_(connection), memory_(memory), groups_(groups), counters_(counters) {
  for (std::uint16_t i = 0; i < GW_MAX_TRANSFERS; ++i) {
    free_transfer_slots_.push_back(static_cast<std::uint16_t>(kSlots - 1 - i));
  }
  for (std::uint16_t i = 0; i < GW_MAX_OUTSTANDING; ++i) {
    free_slots_.push_back(static_cast<std::uint16_t>(GW_MAX_OUTSTANDING - 1 - i));
  }
  in_flight_.reserve(kSlots);
}

Result<void> Works::check_overlap(const gw_work& work) const {
  const auto collides = [&work](const gw_work* other) {
    return other != &work && share_memory(work, *other);
  };
  for (const auto* works : {&in_flight_, &uncopied_}) {
    const auto it = std::find_if(works->begin(), works->end(), collides);
    if (it == works->end()) continue;
    return fail(
        ErrorCode::kBusy,
        fmt::format("the op's memory overlaps that of {}, which is not done: wait for that first",
                    describe(**it)));
  }
  if (!work.copies && !memory_.results_under(work).empty()) {
    return fail(ErrorCode::kBusy,
                "the op's memory overlaps the result of an earlier op, which is still being copied "
                "to the GPU: wait for that op without a stream first");
  }
  return {};
}

Result<void> Works::claim(const std::shared_ptr<gw_work>& work) {
  if (auto alive = connection_.check_alive(); !alive) return alive;
  if (auto apart = check_overlap(*work); !apart) return apart;
  const bool transfers = is_transfer(work->call.collective);
  std::vector<std::uint16_t>& free = transfers ? free_transfer_slots_ : free_slots_;
  if (free.empty()) {
    return fail(ErrorCode::kBusy,
                transfers
                    ? fmt::format("{} sends, receives, all-to-alls, gathers and scatters are "
                                  "unfinished, and more are not allowed: wait for one of them",
                                  GW_MAX_TRANSFERS)
                    : fmt::format("{} ops are unfinished, and more are not allowed: wait for one "
                                  "of them",
                                  GW_MAX_OUTSTANDING));
  }
  const std::uint16_t index = free.back();
  free.pop_back();
  work->request_id = next_sequence_++ * kSlots + index;
  slots_[index] = work;
  work->in_flight_index = in_flight_.size();
  in_flight_.push_back(work.get());
  count_user(*work, 1);
  return {};
}

void Works::release_slot(gw_work& work) {
  const auto index = static_cast<std::uint16_t>(work.request_id % kSlots);
  in_flight_[work.in_flight_index] = in_flight_.back();
  in_flight_[work.in_flight_index]->in_flight_index = work.in_flight_index;
  in_flight_.pop_back();
  count_user(work, -1);
  (index < GW_MAX_OUTSTANDING ? free_slots_ : free_transfer_slots_).push_back(index);
  slots_[index].reset();
}

void Works::await(const std::shared_ptr<gw_work>& work) {
  work->self = work;
  work->awaited = true;
  ++awaited_;
  choose_sources();
}

gw_work* Works::posted(std::uint64_t request_id) const noexcept {
  gw_work* const work = slots_[request_id % kSlots].get();
  const bool awaited =
      work != nullptr && work->request_id == request_id && work->state == gw_work::State::kPosted;
  return awaited ? work : nullptr;
}

void Works::finish(gw_work& work, ErrorCode code, std::string text, std::uint64_t op_seq) {
  const std::shared_ptr<gw_work> keep = slots_[work.request_id % kSlots];
  release_slot(work);
  stop_awaiting(work);
  memory_.give_back(std::move(work.splits));
  memory_.give_back(std::move(work.ready));
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
  if (work.self == nullptr || written_bytes(work) == 0) work.copy_out = false;
  if (!work.copy_out) memory_.drop_staging(work);
  if (work.self == nullptr) {
    work.state = gw_work::State::kReported;
    return;
  }
  work.state = gw_work::State::kFinished;
  if (work.copy_out) uncopied_.push_back(&work);
  work.unreported = true;
  connection_.poll().add_unreported();
}

void Works::fail_all(ErrorCode code, const std::string& text) {
  const std::vector<gw_work*> works = in_flight_;
  for (gw_work* work : works) {
    // A work that is still being posted belongs to the posting thread, which finishes it.
    if (work->state != gw_work::State::kPosting) finish(*work, code, text, 0);
  }
}

void Works::mark_aborted(gw_group& group, std::string text) {
  if (group.aborted) return;
  group.aborted = true;
  group.abort_unreported = !group.freed;
  if (group.abort_unreported) connection_.poll().add_unreported();
  group.abort_text = text.empty() ? "the group was aborted" : std::move(text);
}

void Works::report_abort(gw_group& group) {
  if (!group.abort_unreported) return;
  group.abort_unreported = false;
  connection_.poll().remove_unreported();
}

void Works::report(Lock& lock, gw_work& work) {
  if (work.state == gw_work::State::kReturning) return settle_return(work);
  if (work.state != gw_work::State::kFinished) return;
  if (work.copy_out) {
    work.state = gw_work::State::kCopying;
    lock.unlock();
    Mapping& mapping = *work.staging.mapping;
    const Result<void> copied =
        work.copies
            ? work.group->copies_of(work.call.collective)
                  .bring_back(*work.copies, work.output, work.result, mapping, written_bytes(work))
            : mapping.copy(work.output, work.result, written_bytes(work));
    lock.lock();
    if (copied && work.copies) {
      work.state = gw_work::State::kReturning;
      // From here on each thread that waits for it looks at the stream itself.
      connection_.wake_all();
      return settle_return(work);
    }
    end_copy(work, copied);
  }
  conclude(work);
}

void Works::end_copy(gw_work& work, const Result<void>& copied) {
  std::erase(uncopied_, &work);
  if (copied) {
    ++counters_.copies;
    counters_.copied_bytes += written_bytes(work);
  } else {
    work.code = copied.error().code;
    work.text = fmt::format("the result of {} cannot be copied to where it belongs: {}",
                            describe(work), copied.error().message);
  }
  memory_.drop_staging(work);
}

void Works::conclude(gw_work& work) {
  work.state = gw_work::State::kReported;
  work.unreported = false;
  connection_.poll().remove_unreported();
  if (work.code == ErrorCode::kAborted) report_abort(*work.group);
  connection_.wake_all();
}

void Works::settle_return(gw_work& work) {
  const auto passed = work.copies->back->has_passed();
  if (passed && !*passed) return;
  end_copy(work, passed ? Result<void>{} : tl::unexpected(passed.error()));
  conclude(work);
}

Result<void> Works::await_return(Lock& lock, gw_work& work, Deadline deadline,
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
    pause = std::min<std::chrono::microseconds>(2 * pause, kStreamPauseMost);
    lock.lock();
  }
  return outcome(work);
}

void Works::release(gw_work& work) {
  stop_awaiting(work);
  if (work.unreported) {
    work.unreported = false;
    connection_.poll().remove_unreported();
  }
  if (work.state == gw_work::State::kFinished || work.state == gw_work::State::kReturning) {
    std::erase(uncopied_, &work);
    memory_.drop_staging(work);
    work.state = gw_work::State::kReported;
  }
}

void Works::stop_awaiting(gw_work& work) noexcept {
  if (!work.awaited) return;
  work.awaited = false;
  --awaited_;
  choose_sources();
}

void Works::choose_sources() noexcept {
  CompletionPoll& poll = connection_.poll();
  if (!poll.is_open()) return;
  // If all unfinished ops are freed, their ends are nobody's. Without an unfinished op nothing
  // comes, and the next one decides.
  const bool all_freed = awaited_ == 0 && (!in_flight_.empty() || !poll.sees_completions());
  // Of a client without groups there are answers to what it sent and did not wait for.
  poll.choose(!all_freed, !groups_.empty());
}

}  // namespace gradwire::client
