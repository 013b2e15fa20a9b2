// SPDX-License-Identifier: BSD-3-Clause
#include "base/abort_reason.h"

#include <fmt/format.h>

#include <cstring>

namespace gradwire {
namespace {

std::string cause(const AbortReason& reason) {
  const auto culprit = reason.culprit_rank;
  switch (reason.code) {
    case AbortCode::kNone:
      return "not aborted";
    case AbortCode::kSilence:
      return fmt::format("rank {} was silent for {:.0f} ms", culprit,
                         static_cast<double>(reason.duration_ns) / 1e6);
    case AbortCode::kMismatch:
      // The detail names both and what they called. It is not known whose mistake it was.
      return "calls that do not fit together";
    case AbortCode::kClientDied:
      return fmt::format("a client process of rank {} died", culprit);
    case AbortCode::kClientAbort:
      return fmt::format("a client of rank {} aborted the group", culprit);
    case AbortCode::kDaemonStopped:
      return fmt::format("the daemon of rank {} was stopped", culprit);
    case AbortCode::kPeerLeft:
      return fmt::format("rank {} left the group", culprit);
    case AbortCode::kReduceFailed:
      return fmt::format("a reduction failed on rank {}", culprit);
    case AbortCode::kFormation:
      return fmt::format("the group could not be formed with rank {}", culprit);
    case AbortCode::kProtocol:
      return fmt::format("rank {} broke the protocol", culprit);
    case AbortCode::kStuck:
      if (culprit != reason.reporter_rank) {
        return fmt::format(
            "stuck: every rank has posted it, and for {:.1f} s nothing moved that waits for rank "
            "{}. See whether packets get through between ranks {} and {}; if they do, this is a "
            "bug of gradwire: please report it with this line",
            static_cast<double>(reason.duration_ns) / 1e9, culprit, reason.reporter_rank, culprit);
      }
      return fmt::format(
          "stuck: every rank has posted it, and for {:.1f} s nothing moved. This is a bug of "
          "gradwire: please report it with this line",
          static_cast<double>(reason.duration_ns) / 1e9);
  }
  return fmt::format("rank {}: unknown abort code {}", culprit, static_cast<int>(reason.code));
}

}  // namespace

void AbortReason::set_detail(const char* text) noexcept {
  std::strncpy(detail, text, kDetailBytes - 1);
  detail[kDetailBytes - 1] = '\0';
}

std::string describe(const AbortReason& reason) {
  std::string text = cause(reason);
  if (reason.op_seq != 0) text += fmt::format(", op {}", reason.op_seq);
  if (reason.detail[0] != '\0') text += fmt::format(": {}", reason.detail);
  if (reason.is_set()) text += fmt::format(" (seen by rank {})", reason.reporter_rank);
  return text;
}

}  // namespace gradwire
