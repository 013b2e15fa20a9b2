// SPDX-License-Identifier: BSD-3-Clause
#include "host/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gradwire::host {

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
    case Verdict::kSkip:
      break;
  }
  return "skip";
}

bool is_fit(std::span<const Finding> findings) noexcept {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& f) { return f.verdict == Verdict::kFail; });
}

std::string to_text(std::span<const Finding> findings) {
  std::string out;
  std::array<std::size_t, 4> counts{};
  for (const Finding& finding : findings) {
    ++counts[static_cast<std::size_t>(finding.verdict)];
    out += fmt::format("{:<4}  {}{}{}: {}\n", to_string(finding.verdict), finding.check,
                       finding.subject.empty() ? "" : ", ", finding.subject, finding.value);
    if (finding.verdict != Verdict::kWarn && finding.verdict != Verdict::kFail) continue;
    if (!finding.why.empty()) out += fmt::format("      why:  {}\n", finding.why);
    if (!finding.mend.empty()) out += fmt::format("      fix:  {}\n", finding.mend);
  }
  out += fmt::format("{}: {} ok, {} warn, {} fail, {} skip\n", is_fit(findings) ? "fit" : "not fit",
                     counts[0], counts[1], counts[2], counts[3]);
  return out;
}

nlohmann::json to_json(std::span<const Finding> findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"subject", finding.subject},
                    {"verdict", to_string(finding.verdict)},
                    {"value", finding.value},
                    {"why", finding.why},
                    {"mend", finding.mend}});
  }
  return {{"fit", is_fit(findings)}, {"findings", std::move(list)}};
}

std::string to_sentence(const Finding& finding) {
  return fmt::format("{}{}{}: {}{}{}{}{}", finding.check, finding.subject.empty() ? "" : ", ",
                     finding.subject, finding.value, finding.why.empty() ? "" : ": ", finding.why,
                     finding.mend.empty() ? "" : "; fix: ", finding.mend);
}

}  // namespace gradwire::host
