// SPDX-License-Identifier: BSD-3-Clause
// Status and trace as texts: asked for, made in the worker, and answered.
#include <fmt/format.h>
#include <unistd.h>

#include <set>

#include "control/manager.h"

namespace gradwire::control {
namespace {
using nlohmann::json;

/// How many unanswered requests for texts a connection may have, one for each of its threads.
constexpr std::size_t kAsksOfConnection = 64;
/// Of a status or trace, which the worker makes.
constexpr std::size_t kTextBytesPerStep = 64;
/// Of an answer with it.
constexpr std::size_t kCopiedBytesPerStep = 4096;
/// Of copying a lane's last events.
constexpr std::uint64_t kTraceSteps = 64;
/// Of a group that is not formed, of which the status says who is missing.
constexpr std::size_t kRanksPerStep = 16;
}  // namespace

Manager::Text::Text(const json& value)
    // Texts may come from clients: bytes that are no UTF-8 are replaced, not thrown at us.
    : text(value.dump(-1, ' ', false, json::error_handler_t::replace)),
      is_long(text.size() > ipc::kMaxMessageBytes - sizeof(ipc::MessageHeader)) {
  if (is_long) file = text_file(text);
}

void Manager::reply_json(const PendingReply& to, const json& value) { reply_text(to, Text(value)); }

void Manager::reply_text(const PendingReply& to, const Text& text) {
  if (!text.is_long) return reply(to, std::as_bytes(std::span(text.text)));
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(for_reading(text.file));
  if (!fds.front()) {
    return reply_error(
        to, {ErrorCode::kSystem,
             fmt::format("the answer to '{}' has {} bytes, and creating a file for it failed",
                         ipc::name_of(to.type), text.text.size())});
  }
  reply(to, {}, std::move(fds));
}

void Manager::ask(Asks& asks, const PendingReply& to, uid_t viewer) {
  Asker& asker = asks.waiting[to.connection];
  asker.uid = viewer;
  asker.viewer = viewer == ::geteuid() ? 0 : viewer;  // who sees as much as root
  std::deque<PendingReply>& mine = asker.replies;
  if (mine.size() >= kAsksOfConnection) {
    return reply_error(
        to, {ErrorCode::kBusy,
             fmt::format("this connection already has {} unanswered requests for '{}'", mine.size(),
                         ipc::name_of(to.type))});
  }
  mine.push_back(to);
}

void Manager::serve(Asks& asks, const std::function<std::function<json()>(uid_t)>& prepare) {
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
  const std::uint64_t before = steps_;
  auto make = prepare(viewer);
  charge(to.front().second, steps_ - before);
  const auto text = std::make_shared<Text>();
  worker_.submit(
      ipc::Worker::Order::kFirst,
      [text, make = std::move(make)] {
        *text = Text(make());
        return true;
      },
      [this, &asks, text, to = std::move(to), viewer] {
        asks.making = false;
        charge(to.front().second, text->text.size() / kTextBytesPerStep);
        for (const auto& [reply, uid] : to) {
          charge(uid, text->text.size() / kCopiedBytesPerStep);
          reply_text(reply, *text);
        }
        if (text->file) lent_.lend(std::move(text->file), text->text.size(), viewer, polled_at_);
      });
}

void Manager::serve_texts(TimeNs now) {
  serve(status_asks_, [&](uid_t viewer) -> std::function<json()> {
    steps_ += groups_.size() * lanes_.lanes() + clients_.size();
    for (const auto& [handle, group] : groups_) {
      if (group->state < GroupState::kFormed) steps_ += group->table.size() / kRanksPerStep;
    }
    // Of what changes all the time, so that it has to be looked at here. 256 groups on 16 lanes
    // take this thread 20 ms; their text of 6 MB takes the worker 0.4 s.
    return [value = std::make_shared<status::DaemonStatus>(status(now, viewer))] {
      return json(*value);
    };
  });
  serve(trace_asks_, [&](uid_t viewer) {
    steps_ += kTraceSteps * lanes_.lanes();
    return prepare_trace(now, viewer);
  });
}

}  // namespace gradwire::control
