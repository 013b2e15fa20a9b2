// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The EAL for fuzz targets that need mbufs or rings: no hugepages, no devices, one lcore.
#pragma once

#include <rte_eal.h>

#include <iterator>

#include "fuzz/input.h"

namespace gradwire::fuzz {

inline void start_eal() {
  const char* arguments[] = {"fuzz",        "--no-huge",  "-m",
                             "64",          "--no-pci",   "--no-telemetry",
                             "--no-shconf", "--lcores=0", "--log-level=4"};
  FUZZ_CHECK(rte_eal_init(static_cast<int>(std::size(arguments)), const_cast<char**>(arguments)) >=
             0);
}

}  // namespace gradwire::fuzz
