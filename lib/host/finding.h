// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a check of the host found: a verdict, the value, why it matters and what mends it; and how
/// findings are shown. Control thread; allocates.
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
  kWarn,  ///< it runs, slower or less safe than it could
  kFail,  ///< it does not run, or not as asked
  kSkip,  ///< does not apply, or cannot be seen from here: the value says which
};
[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

struct Finding {
  std::string check;    ///< "hugepages", "nic driver": the same word for the same check
  std::string subject;  ///< "node 0", "0000:3b:00.0", "CPU 3"; empty: the host
  Verdict verdict = Verdict::kSkip;
  std::string value;  ///< what was found
  std::string why;    ///< why it matters, a sentence
  std::string mend;   ///< the command or setting that mends it; empty if nothing has to be
};

using Findings = std::vector<Finding>;

/// No check failed; warnings do not count.
[[nodiscard]] bool is_fit(std::span<const Finding> findings) noexcept;

/// A line a finding, and below one that is not in order why it matters and what mends it.
[[nodiscard]] std::string to_text(std::span<const Finding> findings);
/// {"fit": bool, "findings": [{"check", "subject", "verdict", "value", "why", "mend"}]}
[[nodiscard]] nlohmann::json to_json(std::span<const Finding> findings);
/// "CHECK of SUBJECT: VALUE. WHY Mend it: MEND", for a log.
[[nodiscard]] std::string to_sentence(const Finding& finding);

}  // namespace gradwire::host
