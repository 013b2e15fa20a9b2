// SPDX-License-Identifier: BSD-3-Clause
// Ops of a client: finding their memory, posting, and how they end.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "client/client.h"

namespace gradwire::client {
namespace {

bool overlap(const std::byte* a, const std::byte* b, std::uint64_t a_bytes,
             std::uint64_t b_bytes) noexcept {
  const auto a_start = reinterpret_cast<std::uintptr_t>(a);
  const auto b_start = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes != 0 && b_bytes != 0 && a_start < b_start + b_bytes && b_start < a_start + a_bytes;
}

void pause_briefly() noexcept {
  for (int i = 0; i < 32; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

/// Counts an op once for each memory that it uses.
void count_user(gw_work& work, int change) noexcept {
  Mapping* const input = work.input_mapping.get();
  Mapping* const output = work.output_mapping.get();
  if (input != nullptr) input->users += static_cast<std::uint32_t>(change);
  if (output != nullptr && output != input) output->users += static_cast<std::uint32_t>(change);
}

/// @return the end of the sentence "..., or ..." about ops in place. The extents alone tell the
/// collectives apart.
const char* in_place_rule(const CollectiveExtent& extent) noexcept {
  if (extent.output > extent.input) {
    return "the input must be this process's own block of the output";
  }
  if (extent.output < extent.input) {
    return "the output must be this process's own block of the input";
  }
  return "be the same memory";
}

bool is_over(const gw_work& work) noexcept {
  return work.state == gw_work::State::kFinished || work.state == gw_work::State::kReported;
}

}  // namespace

Result<std::shared_ptr<Mapping>> Client::allocate_mapping(Lock& lock, std::uint64_t bytes) {
  ipc::AllocateRequest body;
  body.bytes = bytes;
  const Deadline deadline = Clock::now() + options_.request_timeout;
  auto request = begin_request(lock, ipc::MessageType::kAllocate, ipc::bytes_of(body), deadline,
                               [this](ipc::Message& reply, bool abandoned) {
                                 const auto got = ipc::allocate_reply(reply.body);
                                 if (abandoned && got) forget_memory(got->memory);
                               });
  if (!request) return tl::unexpected(request.error());
  if (auto done = await_request(lock, *request, deadline, true); !done) {
    return tl::unexpected(done.error());
  }
  return map_reply((*request)->reply);
}

Result<StagingSlot> Client::take_staging(Lock& lock, std::uint64_t bytes) {
  if (auto slot = staging_.take(bytes)) return std::move(*slot);
  const std::uint64_t wanted = StagingPool::allocation_bytes(bytes);
  auto mapping = allocate_mapping(lock, wanted);
  if (!mapping && mapping.error().code == ErrorCode::kResourceExhausted) {
    // Frees memory that is kept for later ops, since this op needs it now.
    for (auto& unused : staging_.drop_cache()) forget_mapping(std::move(unused));
    mapping = allocate_mapping(lock, wanted);
  }
  if (!mapping) {
    return fail(mapping.error().code,
                fmt::format("no shared memory to copy an op of {} bytes through: {}", bytes,
                            mapping.error().message));
  }
  return staging_.adopt(std::move(*mapping), bytes);
}

void Client::give_back_staging(StagingSlot slot) {
  if (slot.mapping == nullptr) return;
  std::shared_ptr<Mapping> surplus = staging_.give_back(std::move(slot));
  if (surplus != nullptr) forget_mapping(std::move(surplus));
}

Result<std::shared_ptr<Mapping>> Client::find_shared(const std::byte* start, std::uint64_t bytes,
                                                     const char* what) const {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  auto it = shared_memory_.upper_bound(address);
  if (it == shared_memory_.begin()) return std::shared_ptr<Mapping>{};
  --it;
  const Mapping& mapping = *it->second;
  const std::uint64_t offset = address - it->first;
  if (offset >= mapping.bytes) return std::shared_ptr<Mapping>{};
  if (bytes > mapping.bytes - offset) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the {} needs {} bytes and starts {} bytes before the end of its shared "
                    "memory",
                    what, bytes, mapping.bytes - offset));
  }
  return it->second;
}

Result<void> Client::check_overlap(const gw_work& work) const {
  const auto collides = [&work](const gw_work* other) {
    if (other == &work) return false;
    const CollectiveExtent& ours = work.extent;
    const CollectiveExtent& theirs = other->extent;
    return overlap(work.output, other->output, ours.output, theirs.output) ||
           overlap(work.output, other->input, ours.output, theirs.input) ||
           overlap(work.input, other->output, ours.input, theirs.output);
  };
  for (const auto* works : {&in_flight_, &uncopied_}) {
    const auto it = std::find_if(works->begin(), works->end(), collides);
    if (it == works->end()) continue;
    return fail(
        ErrorCode::kBusy,
        fmt::format("the op's memory overlaps that of {}, which is not done: wait for that first",
                    describe(**it)));
  }
  return {};
}

