// SPDX-License-Identifier: BSD-3-Clause
#include "status_text.h"
#include "verbs.h"

namespace gradwire::cli {

void add_status(CLI::App& app, Action& action) {
  const auto all = [](const nlohmann::json& status) { return status; };
  add_view(app, action, "status", "What the daemon does, and who waits for whom",
           {all, status_text});
}

}  // namespace gradwire::cli
