// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// gpudev devices that a test adds and removes within its process.
#pragma once

#include <rte_dev.h>
#include <rte_gpudev.h>

#include <string>

namespace gradwire::test {

inline std::int16_t find_gpu(const std::string& name) {
  std::int16_t id = 0;
  RTE_GPU_FOREACH(id) {
    rte_gpu_info info{};
    if (rte_gpu_info_get(id, &info) == 0 && name == info.name) return id;
  }
  return RTE_GPU_ID_NONE;
}

/// A vdev that lives as long as the object; the driver named in GRADWIRE_DRIVERS (gpu_main.cc).
class PluggedGpu {
 public:
  explicit PluggedGpu(const std::string& name, const std::string& arguments = "") : name_(name) {
    result_ = rte_eal_hotplug_add("vdev", name.c_str(), arguments.c_str());
    id_ = find_gpu(name);
  }
  ~PluggedGpu() {
    if (result_ == 0) rte_eal_hotplug_remove("vdev", name_.c_str());
  }
  PluggedGpu(const PluggedGpu&) = delete;
  PluggedGpu& operator=(const PluggedGpu&) = delete;
  [[nodiscard]] int result() const { return result_; }
  [[nodiscard]] std::int16_t id() const { return id_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  int result_ = -1;
  std::int16_t id_ = RTE_GPU_ID_NONE;
};

}  // namespace gradwire::test
