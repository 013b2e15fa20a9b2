// SPDX-License-Identifier: BSD-3-Clause
#include "backend.h"

#include <algorithm>

#include "gpu.h"
#include "reduce/lowering.h"

namespace gradwire::ptx {

using namespace gradwire::reduce;

namespace {

constexpr std::uint32_t kGrid = 3;  ///< fewer than a large entry's tiles

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

void make_empty(Batch& batch) {
  clear(batch);
  std::fill(std::begin(batch.addresses), std::end(batch.addresses), kJunk);
}

std::size_t PtxBackend::submit(std::span<const Entry> entries) noexcept {
  Batch batch;
  make_empty(batch);
  std::vector<std::vector<std::uint32_t>> crcs;
  for (const Entry& entry : entries) {
    std::array<const std::byte*, Batch::kSourcesMax> sources;
    std::array<std::byte*, kMaxTargets> targets;
    Fold fold;
    lower_any(entry, sources.data(), targets.data(), fold);
    if (!has_room(batch, fold)) break;
    const std::size_t tiles =
        (std::size_t{entry.count} * target_width(entry) + kTileBytes - 1) / kTileBytes;
    crcs.emplace_back(tiles * kCrcWordsPerTile, 0x5a5a5a5a);
    append(batch, entry, fold, crcs.back().data());
  }
  for (const auto& words : crcs) machine_.memory.add(words.data(), words.size() * sizeof words[0]);
  fault_.clear();
  try {
    way_ == Way::kPersistent ? serve(batch) : launch(batch);
  } catch (const Fault& fault) {
    fault_ = fault.what();
  }
  for (std::size_t i = 0; i < crcs.size(); ++i) {
    machine_.memory.remove(crcs[i].data());
    const auto item = static_cast<std::uint32_t>(i);
    done_.push_back({entries[i].cookie, fault_.empty(),
                     entries[i].crc ? crc_of(batch, item, crcs[i].data()) : 0});
  }
  return crcs.size();
}

std::size_t PtxBackend::poll(std::span<Completion> done) noexcept {
  const std::size_t count = std::min(done.size(), done_.size());
  std::copy_n(done_.begin(), count, done.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void PtxBackend::launch(const Batch& batch) {
  machine_.run(module_.function(
                   name_of(way_ == Way::kLaunch ? cuda::kernel_for(batch) : cuda::Kernel::kBatch)),
               bytes_of(batch), std::min(batch.tile_count, kGrid), kThreadsPerBlock);
}

void PtxBackend::serve(const Batch& batch) {
  PersistentKernel kernel(machine_, kGrid, ~std::uint64_t{0});
  kernel.ring(0, batch);
  kernel.wait_for(0);
  kernel.stop();
}

PersistentKernel::PersistentKernel(Machine& machine, std::uint32_t blocks, std::uint64_t idle_ns)
    : machine_(machine), batches_(kQueueSlots) {
  machine_.memory.add(&words_, sizeof words_);
  machine_.memory.add(batches_.data(), batches_.size() * sizeof(Batch));
  machine_.memory.add(&state_, sizeof state_);
  const cuda::PersistentArguments arguments{&words_, batches_.data(), &state_, kRun, idle_ns};
  machine_.start(machine_.module().function("persistent_kernel"), bytes_of(arguments), blocks,
                 kThreadsPerBlock);
}

PersistentKernel::~PersistentKernel() {
  machine_.memory.remove(&words_);
  machine_.memory.remove(batches_.data());
  machine_.memory.remove(&state_);
}

void PersistentKernel::ring(std::uint32_t slot, const Batch& batch) {
  batches_[slot] = batch;
  words_.doorbell[slot] =
      QueueWords::bell(QueueWords::number_of(words_.doorbell[slot]) + 1, batch.tile_count);
}

void PersistentKernel::wait_for(std::uint32_t slot) {
  for (std::uint64_t steps = kSteps; !is_done(slot); --steps) {
    if (steps == 0) throw Fault("the batch is never done");
    if (!machine_.step()) throw Fault("the kernel has ended before its batch is done");
  }
}

void PersistentKernel::stop() {
  words_.stop = 1;
  wait_until_idle();
}

void PersistentKernel::wait_until_idle() {
  machine_.finish(kSteps);
  if (!parked()) throw Fault("the kernel has ended and does not say so");
}

}  // namespace gradwire::ptx
