// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which releases of DPDK have a memif driver that corrupts frames, as upstream says. Any thread;
/// only the texts of failures allocate.
#pragma once

#include <string_view>

#include "base/result.h"

namespace gradwire::port {

/// As in "DPDK 24.11.5".
struct DpdkRelease {
  unsigned year;
  unsigned month;
  unsigned minor;
};

/// @return that of the library which this process runs with, which may be another than the one it
/// was built with.
[[nodiscard]] DpdkRelease running_dpdk() noexcept;

/// From 23.03 on, the driver writes the parts of a frame of several segments over each other when
/// it receives one, and leaves the marks of such frames in the ring when it sends (upstream's
/// 40e0e7c0a2 and f7a52200d4 mend that). gradwire's own frames have one segment, but nothing keeps
/// others out of a link.
/// @return why a memif port cannot be used with that release, and which one to install.
[[nodiscard]] Result<void> memif_is_sound(DpdkRelease release, std::string_view device);

}  // namespace gradwire::port
