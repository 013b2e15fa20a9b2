// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Gives af_xdp ports gradwire's own XDP program, and takes it off again. DPDK's driver loads and
/// attaches it: it is told where by the device's argument xdp_prog. Main thread; prepare() before
/// the EAL starts. Allocates, calls the kernel.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ipc/unique_fd.h"
#include "port/xdp_program.h"

namespace gradwire::port {

struct XdpPort {
  std::string device;  ///< as in --vdev: "net_af_xdp0"
  XdpTraffic traffic;
  bool steer = true;  ///< false: the driver's own program, which takes every frame
};

class XdpSteering {
 public:
  /// Adds xdp_prog to each of `eal_arguments` that makes an af_xdp device of `ports` and does not
  /// name a program itself. A program that an earlier run left, since it was killed, is removed.
  /// @param record  file that outlives a killed daemon and names what it attached; "": none, then
  /// nothing that was left is removed.
  /// @return kBusy where an interface has somebody else's program.
  [[nodiscard]] static Result<XdpSteering> prepare(std::span<const XdpPort> ports,
                                                   std::vector<std::string>& eal_arguments,
                                                   std::string record);
  XdpSteering(XdpSteering&& other) noexcept = default;
  XdpSteering& operator=(XdpSteering&&) = delete;
  XdpSteering(const XdpSteering&) = delete;
  /// The ports are closed. Removes what is still attached, and the record.
  ~XdpSteering();

  /// The ports are open: writes down which programs are attached now.
  [[nodiscard]] Result<void> write_record();

  /// For the operator: what is steered where, and who takes the kernel's traffic.
  [[nodiscard]] const std::vector<std::string>& facts() const noexcept { return facts_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  struct Attached {
    std::string interface;
    unsigned index = 0;
    std::uint32_t program_id = 0;  ///< 0: not yet, or not known
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
