// SPDX-License-Identifier: BSD-3-Clause
#include "client/stream_copies.h"

#include <utility>

namespace gradwire::client {

bool is_pending(const StreamOp::EventPtr& event) {
  if (event == nullptr) return false;
  const auto passed = event->has_passed();
  return passed && !*passed;
}

void leave_behind(std::vector<LeavingMemory> memory, ipc::UniqueFd end) {
  struct Left {
    std::vector<LeavingMemory> memory;
    ipc::UniqueFd end;
  };
  static std::mutex mutex;
  // Never destroyed, because CUDA may still copy when the process ends.
  static auto& left = *new std::vector<Left>;
  const std::lock_guard lock(mutex);
  left.push_back({std::move(memory), std::move(end)});
  std::erase_if(left, [](Left& each) {
    std::erase_if(each.memory, [](const LeavingMemory& one) { return !is_pending(one.until); });
    return each.memory.empty();
  });
}

Result<StreamCopies::Streams*> StreamCopies::streams_of(int ordinal) {
  const auto found = streams_.find(ordinal);
  if (found != streams_.end()) return &found->second;
  Streams made;
  auto device = gpu::Device::at(ordinal);
  if (!device) return tl::unexpected(device.error());
  made.device = std::move(*device);
  for (auto* side : {&made.in, &made.out}) {
    auto stream = made.device->make_stream();
    if (!stream) return tl::unexpected(stream.error());
    *side = std::move(*stream);
  }
  return &streams_.emplace(ordinal, std::move(made)).first->second;
}

Result<void> StreamCopies::come_after(gpu::SideStream& stream, const StreamOp& op) {
  for (const StreamOp::EventPtr& earlier : op.after) {
    if (auto ordered = stream.wait_for(*earlier); !ordered) return ordered;
  }
  return {};
}

Result<void> StreamCopies::begin(StreamOp& op, gpu::CuStream stream,
                                 std::array<const void*, 2> copied, const Sides& input,
                                 bool is_read) {
  for (const void* memory : copied) {
    // Of other memory of the host CUDA's copies may wait, for what the stream was given too.
    const Result<int> ordinal = memory != nullptr ? gpu::Device::ordinal_of(memory) : op.ordinal;
    if (!ordinal) {
      return fail(ordinal.error().code,
                  "an op on a CUDA stream has its input and output in memory of a GPU, or in "
                  "gradient memory; post it without a stream if both are the host's: " +
                      ordinal.error().message);
    }
    if (op.ordinal < 0) op.ordinal = *ordinal;
  }
  const std::lock_guard lock(mutex_);
  auto streams = streams_of(op.ordinal);
  if (!streams) return tl::unexpected(streams.error());
  gpu::Device& device = *(*streams)->device;
  if (auto plain = device.check_not_captured(stream, kPostElsewhere); !plain) return plain;
  auto before = device.make_own_event();
  if (!before) return tl::unexpected(before.error());
  op.before = std::move(*before);
  if (auto marked = op.before->record(stream); !marked) return marked;
  if (!is_read) return {};
  if (input.mapping == nullptr) {
    op.fed = op.before;
    return {};
  }
  if (auto pinned = input.mapping->pin(device); !pinned) return pinned;
  auto fed = device.make_own_event();
  if (!fed) return tl::unexpected(fed.error());
  // Kept even if the copy fails: it may have been begun.
  op.fed = std::move(*fed);
  if (auto ordered = come_after(*(*streams)->in, op); !ordered) return ordered;
  return (*streams)->in->copy(*op.before, input.in, input.on_gpu, input.bytes, *op.fed);
}

Result<void> StreamCopies::bring_back(StreamOp& op, std::byte* to, const std::byte* from,
                                      Mapping& mapping, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto streams = streams_of(op.ordinal);
  if (!streams) return tl::unexpected(streams.error());
  if (auto pinned = mapping.pin(*(*streams)->device); !pinned) return pinned;
  auto back = (*streams)->device->make_own_event();
  if (!back) return tl::unexpected(back.error());
  op.back = std::move(*back);
  if (auto ordered = come_after(*(*streams)->out, op); !ordered) return ordered;
  return (*streams)->out->copy(*op.before, to, from, bytes, *op.back);
}

}  // namespace gradwire::client
