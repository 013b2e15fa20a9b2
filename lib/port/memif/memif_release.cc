// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_release.h"

#include <fmt/format.h>
#include <rte_version.h>

#include <array>
#include <tuple>

namespace gradwire::port {
namespace {

bool is_before(const DpdkRelease& a, const DpdkRelease& b) noexcept {
  return std::tie(a.year, a.month, a.minor) < std::tie(b.year, b.month, b.minor);
}

/// Releases from `first` on, up to `mended`, which is the one to install.
struct FaultyReleases {
  DpdkRelease first;
  DpdkRelease mended;
};
constexpr std::array<FaultyReleases, 3> kFaulty = {{
    {{23, 3, 0}, {23, 11, 7}},
    {{24, 3, 0}, {24, 11, 5}},
    {{25, 3, 0}, {25, 11, 1}},
}};

}  // namespace

DpdkRelease running_dpdk() noexcept {
  return {rte_version_year(), rte_version_month(), rte_version_minor()};
}

Result<void> memif_is_sound(DpdkRelease release, std::string_view device) {
  for (const FaultyReleases& faulty : kFaulty) {
    if (is_before(release, faulty.first) || !is_before(release, faulty.mended)) continue;
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("port {}: the memif driver of DPDK {}.{:02}.{} corrupts frames of several "
                    "segments: install DPDK {}.{:02}.{} or a later one of that series, or use "
                    "ports of another kind",
                    device, release.year, release.month, release.minor, faulty.mended.year,
                    faulty.mended.month, faulty.mended.minor));
  }
  return {};
}

}  // namespace gradwire::port
