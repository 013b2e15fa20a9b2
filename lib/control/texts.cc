// SPDX-License-Identifier: BSD-3-Clause
#include "control/texts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace gradwire::control {
namespace {
using nlohmann::json;

/// How many unanswered requests for texts a connection may have, one for each of its threads.
constexpr std::size_t kAsksOfConnection = 64;
/// For a status or trace, which the worker makes.
constexpr std::size_t kTextBytesPerStep = 64;
/// For an answer with it.
constexpr std::size_t kCopiedBytesPerStep = 4096;
}  // namespace

void Texts::ask(Asks& asks, const PendingReply& to, uid_t uid) {
  Asker& asker = asks.waiting[to.connection];
  asker.uid = uid;
  asker.viewer = uid == ::geteuid() ? 0 : uid;  // who sees as much as root
  std::deque<PendingReply>& mine = asker.replies;
  if (mine.size() >= kAsksOfConnection) {
    return replies_.error(
        to, {ErrorCode::kBusy,
             fmt::format("this connection already has {} unanswered requests for '{}'", mine.size(),
                         ipc::name_of(to.type))});
  }
  mine.push_back(to);
}

void Texts::serve(Asks& asks, const Prepare& prepare) {
  if (asks.making || asks.waiting.empty()) return;
  std::set<uid_t> viewers;
  for (const auto& [connection, asker] : asks.waiting) viewers.insert(asker.viewer);
  const auto next = viewers.upper_bound(asks.last_viewer);
  const uid_t viewer = asks.last_viewer = next == viewers.end() ? *viewers.begin() : *next;
  std::vector<std::pair<PendingReply, uid_t>> to;
  for (auto at = asks.waiting.begin(); at != asks.waiting.end();) {
    if (at->second.viewer != viewer) {
      ++at;
      continue;
    }
    to.emplace_back(at->second.replies.front(), at->second.uid);
    at->second.replies.pop_front();
    at = at->second.replies.empty() ? asks.waiting.erase(at) : std::next(at);
  }
  asks.making = true;
  const std::uint64_t before = work_.steps();
  auto make = prepare(viewer);
  work_.charge(to.front().second, work_.steps() - before);
  const auto text = std::make_shared<Text>();
  worker_.submit_first(
      [text, make = std::move(make)] {
        *text = Text(make());
        return true;
      },
      [this, &asks, text, to = std::move(to), viewer] {
        asks.making = false;
        work_.charge(to.front().second, text->text.size() / kTextBytesPerStep);
        for (const auto& [reply, uid] : to) {
          work_.charge(uid, text->text.size() / kCopiedBytesPerStep);
          replies_.text(reply, *text);
        }
        if (text->file) lent_.lend(std::move(text->file), text->text.size(), viewer, round_at_);
      });
}

void Texts::on_hangup(ipc::ConnectionId connection) {
  status_.waiting.erase(connection);
  trace_.waiting.erase(connection);
}

void Texts::begin_round(TimeNs now) {
  round_at_ = now;
  lent_.take_back(now);
}

void Texts::serve(const Prepare& status, const Prepare& trace) {
  serve(status_, status);
  serve(trace_, trace);
}

}  // namespace gradwire::control
