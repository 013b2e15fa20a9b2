// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A GPU's memory, as an interface for ports, which do not depend on GPU code: they make a mempool
/// of payloads in it. The control thread makes every call; nothing here is on a hot path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace gradwire::reduce {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// The device, for messages.
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  /// The size of the pages in which the memory is registered with the EAL; a power of two.
  [[nodiscard]] virtual std::size_t page_bytes() const noexcept = 0;
  /// @return an address in the device's memory, which the CPU cannot access.
  [[nodiscard]] virtual Result<std::byte*> allocate(std::size_t bytes, std::uint32_t align) = 0;
  virtual void free(std::byte* memory) noexcept = 0;
  /// @return where the CPU can read and write memory from allocate().
  [[nodiscard]] virtual Result<std::byte*> map_for_cpu(std::byte* memory, std::size_t bytes) = 0;
  virtual void unmap_for_cpu(std::byte* memory) noexcept = 0;
};

}  // namespace gradwire::reduce
