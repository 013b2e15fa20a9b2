// SPDX-License-Identifier: BSD-3-Clause
#include "base/fault_settings.h"

#include <fmt/format.h>

namespace gradwire {
namespace {

Result<void> check_probability(const char* name, double value) {
  // In this form it refuses a NaN too.
  if (value >= 0 && value <= 1) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("fault {} = {}: must be a probability from 0 to 1", name, value));
}

Result<void> check_whole(const char* name, std::uint32_t value, std::uint32_t most) {
  if (value >= 1 && value <= most) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("fault {} = {}: must be 1 to {}", name, value, most));
}

}  // namespace

Result<void> check(const FaultSettings& settings) {
  const std::pair<const char*, double> probabilities[] = {{"drop", settings.drop},
                                                          {"duplicate", settings.duplicate},
                                                          {"reorder", settings.reorder},
                                                          {"corrupt", settings.corrupt},
                                                          {"delay", settings.delay}};
  for (const auto& [name, value] : probabilities) {
    if (auto ok = check_probability(name, value); !ok) return ok;
  }
  if (auto ok =
          check_whole("reorder_frames", settings.reorder_frames, FaultSettings::kMaxReorderFrames);
      !ok) {
    return ok;
  }
  return check_whole("delay_us", settings.delay_us, FaultSettings::kMaxDelayUs);
}

std::string describe(const FaultSettings& settings) {
  if (!settings.active()) return "none";
  std::string text;
  if (settings.drop > 0) text += fmt::format("drop {}, ", settings.drop);
  if (settings.duplicate > 0) text += fmt::format("duplicate {}, ", settings.duplicate);
  if (settings.reorder > 0) {
    text +=
        fmt::format("reorder {} by up to {} frames, ", settings.reorder, settings.reorder_frames);
  }
  if (settings.corrupt > 0) text += fmt::format("corrupt {}, ", settings.corrupt);
  if (settings.delay > 0) {
    text += fmt::format("delay {} by {} us, ", settings.delay, settings.delay_us);
  }
  return text + fmt::format("seed {}", settings.seed);
}

}  // namespace gradwire
