// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {

using nlohmann::json;

json ports_of(const json& status) { return elements(status, "ports"); }

std::string ports_text(const json& ports) {
  Table table({"PORT", "DRIVER", "ADDRESS", "MAC", "MTU", "NODE", "QUEUES", "RX", "TX", "MISSED",
               "ERRORS", "LINK"});
  for (const json& port : ports) {
    const json counters = section(port, "counters");
    table.add(
        {field(port, "device"), field(port, "driver"), field(port, "address"), field(port, "mac"),
         field(port, "mtu"), field(port, "numa_node"), field(port, "queues"),
         field(counters, "rx_packets"), field(counters, "tx_packets"), field(counters, "rx_missed"),
         fmt::format("{:.0f}", number(counters, "rx_errors") + number(counters, "rx_no_mbuf") +
                                   number(counters, "tx_errors")),
         field(port, "link")});
  }
  return table.empty() ? "no port\n" : table.text();
}

void add_ports(CLI::App& app, Action& action) {
  add_view(app, action, "ports", "The ports: driver, addresses, link, packets",
           {ports_of, ports_text});
}

}  // namespace gradwire::cli
