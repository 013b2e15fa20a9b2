// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A reduce backend whose kernels are nvcc's PTX: entries become batches as GpuQueue makes them,
/// and the interpreter runs what launch_batch() would launch, without the executor. For tests
/// alone: allocates.
#pragma once

#include <string>
#include <vector>

#include "machine.h"
#include "reduce/gpu/append.h"
#include "reduce/gpu/persistent_state.h"

namespace gradwire::ptx {

/// Makes a batch empty. What it does not use is junk, and no address: left as memory had it, it
/// might be a former batch's, and right by chance.
void make_empty(reduce::Batch& batch);

/// Which kernel takes a batch.
enum class Way : std::uint8_t {
  kLaunch,      ///< as kernel_for() chooses
  kGeneral,     ///< the one that knows all datatypes and redops
  kPersistent,  ///< through bells and words, on several blocks at once
};

class PtxBackend final : public reduce::Backend {
 public:
  PtxBackend(const Module& module, Way way, const MachineOptions& options)
      : module_(module), way_(way), machine_(module, options) {}

  [[nodiscard]] const char* name() const noexcept override { return "ptx"; }
  /// All entries are done, as one batch, before it returns. A kernel's fault fails all of them.
  [[nodiscard]] std::size_t submit(std::span<const reduce::Entry> entries) noexcept override;
  [[nodiscard]] std::size_t poll(std::span<reduce::Completion> done) noexcept override;
  [[nodiscard]] const reduce::BackendCounters& counters() const noexcept override {
    return counters_;
  }
  [[nodiscard]] Machine& machine() { return machine_; }
  /// What the last kernel was stopped for.
  [[nodiscard]] const std::string& fault() const { return fault_; }

 private:
  void launch(const reduce::Batch& batch);
  void serve(const reduce::Batch& batch);

  const Module& module_;
  const Way way_;
  Machine machine_;
  std::vector<reduce::Completion> done_;
  reduce::BackendCounters counters_;
  std::string fault_;
};

/// A host's side of the persistent kernel, which steps it while it waits.
class PersistentKernel {
 public:
  /// @param machine  nothing else runs on it until stop().
  PersistentKernel(Machine& machine, std::uint32_t blocks, std::uint64_t idle_ns);
  ~PersistentKernel();
  PersistentKernel(const PersistentKernel&) = delete;
  PersistentKernel& operator=(const PersistentKernel&) = delete;

  /// Puts the batch into a slot and rings its bell.
  void ring(std::uint32_t slot, const reduce::Batch& batch);
  [[nodiscard]] bool is_done(std::uint32_t slot) const {
    return words_.done[slot] == reduce::QueueWords::number_of(words_.doorbell[slot]);
  }
  void wait_for(std::uint32_t slot);
  /// Asks it to end, and steps until it has.
  void stop();
  /// Steps until it ends by itself.
  void wait_until_idle();
  [[nodiscard]] bool parked() const { return words_.parked == kRun; }

 private:
  static constexpr std::uint32_t kRun = 7;
  static constexpr std::uint64_t kSteps = 200'000;
  Machine& machine_;
  reduce::QueueWords words_{};
  std::vector<reduce::Batch> batches_;
  reduce::cuda::PersistentState state_{};
};

}  // namespace gradwire::ptx
