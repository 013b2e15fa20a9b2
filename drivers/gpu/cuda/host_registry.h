// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Host memory registered with a GPU, piece by piece. CUDA pins whole pages and refuses a page that
/// is pinned already, while DPDK registers pieces as small as 4 bytes, many to a page: pieces here
/// share the runs of pages that were pinned for them, and a run is released with its last piece.
/// Control thread; knows nothing of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace gradwire::gpu_cuda {

class HostRegistry {
 public:
  /// Both get whole pages, and return 0 or a negative errno.
  using Pin = std::function<int(std::uintptr_t begin, std::size_t bytes)>;
  using Unpin = std::function<int(std::uintptr_t begin)>;

  HostRegistry(Pin pin, Unpin unpin) : pin_(std::move(pin)), unpin_(std::move(unpin)) {}

  /// @return -EEXIST if a piece begins at this address already; what `pin` returned if it
  /// failed, with nothing left pinned.
  [[nodiscard]] int add(std::uintptr_t address, std::size_t bytes);
  /// @return -EINVAL if no piece begins there.
  [[nodiscard]] int remove(std::uintptr_t address);
  /// Unpins everything.
  void clear() noexcept;

  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_.size(); }
  [[nodiscard]] std::size_t runs() const noexcept { return runs_.size(); }

  static constexpr std::uintptr_t kPageBytes = 4096;

 private:
  struct Run {
    std::uintptr_t end = 0;
    std::size_t users = 0;
  };
  [[nodiscard]] int release(std::uintptr_t run);

  Pin pin_;
  Unpin unpin_;
  std::map<std::uintptr_t, Run> runs_;                            ///< disjoint, by begin
  std::map<std::uintptr_t, std::vector<std::uintptr_t>> pieces_;  ///< their runs, by address
};

}  // namespace gradwire::gpu_cuda
