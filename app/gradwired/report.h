// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the operator is told at start: the datapath as it was measured, and loudly whatever makes
/// it slower than it could be. Main thread; reads sysfs and smaps, allocates.
#pragma once

#include <rte_mempool.h>

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "host/examine.h"
#include "host/isolation.h"
#include "host/placement.h"
#include "port/port.h"
#include "reduce/gpu/device.h"

namespace gradwire::gradwired {

struct Report {
  std::vector<std::string> facts;     ///< a line each
  std::vector<std::string> passing;   ///< facts that are so now: logged, and not kept
  std::vector<std::string> warnings;  ///< what is slower than it could be, and what would help
};

/// Driver, link (which passes), MTU, node, queues, offloads, copies.
void report_port(const port::Port& port, std::uint32_t payload_bytes, Report& report);
/// Where hosts are to change source ports: a port that keeps those who send to it from that.
void report_hashed_queues(const port::Port& port, Report& report);

/// Where the GPU and a port are not near each other.
void report_gpu(const reduce::GpuDevice& gpu, const port::Port& port, Report& report);

/// What a container, if this is one, keeps from the EAL, to be added to its error; empty if
/// nothing.
[[nodiscard]] std::string why_no_eal(const host::Machine& machine);
/// What of the host itself is not as it should be; nothing else of it is told.
void report_host(const host::Machine& machine, const host::Subject& subject, Report& report);

/// The CPUs that an lcore may run on, according to sysfs.
[[nodiscard]] Result<std::vector<host::CoreFacts>> cores_of_lcore(unsigned lcore);

/// @param port_node -1: unknown.
/// @return whether the lane has its core to itself.
bool report_core(unsigned lane, unsigned lcore, std::span<const host::CoreFacts> cores,
                 int port_node, Report& report);

/// The memory that contains a mempool's objects.
[[nodiscard]] std::vector<host::MemoryRange> memory_of(rte_mempool& pool);

/// Reports which pages and NUMA nodes a mempool really uses.
/// @param wanted_node  -1: any.
/// @return kUnsupported if it is not on hugepages.
[[nodiscard]] Result<void> report_pool(rte_mempool& pool, const std::string& ops, int wanted_node,
                                       std::span<const host::Mapping> mappings, Report& report);

}  // namespace gradwire::gradwired