Result<void> Client::place_memory(Lock& lock, gw_work& work, ipc::CommandEntry& command) {
  const CollectiveExtent& extent = work.extent;
  if (extent.input != 0) {
    auto mapping = find_shared(work.input, extent.input, "input");
    if (!mapping) return tl::unexpected(mapping.error());
    work.input_mapping = std::move(*mapping);
  }
  if (extent.output != 0) {
    auto mapping = find_shared(work.output, extent.output, "output");
    if (!mapping) return tl::unexpected(mapping.error());
    work.output_mapping = std::move(*mapping);
  }
  const bool copy_in = extent.input != 0 && work.input_mapping == nullptr;
  work.copy_out = extent.output != 0 && work.output_mapping == nullptr;
  // An input that has to be copied goes into the output's memory, if it fits, so that the op runs
  // in place.
  const bool fits_output = extent.output >= extent.input;
  std::uint64_t staged = work.copy_out ? extent.output : 0;
  if (copy_in && !fits_output) staged = extent.input;
  if (staged != 0) {
    auto slot = take_staging(lock, staged);
    if (!slot) return tl::unexpected(slot.error());
    work.staging = std::move(*slot);
  }
  const std::byte* input = work.input;
  std::byte* output = work.output;
  if (work.copy_out) {
    output = work.staging.address() + (copy_in && !fits_output ? extent.in_place_at : 0);
    work.result = output;
  }
  if (copy_in) {
    work.fed = fits_output ? output + extent.in_place_at : work.staging.address();
    input = work.fed;
  }
  const auto tell = [&work](const std::byte* start, const Mapping* shared, std::uint32_t& memory,
                            std::uint64_t& offset) {
    const Mapping& mapping = shared != nullptr ? *shared : *work.staging.mapping;
    memory = mapping.handle;
    offset = static_cast<std::uint64_t>(start - mapping.address);
  };
  const Mapping* const fed_in =
      work.staging.mapping != nullptr ? nullptr : work.output_mapping.get();
  if (extent.input != 0) {
    tell(input, copy_in ? fed_in : work.input_mapping.get(), command.input_memory,
         command.input_offset);
  }
  if (extent.output != 0) {
    tell(output, work.output_mapping.get(), command.output_memory, command.output_offset);
  }
  return {};
}

Result<void> Client::take_event(Lock& lock, gw_work& work) {
  const Mapping* mapping =
      work.output_mapping != nullptr ? work.output_mapping.get() : work.staging.mapping.get();
  if (mapping == nullptr) mapping = work.input_mapping.get();
  // There are no elements, so there is nothing to wait for on the stream.
  if (mapping == nullptr) return {};
  if (mapping->on_gpu == nullptr) {
    return fail(ErrorCode::kUnsupported,
                "the daemon's gradient memory is the host's, so its ops cannot follow a CUDA "
                "stream: copy the input there, wait for the stream, and call gw_all_reduce(); or "
                "set gpu.client_memory = gpu in the daemon's configuration");
  }
  if (!free_events_.empty()) {
    work.ready = std::move(free_events_.back());
    free_events_.pop_back();
    return {};
  }
  const Deadline deadline = Clock::now() + options_.request_timeout;
  auto request = begin_request(lock, ipc::MessageType::kMakeEvent, {}, deadline);
  if (!request) return tl::unexpected(request.error());
  if (auto done = await_request(lock, *request, deadline, true); !done) {
    return tl::unexpected(done.error());
  }
  const auto reply = ipc::body_as<ipc::MakeEventReply>((*request)->reply.body);
  if (!reply || reply->event == 0) {
    return fail(ErrorCode::kInternal,
                "the daemon's answer to 'make-event' makes no sense: it names no event");
  }
  gpu::CuIpcHandle handle;
  std::memcpy(handle.bytes, reply->handle, sizeof handle.bytes);
  auto event = mapping->on_gpu->device().import_event(handle);
  if (!event) return tl::unexpected(event.error());
  work.ready.handle = reply->event;
  work.ready.event = std::move(*event);
  return {};
}

