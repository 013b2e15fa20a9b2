// SPDX-License-Identifier: BSD-3-Clause
#include "host/logging.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <utility>

namespace gradwire::host {

Result<void> set_up_logging(std::string_view level) {
  constexpr std::array kLevels = {
      std::pair{"trace", spdlog::level::trace}, std::pair{"debug", spdlog::level::debug},
      std::pair{"info", spdlog::level::info},   std::pair{"warn", spdlog::level::warn},
      std::pair{"error", spdlog::level::err},
  };
  for (const auto& [name, value] : kLevels) {
    if (level != name) continue;
    auto logger = std::make_shared<spdlog::logger>(
        "gradwire", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
    logger->set_level(value);
    // Flushed, because after a crash an operator needs the last line before it.
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("log level \"{}\": must be trace, debug, info, warn or error", level));
}

}  // namespace gradwire::host
