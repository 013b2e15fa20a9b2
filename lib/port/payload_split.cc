// SPDX-License-Identifier: BSD-3-Clause
#include "port/payload_split.h"

#include <fmt/format.h>
#include <rte_ethdev.h>

#include "port/driver_table.h"
#include "port/port.h"

namespace gradwire::port {

std::string why_no_payload_split(const std::string& device) {
  std::uint16_t id = 0;
  rte_eth_dev_info info{};
  if (rte_eth_dev_get_port_by_name(device.c_str(), &id) != 0 ||
      rte_eth_dev_info_get(id, &info) != 0) {
    return fmt::format("port {}: the EAL has no device of this name", device);
  }
  const std::string driver = info.driver_name != nullptr ? info.driver_name : "";
  const DriverRow& row = driver_row(driver);
  if (row.payload_split == PayloadSplit::kNone) {
    return fmt::format("port {}: driver {} cannot receive payloads into GPU memory: {}", device,
                       driver, row.why_no_split);
  }
  if (row.payload_split == PayloadSplit::kAsSent) return {};
  constexpr std::uint64_t kRx = RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT | RTE_ETH_RX_OFFLOAD_SCATTER;
  if ((info.rx_offload_capa & kRx) != kRx || info.rx_seg_capa.multi_pools == 0 ||
      info.rx_seg_capa.max_nseg < 2) {
    return fmt::format(
        "port {}: driver {} cannot split received frames on this device as configured (rx offloads "
        "{:#x}, segments {})",
        device, driver, info.rx_offload_capa, static_cast<unsigned>(info.rx_seg_capa.max_nseg));
  }
  if ((info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) == 0) {
    return fmt::format("port {}: driver {} cannot send frames of several segments", device, driver);
  }
  if (devarg(device_arguments(info), "txq_inline_max").value_or("") != "0") {
    return fmt::format(
        "port {}: with driver {} the CPU would copy small payloads into descriptors: give the "
        "device txq_inline_max=0",
        device, driver);
  }
  return {};
}

}  // namespace gradwire::port
