// SPDX-License-Identifier: BSD-3-Clause
#include "transport/congestion.h"

namespace gradwire::transport {

const char* name_of(CongestionKind kind) noexcept {
  switch (kind) {
    case CongestionKind::kDctcp:
      return "dctcp";
    case CongestionKind::kSwift:
      return "swift";
    case CongestionKind::kStatic:
      break;
  }
  return "static";
}

std::optional<CongestionKind> parse_congestion(std::string_view name) noexcept {
  for (const CongestionKind kind : kCongestionKinds) {
    if (name == name_of(kind)) return kind;
  }
  return std::nullopt;
}

std::unique_ptr<CongestionController> make_controller(const CongestionConfig& config) {
  switch (config.kind) {
    case CongestionKind::kDctcp:
      return make_dctcp_controller(config);
    case CongestionKind::kSwift:
      return make_swift_controller(config);
    case CongestionKind::kStatic:
      break;
  }
  return make_static_controller(config.max_window_bytes);
}

}  // namespace gradwire::transport