Result<void> Client::feed(const gw_work& work) {
  if (work.fed != nullptr) {
    const Mapping& mapping =
        work.staging.mapping != nullptr ? *work.staging.mapping : *work.output_mapping;
    const std::uint64_t bytes = work.extent.input;
    const Result<void> copied =
        work.stream ? mapping.on_gpu->device().copy_on(*work.stream, work.fed, work.input, bytes)
                    : mapping.copy(work.fed, work.input, bytes);
    if (!copied) return copied;
  }
  return work.ready.event != nullptr ? work.ready.event->record(*work.stream) : Result<void>{};
}

void Client::give_back_event(ReadyEvent ready) {
  if (ready.event != nullptr) free_events_.push_back(std::move(ready));
}

Result<void> Client::claim_slot(const std::shared_ptr<gw_work>& work) {
  if (auto alive = check_alive(); !alive) return alive;
  if (auto apart = check_overlap(*work); !apart) return apart;
  if (free_slots_.empty()) {
    return fail(ErrorCode::kBusy,
                fmt::format("{} ops are unfinished, and more are not allowed: wait for one of them",
                            GW_MAX_OUTSTANDING));
  }
  const std::uint16_t index = free_slots_.back();
  free_slots_.pop_back();
  work->request_id = next_sequence_++ * GW_MAX_OUTSTANDING + index;
  slots_[index] = work;
  work->in_flight_index = in_flight_.size();
  in_flight_.push_back(work.get());
  count_user(*work, 1);
  return {};
}

void Client::release_slot(gw_work& work) {
  const auto index = static_cast<std::uint16_t>(work.request_id % GW_MAX_OUTSTANDING);
  in_flight_[work.in_flight_index] = in_flight_.back();
  in_flight_[work.in_flight_index]->in_flight_index = work.in_flight_index;
  in_flight_.pop_back();
  count_user(work, -1);
  free_slots_.push_back(index);
  slots_[index].reset();
}

Result<std::shared_ptr<gw_work>> Client::make_work(const gw_group& group,
                                                   const PostArguments& arguments) {
  const CollectiveCall& call = arguments.call;
  const GroupConfig& config = group.config;
  const ProcessPlace place{config.process(), config.processes().count()};
  if (call.root >= place.processes) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("root of {} is {}: it must be one of the group's {} processes, 0 to "
                    "{}",
                    name_of(call.collective), call.root, place.processes, place.processes - 1));
  }
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 47;
  const auto extent = extent_of(call, place);
  if (!extent || std::max(extent->input, extent->output) > kMaxBytes) {
    const auto whole = whole_count(call, place.processes);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} elements of {}{} are more than an op can have: 2^47 bytes",
                            call.count, name_of(call.datatype),
                            !whole || *whole != call.count
                                ? fmt::format(" for each of {} processes", place.processes)
                                : std::string{}));
  }
  if (extent->input != 0 && arguments.input == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "input is NULL");
  }
  if (extent->output != 0 && arguments.output == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "output is NULL");
  }
  auto work = std::make_shared<gw_work>();
  work->call = call;
  work->extent = *extent;
  work->input = extent->input != 0 ? arguments.input : nullptr;
  work->output = extent->output != 0 ? arguments.output : nullptr;
  work->stream = arguments.stream;
  if (!may_lie(reinterpret_cast<std::uintptr_t>(work->input),
               reinterpret_cast<std::uintptr_t>(work->output), *extent)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("input and output of {} overlap in part: they must have no memory in "
                            "common, or {}",
                            name_of(call.collective), in_place_rule(*extent)));
  }
  return work;
}

