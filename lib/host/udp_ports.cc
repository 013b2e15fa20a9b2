// SPDX-License-Identifier: BSD-3-Clause
// For ports shared with the kernel (af_xdp, af_packet): who else uses our UDP ports, and whether a
// firewall drops them.
#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "host/examine.h"

namespace gradwire::host {
namespace {

/// Local UDP ports of the host within [first, first + count), as the kernel lists its sockets.
std::string taken_ports(const Machine& machine, unsigned first, unsigned count) {
  std::string taken;
  for (const char* file : {"/proc/net/udp", "/proc/net/udp6"}) {
    std::istringstream lines(machine.text(file).value_or(""));
    for (std::string line; std::getline(lines, line);) {
      // "  12: 00000000:4853 00000000:0000 07 ...": slot, local address and port, in hexadecimal.
      std::istringstream fields(line);
      std::string slot;
      std::string local;
      if (!(fields >> slot >> local)) continue;
      const std::size_t colon = local.rfind(':');
      if (colon == std::string::npos) continue;
      unsigned port = 0;
      const char* const end = local.data() + local.size();
      const auto [parsed, error] = std::from_chars(local.data() + colon + 1, end, port, 16);
      if (error != std::errc{} || parsed != end || port < first || port >= first + count) continue;
      taken += fmt::format("{}{}", taken.empty() ? "" : ", ", port);
    }
  }
  return taken;
}

}  // namespace

void check_udp_ports(const Machine& machine, const Subject& subject, Findings& out) {
  if (subject.base_udp_port == 0) return;
  const std::string range = subject.lanes > 1
                                ? fmt::format("{} to {}", subject.base_udp_port,
                                              subject.base_udp_port + subject.lanes - 1)
                                : fmt::format("{}", subject.base_udp_port);
  const std::string taken = taken_ports(machine, subject.base_udp_port, subject.lanes);
  out.push_back(
      {"UDP ports", range, taken.empty() ? Verdict::kOk : Verdict::kWarn,
       taken.empty() ? "free" : "another program uses " + taken,
       "on an interface shared with the kernel (af_xdp, af_packet) its packets and gradwire's get "
       "mixed up",
       taken.empty() ? "" : "find it by ss -ulnp and stop it, or set another lanes.base_udp_port"});
}

void check_firewall(const Machine& machine, const Subject& subject, Findings& out) {
  const auto rules = machine.output({"nft", "-s", "list", "ruleset"});
  if (!rules) {
    out.push_back(
        {"firewall", "", Verdict::kSkip, "the rules cannot be read (nft list ruleset)", "", ""});
    return;
  }
  const bool drops = rules->find("policy drop") != std::string::npos;
  out.push_back(
      {"firewall", "", drops ? Verdict::kWarn : Verdict::kOk,
       drops ? "a chain drops every packet that no rule accepts"
             : (rules->empty() ? "no rules" : "no chain drops by default"),
       "it does not see gradwire's packets on vfio, mlx5 and af_xdp ports; every firewall between "
       "the hosts must let them through",
       drops ? fmt::format(
                   "for an af_packet port: nft add rule inet filter input udp dport {}-{} accept",
                   subject.base_udp_port, subject.base_udp_port + subject.lanes - 1)
             : ""});
}

}  // namespace gradwire::host
