// SPDX-License-Identifier: BSD-3-Clause
// Sections of which there may be several: how many there are, and how many there may be.
#include "config/keys.h"

namespace gradwire::config {

bool is_array_section(std::string_view section) noexcept {
  return section == "port" || section == "route" || section == "neighbor";
}

std::size_t max_elements(std::string_view array_section) noexcept {
  if (array_section == "port") return kMaxPorts;
  return array_section == "route" ? kMaxRoutes : kMaxNeighbors;
}

std::size_t elements_in(const DaemonConfig& config, std::string_view section) noexcept {
  if (section == "port") return config.ports.size();
  if (section == "route") return config.routes.size();
  if (section == "neighbor") return config.neighbors.size();
  return 1;
}

void resize_at_least(DaemonConfig& config, std::string_view section, std::size_t elements) {
  const auto resize = [elements](auto& vector) {
    if (vector.size() < elements) vector.resize(elements);
  };
  if (section == "port") resize(config.ports);
  if (section == "route") resize(config.routes);
  if (section == "neighbor") resize(config.neighbors);
}

}  // namespace gradwire::config
