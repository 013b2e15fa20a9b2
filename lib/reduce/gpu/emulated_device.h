// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a gpu_emu device (drivers/gpu/emu) offers besides rte_gpudev, which cannot launch kernels:
/// a thread that runs functions in place of kernels. rte_gpu_info::context of such a device, and of
/// no other, is the address of an EmulatedDevice; find_emulated_device() checks that it is.
///
/// The device checks addresses as a GPU's memory management unit would: a kernel can access only
/// the device's own memory and registered memory.
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

  /// `outcome` is 0, or a negative errno if the kernel must fail and report this error.
  using Kernel = void (*)(void* argument, int outcome);

  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  void* self = nullptr;
  /// Runs `kernel` on the device's thread, with the delay and the order that the device was
  /// configured for.
  /// @return 0, or -ENODEV if the device is closing.
  int (*launch)(void* self, Kernel kernel, void* argument) = nullptr;
  /// A kernel that serves many batches calls it before each: waits for the configured delay.
  /// @return 0, or -EIO if the batch must fail.
  int (*begin)(void* self) = nullptr;
  /// @return whether the device stops, so that a kernel that polls has to end.
  bool (*stopping)(void* self) = nullptr;
  /// @return whether a kernel may touch [address, address + bytes).
  bool (*accessible)(void* self, const void* address, std::size_t bytes) = nullptr;
  /// Exports the allocation that contains `address`, for another process to map, like CUDA IPC on a
  /// GPU. @return a new file descriptor, or a negative errno; the allocation begins at the file's
  /// start.
  int (*export_memory)(void* self, const void* address) = nullptr;
};

}  // namespace gradwire::reduce
