// SPDX-License-Identifier: BSD-3-Clause
#include "status_text.h"
#include "verbs.h"

namespace gradwire::cli {

void add_status(CLI::App& app, Action& action) {
  add_view(app, action, "status", "What the daemon is doing, and which rank waits for which",
           {[](const nlohmann::json& answer, const status::DaemonStatus&) { return answer; },
            status_text});
}

}  // namespace gradwire::cli
