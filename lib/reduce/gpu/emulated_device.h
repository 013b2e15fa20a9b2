// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a gpu_emu device (drivers/gpu/emu) offers beside rte_gpudev, which knows no launch: a
/// thread that runs functions in the place of kernels. rte_gpu_info::context of such a device, and
/// of no other, is the address of an EmulatedDevice; find_emulated_device() checks that it is.
///
/// The device checks addresses as a GPU's memory management unit would: what is neither its own
/// memory nor registered is not accessible to a kernel.
///
/// The driver owns the object. Any thread; launch() and begin() take a lock for a moment, and a
/// kernel runs on the device's thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::reduce {

struct EmulatedDevice {
  static constexpr std::uint64_t kMagic = 0x757567'656d756cu;
  static constexpr std::uint32_t kVersion = 1;

  /// `outcome` 0, or a negative errno: the kernel was told to fail and is to report that.
  using Kernel = void (*)(void* argument, int outcome);

  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  void* self = nullptr;
  /// Runs `kernel` on the device's thread, as late and in such an order as the device was told to.
  /// @return 0, or -ENODEV where the device is closing.
  int (*launch)(void* self, Kernel kernel, void* argument) = nullptr;
  /// From a kernel that serves many batches: what befalls the next one. Waits as told.
  /// @return 0 or -EIO, as `outcome`.
  int (*begin)(void* self) = nullptr;
  /// @return whether the device stops, so that a kernel that polls has to end.
  bool (*stopping)(void* self) = nullptr;
  /// @return whether a kernel may touch [address, address + bytes).
  bool (*accessible)(void* self, const void* address, std::size_t bytes) = nullptr;
  /// The memory that `address` of an allocation lies in, for another process to map: what CUDA IPC
  /// is on a GPU. @return a new file descriptor, or a negative errno; the allocation begins at the
  /// file's start.
  int (*export_memory)(void* self, const void* address) = nullptr;
};

}  // namespace gradwire::reduce
