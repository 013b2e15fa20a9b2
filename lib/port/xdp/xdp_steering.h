// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Attaches gradwire's XDP program to af_xdp ports and removes it again. DPDK's driver loads and
/// attaches the program that the device's argument xdp_prog names. Main thread; call prepare()
/// before the EAL starts. Allocates, calls the kernel.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ipc/unique_fd.h"
#include "port/xdp/xdp_program.h"

namespace gradwire::port {

struct XdpPort {
  std::string device;  ///< as in --vdev: "net_af_xdp0"
  XdpTraffic traffic;
  bool steer = true;  ///< false: use the driver's own program, which takes every frame
};

class XdpSteering {
 public:
  /// Adds xdp_prog to each of `eal_arguments` that creates an af_xdp device of `ports` and does not
  /// name a program itself. Removes a program left behind by an earlier run that was killed.
  /// @param record  a file that survives a killed daemon and lists what it attached; "": no file,
  /// so nothing left behind is removed.
  /// @return kBusy if an interface has somebody else's program.
  [[nodiscard]] static Result<XdpSteering> prepare(std::span<const XdpPort> ports,
                                                   std::vector<std::string>& eal_arguments,
                                                   std::string record);
  XdpSteering(XdpSteering&& other) noexcept = default;
  XdpSteering& operator=(XdpSteering&&) = delete;
  XdpSteering(const XdpSteering&) = delete;
  /// Removes the programs that are still attached, and the record. The ports must be closed.
  ~XdpSteering();

  /// Call it when the ports are open: records which programs are attached now.
  [[nodiscard]] Result<void> write_record();

  /// For the operator: which port takes which traffic, and which ones take the kernel's traffic.
  [[nodiscard]] const std::vector<std::string>& facts() const noexcept { return facts_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  struct Attached {
    std::string interface;
    unsigned index = 0;
    std::uint32_t program_id = 0;  ///< 0: not yet attached, or unknown
    friend bool operator==(const Attached&, const Attached&) = default;
  };

  explicit XdpSteering(std::string record) : record_(std::move(record)) {}
  [[nodiscard]] Result<void> add(const XdpPort& port, std::string& vdev);
  [[nodiscard]] Result<void> clear_interface(const std::string& device,
                                             const Attached& wanted) const;
  [[nodiscard]] std::vector<Attached> read_record() const;

  std::string record_;
  std::vector<ipc::UniqueFd> program_files_;  ///< memfds that the driver reads by /proc/self/fd
  std::vector<Attached> attached_;
  std::vector<std::string> facts_;
  std::vector<std::string> warnings_;
};

}  // namespace gradwire::port
