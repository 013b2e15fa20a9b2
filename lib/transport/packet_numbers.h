// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Numbers of the packets that go one way by a link: 1, 2, 3, ..., whatever their types, so that
/// none is ever used twice. One lane owns it.
#pragma once

#include <cstdint>

#include "base/require.h"
#include "wire/packet.h"

namespace gradwire::transport {

class PacketNumbers {
 public:
  [[nodiscard]] std::uint64_t take() noexcept {
    require(next_ <= wire::kLastPacketNumber, "a link has numbers for as long as it lives");
    return next_++;
  }
  /// One more than the largest that was taken.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }

#ifdef GRADWIRE_PLANTED_BUGS
  void begin_anew() noexcept { next_ = 1; }
#endif

 private:
  std::uint64_t next_ = 1;
};

}  // namespace gradwire::transport
