// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which RDMA device, port and GID belong to an IP address. One thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "options.h"

namespace gradwire::perf {

struct CloseDevice {
  void operator()(ibv_context* context) const noexcept { ibv_close_device(context); }
};

struct VerbsDevice {
  std::unique_ptr<ibv_context, CloseDevice> context;
  std::string name;
  std::uint8_t port = 1;
  int gid_index = 0;
  ibv_gid gid{};
  ibv_device_attr attributes{};
  ibv_port_attr port_attributes{};
};

/// The first port of a device, of `rdma.device` if that names one, that has `rdma.address` as a
/// GID of RoCEv2.
/// @return kNotFound with the devices and addresses that there are; kUnavailable if the port is
/// down.
[[nodiscard]] Result<VerbsDevice> find_verbs_device(const RdmaOptions& rdma);

/// "10.9.0.1", "fe80::1".
[[nodiscard]] std::string text_of(const ibv_gid& gid);

/// 256 to 4096.
[[nodiscard]] constexpr std::uint32_t bytes_of(ibv_mtu mtu) noexcept {
  return 128u << static_cast<unsigned>(mtu);
}

}  // namespace gradwire::perf
