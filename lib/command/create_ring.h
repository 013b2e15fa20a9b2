// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A ring of DPDK's whose elements have any size. Control thread; allocates.
#pragma once

#include <rte_ring.h>

#include <cstddef>
#include <string>

// rte_ring_elem.h of DPDK 24.11 and 25.11 does not say that its functions are C's, so a C++
// compiler would look for another symbol. This one names the symbol, whatever that header says.
extern "C" rte_ring* gradwire_create_ring(const char* name, unsigned element_bytes, unsigned count,
                                          int socket,
                                          unsigned flags) __asm__("rte_ring_create_elem");

namespace gradwire::command {

/// @param flags  RING_F_...
/// @return nullptr if it cannot be made; rte_errno says why.
inline rte_ring* create_ring(const std::string& name, std::size_t element_bytes, unsigned count,
                             unsigned flags) noexcept {
  return gradwire_create_ring(name.c_str(), static_cast<unsigned>(element_bytes), count,
                              SOCKET_ID_ANY, flags);
}

}  // namespace gradwire::command
