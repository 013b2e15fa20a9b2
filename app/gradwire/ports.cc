// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {
namespace {

std::string queues_text(const status::Port& port) {
  if (port.joined_queues == port.queues) return std::to_string(port.queues);
  return fmt::format("{} of {}", port.joined_queues, port.queues);
}

}  // namespace

std::string ports_text(const status::DaemonStatus& status) {
  Table table({"PORT", "DRIVER", "ADDRESS", "MAC", "MTU", "NODE", "QUEUES", "RX", "TX", "MISSED",
               "ERRORS", "LINK"});
  for (const status::Port& port : status.ports) {
    const status::PortCounters& counters = port.counters;
    table.add(
        {port.device, port.driver, port.address, port.mac, std::to_string(port.mtu),
         std::to_string(port.numa_node), queues_text(port), std::to_string(counters.rx_packets),
         std::to_string(counters.tx_packets), std::to_string(counters.rx_missed),
         std::to_string(counters.rx_errors + counters.rx_no_mbuf + counters.tx_errors), port.link});
  }
  return table.empty() ? "no port\n" : table.text();
}

void add_ports(CLI::App& app, Action& action) {
  add_view(app, action, "ports", "The ports: driver, addresses, link and packet counts",
           {[](const nlohmann::json& answer, const status::DaemonStatus&) {
              return elements(answer, "ports");
            },
            ports_text});
}

}  // namespace gradwire::cli
