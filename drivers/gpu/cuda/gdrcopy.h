// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// GPU memory mapped for the CPU by GDRCopy (NVIDIA's kernel module gdrdrv and libgdrapi.so.2),
/// loaded at run time; absent on most machines. Control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gradwire::gpu_cuda {

/// A mapping made by Gdrcopy::map.
struct GdrMapping {
  unsigned long handle = 0;
  void* base = nullptr;
  std::size_t bytes = 0;
  void* address = nullptr;  ///< what the caller asked for, inside the mapping
};

class Gdrcopy {
 public:
  /// @return nullptr if the library or the kernel module is missing; `why` says which.
  [[nodiscard]] static std::unique_ptr<Gdrcopy> open(std::string& why);
  ~Gdrcopy();
  Gdrcopy(const Gdrcopy&) = delete;
  Gdrcopy& operator=(const Gdrcopy&) = delete;

  /// @return 0 or a negative errno.
  [[nodiscard]] int map(std::uintptr_t device_address, std::size_t bytes, GdrMapping& out);
  int unmap(const GdrMapping& mapping);

 private:
  struct Api;
  explicit Gdrcopy(std::unique_ptr<Api> api) noexcept;
  std::unique_ptr<Api> api_;
};

}  // namespace gradwire::gpu_cuda
