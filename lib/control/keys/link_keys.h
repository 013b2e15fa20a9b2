// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The keys that a link begins with, of one other rank on one lane. Moved to the lane's shard.
#pragma once

#include <array>

#include "security/packet_key.h"

namespace gradwire::control {

struct LinkKeys {
  security::PacketKey hello_to;  ///< hello, hello-ack and abort
  security::PacketKey hello_from;
  std::array<security::PacketKey, 2> to;  ///< all other types: generations 0 and 1
  std::array<security::PacketKey, 2> from;
};

}  // namespace gradwire::control
