// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a check of the host found: a verdict, the value, why it matters and how to fix it; and how
/// to show findings. Control thread; allocates.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::host {

enum class Verdict : std::uint8_t {
  kOk,
  kWarn,  ///< works, but slower or less safely than it could
  kFail,  ///< does not work, or not as configured
  kSkip,  ///< does not apply, or cannot be seen from here: the value says which
};
[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

struct Finding {
  std::string check;    ///< "hugepages", "nic driver": the same word for the same check
  std::string subject;  ///< "node 0", "0000:3b:00.0", "CPU 3"; empty: the host
  Verdict verdict = Verdict::kSkip;
  std::string value;  ///< what was found
  std::string why;    ///< why it matters, one sentence
  std::string mend;   ///< the command or setting that fixes it; empty if nothing is wrong
};

using Findings = std::vector<Finding>;

/// No check failed; warnings do not count.
[[nodiscard]] bool is_fit(std::span<const Finding> findings) noexcept;

/// One line per finding; a warning or failure is followed by why it matters and how to fix it.
[[nodiscard]] std::string to_text(std::span<const Finding> findings);
/// {"fit": bool, "findings": [{"check", "subject", "verdict", "value", "why", "mend"}]}
[[nodiscard]] nlohmann::json to_json(std::span<const Finding> findings);
/// "CHECK, SUBJECT: VALUE: WHY; fix: MEND", for a log.
[[nodiscard]] std::string to_sentence(const Finding& finding);

}  // namespace gradwire::host
