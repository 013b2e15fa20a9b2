// SPDX-License-Identifier: BSD-3-Clause
// What an op reads and writes: finding it in memory that the daemon has, and staging what lies
// elsewhere.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "client/op_request.h"

namespace gradwire::client {
namespace {

Result<void> place_memory(DaemonMemory& memory, Lock& lock, gw_work& work,
                          ipc::CommandEntry& command) {
  const CollectiveExtent& extent = work.extent;
  if (extent.input != 0) {
    auto mapping = memory.find(work.input, extent.input, "input");
    if (!mapping) return tl::unexpected(mapping.error());
    work.input_mapping = std::move(*mapping);
  }
  if (extent.output != 0) {
    auto mapping = memory.find(work.output, extent.output, "output");
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
    auto slot = memory.take_staging(lock, staged);
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
  const auto tell = [&work](const std::byte* start, const Mapping* shared, std::uint32_t& handle,
                            std::uint64_t& offset) {
    const Mapping& mapping = shared != nullptr ? *shared : *work.staging.mapping;
    handle = mapping.handle;
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

/// The table of a call with splits.
Result<void> place_splits(DaemonMemory& memory, Lock& lock, gw_work& work,
                          const PostArguments& arguments, ipc::CommandEntry& command) {
  const std::uint32_t processes = work.group->config.processes().count();
  const Collective collective = work.call.collective;
  const std::uint64_t width = element_bytes(work.call.datatype);
  auto slot = memory.take_staging(lock, ipc::SplitTable::bytes_for(collective, processes));
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

/// Where the rank's residuals lie, which are never copied.
Result<void> place_residuals(DaemonMemory& memory, gw_work& work, ipc::CommandEntry& command,
                             ipc::CommandExtra& extra) {
  const std::uint64_t bytes = work.residual_bytes;
  const auto find = [&](const std::byte* at, const char* name, std::uint32_t& handle,
                        std::uint64_t& offset) -> Result<std::shared_ptr<Mapping>> {
    auto mapping = memory.find(at, bytes, name);
    if (!mapping) return mapping;
    if (*mapping == nullptr || (*mapping)->on_gpu != nullptr) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is not in memory of the host that gw_memory_alloc() gave: the "
                              "daemon reads and writes it where it lies",
                              name));
    }
    handle = (*mapping)->handle;
    offset = static_cast<std::uint64_t>(at - (*mapping)->address);
    return mapping;
  };
  auto out =
      find(work.residual_out, "residual_out", extra.residual_out_memory, extra.residual_out_offset);
  if (!out) return tl::unexpected(out.error());
  if (work.residual_in != nullptr) {
    auto in =
        find(work.residual_in, "residual_in", extra.residual_in_memory, extra.residual_in_offset);
    if (!in) return tl::unexpected(in.error());
    work.residual_in_mapping = std::move(*in);
  }
  work.residual_out_mapping = std::move(*out);
  if (work.group->config.ring_ranks() > 1) command.flags |= ipc::CommandEntry::kHasResiduals;
  return {};
}

Result<void> begin_copies(gw_work& work) {
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

}  // namespace

void keep_residuals(gw_work& work) noexcept {
  if (work.residual_out == nullptr || work.group->config.ring_ranks() > 1) return;
  if (work.residual_in != nullptr) {
    std::memmove(work.residual_out, work.residual_in, work.residual_bytes);
  } else {
    std::memset(work.residual_out, 0, work.residual_bytes);
  }
}

Result<void> place(DaemonMemory& memory, Lock& lock, gw_work& work, const PostArguments& arguments,
                   ipc::CommandEntry& command, ipc::CommandExtra& extra) {
  if (work.residual_out != nullptr) {
    auto placed = place_residuals(memory, work, command, extra);
    if (!placed) return placed;
  }
  if (auto placed = place_memory(memory, lock, work, command); !placed) return placed;
  command.count = work.call.count;
  command.root = work.call.root;
  if (!has_splits(*work.group, arguments)) return {};
  auto placed = place_splits(memory, lock, work, arguments, command);
  if (!placed) give_up(memory, work);
  return placed;
}

Result<void> feed(gw_work& work) {
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

void give_up(DaemonMemory& memory, gw_work& work) {
  memory.drop_staging(work);
  memory.give_back(std::move(work.splits));
  memory.give_back(std::move(work.ready));
}

}  // namespace gradwire::client
