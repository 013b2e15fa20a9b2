// SPDX-License-Identifier: BSD-3-Clause
#include "report.h"

#include <fmt/format.h>
#include <rte_lcore.h>
#include <sched.h>

namespace gradwire::gradwired {
namespace {

std::string node_name(int node) { return node < 0 ? "unknown" : fmt::format("{}", node); }

std::string page_size_name(std::size_t bytes) {
  if (bytes >= 1u << 30) return fmt::format("{} GiB", bytes >> 30);
  if (bytes >= 1u << 20) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

void report_hashed_queues(const port::Port& port, Report& report) {
  const port::PortReport r = port.report();
  if (r.hashed_queues == 0) return;
  report.warnings.push_back(fmt::format(
      "port {}: its interface spreads what it receives over {} queues by a hash of the ports "
      "too, and this daemon reads one. So others keep their source port when they send here, and "
      "a path of equal cost that loses packets is not left: give the interface one queue "
      "(ethtool -L INTERFACE combined 1)",
      r.device, r.hashed_queues));
}

void report_port(const port::Port& port, std::uint32_t payload_bytes, Report& report) {
  const port::PortReport r = port.report();
  report.facts.push_back(
      fmt::format("port {}: driver {}, {}/{}, MAC {}, MTU {}, frames of {} bytes, NUMA node {}",
                  r.device, r.driver, wire::to_string(port.config().ip), port.config().prefix_bits,
                  wire::to_string(r.mac), r.mtu, r.frame_bytes, node_name(r.numa_node)));
  report.facts.push_back(fmt::format(
      "port {}: {} queue pair{}, descriptors {} rx {} tx, rx interrupts {}, flow steering {}, "
      "payloads {}, offloads rx {:#x} tx {:#x}, copies of each byte {} rx {} tx",
      r.device, r.queues, r.queues == 1 ? "" : "s", r.rx_descriptors, r.tx_descriptors,
      r.rx_interrupts ? "yes" : "no", r.flow_steering ? "yes" : "no",
      r.splits_payload ? "in GPU memory" : "behind their headers", r.rx_offloads, r.tx_offloads,
      r.rx_copies, r.tx_copies));
  if (r.ipv6) {
    report.facts.push_back(fmt::format("port {}: UDP checksums are computed by {}", r.device,
                                       r.udp_sum == wire::UdpSum::kDevice ? "the NIC" : "the CPU"));
  }
  if (!r.udp_sum_refusal.empty()) {
    report.warnings.push_back(fmt::format(
        "port {}: driver {} offers to compute UDP checksums, but not for a packet over IPv6 ({}), "
        "so the CPU reads each byte once more when it sends; over IPv4 none is needed",
        r.device, r.driver, r.udp_sum_refusal));
  }
  if (r.rx_copies + r.tx_copies > 0) {
    report.warnings.push_back(fmt::format(
        "port {0}: the CPU copies each byte {2} time{3} when received and {4} when sent (driver "
        "{1} "
        "{5}); a NIC with a poll-mode driver needs no copies",
        r.device, r.driver, r.rx_copies, r.rx_copies == 1 ? "" : "s", r.tx_copies, port.row().why));
  }
  if (port.config().faults.active()) {
    report.warnings.push_back(
        fmt::format("FAULT INJECTION on port {}: {}: only for tests; remove [faults] from the "
                    "configuration, or run gradwire inject --clear",
                    r.device, describe(port.config().faults)));
  }
  if (port.row().tx_may_block) {
    report.warnings.push_back(fmt::format(
        "port {}: the driver {} may block in the kernel while it sends, which stalls its lane",
        r.device, r.driver));
  }
  report.passing.push_back(
      fmt::format("port {}: link {}{}", r.device, r.link,
                  port.link_up() ? "" : ": groups that use it form when it comes up"));
  // Below this, a packet's fixed cost is larger than that of its bytes.
  constexpr std::uint32_t kSmallPayload = 4096;
  if (payload_bytes < kSmallPayload) {
    report.warnings.push_back(
        fmt::format("port {}: a packet carries {} bytes of gradient; with an MTU of 9000 on the "
                    "whole path it would carry {}, and a sixth of the packets would be enough",
                    r.device, payload_bytes,
                    wire::max_payload_bytes(port::kJumboMtu, port.config().ip.family)));
  }
}

void report_gpu(const reduce::GpuDevice& gpu, const port::Port& port, Report& report) {
  const int node = port.socket();
  if (node >= 0 && gpu.numa_node() >= 0 && node != gpu.numa_node()) {
    report.warnings.push_back(
        fmt::format("GPU {} is on NUMA node {}, port {} on node {}: every payload crosses between "
                    "them",
                    gpu.name(), gpu.numa_node(), port.config().device, node));
  }
  const std::string gpu_root = host::pci_root(gpu.name());
  const std::string port_root = host::pci_root(port.config().device);
  if (!gpu_root.empty() && !port_root.empty() && gpu_root != port_root) {
    report.warnings.push_back(fmt::format("GPU {} is below PCIe root {}, port {} below {}",
                                          gpu.name(), gpu_root, port.config().device, port_root));
  }
}

void report_host(const host::Machine& machine, const host::Subject& subject, Report& report) {
  for (const host::Finding& finding : host::examine_for_daemon(machine, subject)) {
    if (finding.verdict == host::Verdict::kWarn || finding.verdict == host::Verdict::kFail) {
      report.warnings.push_back(host::to_sentence(finding));
    }
  }
}

std::string why_no_eal(const host::Machine& machine) {
  host::Findings findings;
  host::check_container(machine, {}, findings);
  std::string text;
  for (const host::Finding& finding : findings) {
    if (finding.verdict == host::Verdict::kOk) continue;
    text += "; it may be this: " + host::to_sentence(finding);
  }
  return text;
}

Result<std::vector<host::CoreFacts>> cores_of_lcore(unsigned lcore) {
  const rte_cpuset_t cpus = rte_lcore_cpuset(lcore);
  std::vector<host::CoreFacts> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    auto facts = host::read_core_facts(cpu);
    if (!facts) return tl::unexpected(facts.error());
    cores.push_back(*facts);
  }
  return cores;
}

bool report_core(unsigned lane, unsigned lcore, std::span<const host::CoreFacts> cores,
                 int port_node, Report& report) {
  std::vector<int> cpus;
  for (const host::CoreFacts& core : cores) cpus.push_back(core.cpu);
  const auto problems = host::isolation_problems(cores, port_node);
  report.facts.push_back(fmt::format("lane {}: lcore {} on CPU {}, NUMA node {}, {}", lane, lcore,
                                     host::to_cpu_list(cpus),
                                     node_name(cores.empty() ? -1 : cores.front().numa_node),
                                     problems.empty() ? "isolated" : "not isolated"));
  for (const std::string& problem : problems) {
    report.warnings.push_back(fmt::format("lane {}: {}", lane, problem));
  }
  return problems.empty();
}

std::vector<host::MemoryRange> memory_of(rte_mempool& pool) {
  std::vector<host::MemoryRange> ranges;
  rte_mempool_mem_iter(
      &pool,
      [](rte_mempool* of, void* out, rte_mempool_memhdr* memory, unsigned) {
        static_cast<std::vector<host::MemoryRange>*>(out)->push_back(
            {fmt::format("mempool {}", of->name), memory->addr, memory->len});
      },
      &ranges);
  return ranges;
}

Result<void> report_pool(rte_mempool& pool, const std::string& ops, int wanted_node,
                         std::span<const host::Mapping> mappings, Report& report) {
  const auto ranges = memory_of(pool);
  if (auto verdict = host::verify_hugepages(mappings, ranges); !verdict) return verdict;
  host::NodePlacement all;
  std::size_t bytes = 0;
  std::size_t page_bytes = 0;
  for (const host::MemoryRange& range : ranges) {
    const auto size = host::page_bytes_of(mappings, range);
    if (!size) return tl::unexpected(size.error());
    const auto placement = host::read_placement(range, *size);
    if (!placement) return tl::unexpected(placement.error());
    for (const auto& [node, pages] : placement->pages_by_node) all.pages_by_node[node] += pages;
    all.pages_absent += placement->pages_absent;
    bytes += range.bytes;
    page_bytes = *size;
  }
  report.facts.push_back(fmt::format("mempool {}: {} mbufs, {:.1f} MiB on pages of {}, {}, {}",
                                     pool.name, pool.size, static_cast<double>(bytes) / (1 << 20),
                                     page_size_name(page_bytes), host::to_string(all), ops));
  for (const auto& [node, pages] : all.pages_by_node) {
    if (wanted_node >= 0 && node != wanted_node) {
      report.warnings.push_back(
          fmt::format("mempool {}: {} of its pages are on NUMA node {}, but its port is on node "
                      "{}: reserve hugepages there",
                      pool.name, pages, node, wanted_node));
    }
  }
  if (ops != "stack") {
    report.warnings.push_back(
        fmt::format("mempool {}: uses {} instead of stack, so packets leave the core's cache: load "
                    "librte_mempool_stack (EAL -d)",
                    pool.name, ops));
  }
  return {};
}

}  // namespace gradwire::gradwired