Result<std::shared_ptr<gw_work>> Client::post(const std::shared_ptr<gw_group>& group,
                                              const PostArguments& arguments) {
  auto made = make_work(*group, arguments);
  if (!made) return made;
  const std::shared_ptr<gw_work> work = std::move(*made);
  work->client = shared_from_this();
  work->group = group;

  Lock lock(mutex_);
  if (auto alive = check_alive(); !alive) return tl::unexpected(alive.error());
  drain_completions();
  drain_control_sometimes();
  if (group->aborted) return fail(ErrorCode::kAborted, group->abort_text);
  if (group->left) return fail(ErrorCode::kInvalidArgument, "the group has been left");

  ipc::CommandEntry command;
  if (auto placed = place_memory(lock, *work, command); !placed) {
    return tl::unexpected(placed.error());
  }
  Result<void> claimed = work->stream ? take_event(lock, *work) : Result<void>{};
  if (claimed) claimed = claim_slot(work);
  if (!claimed) {
    give_back_staging(std::move(work->staging));
    give_back_event(std::move(work->ready));
    return tl::unexpected(claimed.error());
  }
  if (work->fed != nullptr || work->ready.event != nullptr) {
    lock.unlock();
    const Result<void> fed = feed(*work);
    lock.lock();
    if (!fed) {
      release_slot(*work);
      give_back_staging(std::move(work->staging));
      give_back_event(std::move(work->ready));
      return tl::unexpected(fed.error());
    }
    if (work->fed != nullptr) {
      ++counters_.copies;
      counters_.copied_bytes += work->extent.input;
    }
  }
  command.ready_event = work->ready.handle;
  command.request_id = work->request_id;
  command.group_handle = group->handle;
  command.collective = work->call.collective;
  command.count = work->call.count;
  command.tag = work->call.tag;
  command.datatype = static_cast<std::uint8_t>(work->call.datatype);
  command.redop = static_cast<std::uint8_t>(work->call.redop);
  command.root = work->call.root;
  // The queue has room for as many commands as there are slots. If it is full all the same, the
  // daemon's index is wrong.
  if (!dead_ && !queue_.push_command(command, arguments.factor)) {
    die(ErrorCode::kUnavailable, fmt::format("the daemon at {} wrote an impossible index into the "
                                             "shared queue: the connection is closed",
                                             path_));
  }
  if (auto alive = check_alive(); !alive) {
    release_slot(*work);
    give_back_staging(std::move(work->staging));
    give_back_event(std::move(work->ready));
    return tl::unexpected(alive.error());
  }
  work->state = gw_work::State::kPosted;
  work->posted_at = Clock::now();
  work->number = ++group->posted;
  work->self = work;
  ++counters_.ops_posted;
  if (queue_.daemon_sleeps()) {
    ++counters_.doorbells;
    const std::uint64_t one = 1;
    // If there is no room, enough rings are waiting there already.
    (void)!::send(doorbell_fd_.get(), &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  return work;
}

void Client::finish(gw_work& work, ErrorCode code, std::string text, std::uint64_t op_seq) {
  const std::shared_ptr<gw_work> keep = slots_[work.request_id % GW_MAX_OUTSTANDING];
  release_slot(work);
  give_back_event(std::move(work.ready));
  work.code = code;
  work.text = std::move(text);
  work.op_seq = op_seq;
  if (code == ErrorCode::kOk) {
    ++counters_.ops_done;
  } else {
    ++counters_.ops_failed;
    work.copy_out = false;
    if (code == ErrorCode::kAborted) mark_aborted(*work.group, work.text);
  }
  if (work.self == nullptr) work.copy_out = false;
  if (!work.copy_out) give_back_staging(std::move(work.staging));
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
    if (work->state == gw_work::State::kPosted) finish(*work, code, text, 0);
  }
}

void Client::report(Lock& lock, gw_work& work) {
  if (work.state != gw_work::State::kFinished) return;
  if (work.copy_out) {
    work.state = gw_work::State::kCopying;
    lock.unlock();
    const Result<void> copied =
        work.staging.mapping->copy(work.output, work.result, work.extent.output);
    lock.lock();
    std::erase(uncopied_, &work);
    if (copied) {
      ++counters_.copies;
      counters_.copied_bytes += work.extent.output;
    } else {
      work.code = copied.error().code;
      work.text = copied.error().message;
    }
    give_back_staging(std::move(work.staging));
  }
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
  return fmt::format("{} {} of rank {} in group {:016x} epoch {} ({}tag {})",
                     name_of(call.collective), work.number, group.rank, group.key.group_id,
                     group.key.epoch, what, call.tag);
}

Result<bool> Client::test(gw_work& work) {
  Lock lock(mutex_);
  drain_completions();
  if (!is_over(work)) drain_control_sometimes();
  report(lock, work);
  if (work.state != gw_work::State::kReported) return false;
  if (auto good = outcome(work); !good) return tl::unexpected(good.error());
  return true;
}

Result<void> Client::wait(gw_work& work, std::chrono::milliseconds timeout) {
  const auto start = Clock::now();
  const Deadline deadline = start + timeout;
  const Deadline spin_end = std::min(deadline, start + options_.spin);
  Lock lock(mutex_);
  drain_completions();
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
  if (is_over(work)) {
    report(lock, work);
    return outcome(work);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - work.posted_at).count();
  std::string text = fmt::format("{} is not done {:.3f} s after it was posted; it goes on",
                                 describe(work), seconds);
  if (timeout.count() > 0) {
    const std::string waits_for = who_is_waited_for(lock, *work.group);
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
  last = std::move(work.self);
  if (work.unreported) {
    work.unreported = false;
    remove_unreported();
  }
  if (work.state == gw_work::State::kFinished) {
    std::erase(uncopied_, &work);
    give_back_staging(std::move(work.staging));
    work.state = gw_work::State::kReported;
  }
}

}  // namespace gradwire::client
