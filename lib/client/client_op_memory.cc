// SPDX-License-Identifier: BSD-3-Clause
// What an op of a client reads and writes: finding it in memory that the daemon has, staging what
// lies elsewhere, and the events of a GPU's stream.
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
  const Deadline deadline = Clock::now() + options_.request_timeout;
  const auto is_short = [](const auto& mapping) {
    return !mapping && mapping.error().code == ErrorCode::kResourceExhausted;
  };
  auto mapping = allocate_mapping(lock, wanted);
  for (bool more = true; more && is_short(mapping);) {
    // Some may come back while the daemon is asked.
    const std::uint64_t before = came_back_;
    // Frees memory that is kept for later ops, since this op needs it now.
    for (auto& unused : staging_.drop_cache()) forget_mapping(std::move(unused));
    mapping = allocate_mapping(lock, wanted);
    // What CUDA still copies from, of ops that are over, comes back by itself.
    more = is_short(mapping) && await_leaving(lock, deadline, before);
    if (auto slot = more ? staging_.take(bytes) : std::nullopt) return std::move(*slot);
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
  if (!work.copies && !results_under(work).empty()) {
    return fail(ErrorCode::kBusy,
                "the op's memory overlaps the result of an earlier op, which is still being copied "
                "to the GPU: wait for that op without a stream first");
  }
  return {};
}

std::vector<StreamOp::EventPtr> Client::results_under(const gw_work& work) const {
  std::vector<StreamOp::EventPtr> under;
  for (const LeavingMemory& result : leaving_) {
    if (overlap(work.input, result.output, work.extent.input, result.output_bytes) ||
        overlap(work.output, result.output, work.extent.output, result.output_bytes)) {
      under.push_back(result.until);
    }
  }
  return under;
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
  const bool fits_output = extent.may_be_in_place && extent.output >= extent.input;
  std::uint64_t staged = work.copy_out ? extent.output : 0;
  // Where the output lies if the input is copied, too, and not into it.
  const std::uint64_t behind = extent.may_be_in_place ? extent.in_place_at : extent.input;
  if (copy_in && !fits_output) {
    staged = extent.may_be_in_place ? extent.input : extent.input + staged;
  }
  if (staged != 0) {
    auto slot = take_staging(lock, staged);
    if (!slot) return tl::unexpected(slot.error());
    work.staging = std::move(*slot);
  }
  const std::byte* input = work.input;
  std::byte* output = work.output;
  if (work.copy_out) {
    output = work.staging.address() + (copy_in && !fits_output ? behind : 0);
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

Result<void> Client::place_splits(Lock& lock, gw_work& work, const PostArguments& arguments,
                                  ipc::CommandEntry& command) {
  const std::uint32_t processes = work.group->config.processes().count();
  const Collective collective = work.call.collective;
  const std::uint64_t width = element_bytes(work.call.datatype);
  auto slot = take_staging(lock, ipc::SplitTable::bytes_for(collective, processes));
  if (!slot) return tl::unexpected(slot.error());
  work.splits = std::move(*slot);
  if (work.splits.mapping->on_gpu != nullptr) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{} by counts is not there for gradient memory of a GPU", name_of(collective)));
  }
  auto* const table = reinterpret_cast<ipc::SplitTable*>(work.splits.address());
  *table = {work.extent.input, work.extent.output};
  auto* block = reinterpret_cast<ipc::SplitTable::Block*>(table + 1);
  const auto fill = [&](const std::uint64_t* counts) {
    std::uint64_t offset = 0;
    for (std::uint32_t i = 0; i < processes; ++i) {
      const std::uint64_t bytes = (counts != nullptr ? counts[i] : work.call.count) * width;
      *block++ = {offset, bytes};
      offset += bytes;
    }
  };
  if (collective != Collective::kGather) fill(arguments.input_counts);
  if (collective != Collective::kScatter) fill(arguments.output_counts);
  command.flags = ipc::CommandEntry::kHasSplits;
  command.root = work.splits.mapping->handle;
  command.count = work.splits.offset;
  return {};
}

Result<void> Client::take_event(Lock& lock, gw_work& work) {
  const Mapping* mapping =
      work.output_mapping != nullptr ? work.output_mapping.get() : work.staging.mapping.get();
  if (mapping == nullptr) mapping = work.input_mapping.get();
  // There are no elements, so there is nothing to wait for on the stream.
  if (mapping == nullptr) return {};
  if (mapping->on_gpu == nullptr) {
    work.copies.emplace();
    return {};
  }
  if (is_transfer(work.call.collective)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is not there for gradient memory of a GPU: send from memory of the "
                            "host, or have daemons with gpu.client_memory = \"host\"",
                            name_of(work.call.collective)));
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

Result<void> Client::feed(gw_work& work) {
  if (work.copies) return begin_copies(work);
  if (work.ready.event != nullptr) {
    auto plain = work.ready.event->device().check_not_captured(*work.stream, kPostElsewhere);
    if (!plain) return plain;
  }
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

}  // namespace gradwire::client
