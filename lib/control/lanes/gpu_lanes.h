// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The GPU of a datapath: a queue for each lane, the lanes' mempools (registered with the device if
/// kernels access packets in them), and clients' memory in the form that the device needs. The
/// control thread owns it; shards of plans use the queues, so it outlives them, and datapath and
/// device outlive it.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "control/memory/client_memory.h"
#include "lane/datapath.h"
#include "reduce/gpu/device.h"

namespace gradwire::control {

class GpuLanes final : public ClientMemory {
 public:
  [[nodiscard]] static Result<std::unique_ptr<GpuLanes>> open(reduce::GpuDevice& device,
                                                              const lane::Datapath& datapath);
  ~GpuLanes() override;
  GpuLanes(const GpuLanes&) = delete;
  GpuLanes& operator=(const GpuLanes&) = delete;

  [[nodiscard]] reduce::GpuDevice& device() noexcept { return device_; }
  [[nodiscard]] reduce::GpuQueue& queue(std::uint8_t lane) noexcept { return *queues_[lane]; }

  /// After the lanes have stopped, before anything that kernels use is given back: waits for the
  /// GPU, GpuQueue::kStopNs for each lane.
  /// @return an error if a kernel hangs.
  [[nodiscard]] Result<void> stop();

  /// Hugepages of the host that kernels can read and write, for ops off the ring. It is given back
  /// with the last reference, on the control thread, while the device is open.
  [[nodiscard]] Result<std::shared_ptr<std::byte[]>> make_shared_memory(std::uint64_t bytes);

  /// Memory that the device itself makes needs no registration.
  [[nodiscard]] bool is_registered() const override { return !is_on_gpu(); }
  [[nodiscard]] Result<void> register_host(std::byte* address, std::uint64_t bytes) override {
    return device_.register_host(address, bytes, "client memory");
  }
  void unregister_host(std::byte* address) override { device_.unregister_host(address); }
  [[nodiscard]] bool is_on_gpu() const override { return device_.makes_client_memory(); }
  [[nodiscard]] Result<reduce::SharedGpuMemory> allocate_on_gpu(std::uint64_t bytes) override {
    return device_.allocate_shared(bytes);
  }
  /// Whether the CPU may move data between clients' memory and packets, as sends and receives and
  /// their like need it: both are the host's.
  [[nodiscard]] bool has_transfers() const {
    return !is_on_gpu() && device_.path() != reduce::PayloadPath::kGpuDirect;
  }
  void free_on_gpu(std::byte* address) override { device_.free(address); }
  [[nodiscard]] Result<reduce::SharedReadyEvent> make_ready_event() override {
    return device_.make_ready_event();
  }

 private:
  explicit GpuLanes(reduce::GpuDevice& device) : device_(device) {}
  [[nodiscard]] Result<void> register_pool(rte_mempool& pool);

  reduce::GpuDevice& device_;
  std::vector<void*> registered_;
  std::vector<std::unique_ptr<reduce::GpuQueue>> queues_;
};

}  // namespace gradwire::control
