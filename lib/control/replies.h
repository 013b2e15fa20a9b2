// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What goes to clients: answers to their requests, errors, texts and events. A request that wants
/// no answer gets none. The control thread owns it; it allocates, and makes a file of a long text.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/state.h"
#include "ipc/message_sink.h"
#include "ipc/unique_fd.h"

namespace gradwire::control {

/// JSON for a client: in a message, or in a file if it is too long for one. Any thread may make it.
struct Text {
  Text() = default;
  explicit Text(const nlohmann::json& value);
  std::string text;
  bool is_long = false;
  ipc::UniqueFd file;
};

class Replies {
 public:
  /// The sink outlives it.
  explicit Replies(ipc::MessageSink& sink) : sink_(sink) {}

  void send(const PendingReply& to, std::span<const std::byte> body,
            std::vector<ipc::UniqueFd> fds = {});
  void error(const PendingReply& to, const Error& error);
  void json(const PendingReply& to, const nlohmann::json& value);
  void text(const PendingReply& to, const Text& text);
  /// What nobody asked for.
  void event(ipc::ConnectionId connection, ipc::MessageType type, std::span<const std::byte> body);

  /// As MessageSink's.
  void keep(ipc::ConnectionId connection) { sink_.keep(connection); }
  void hang_up(ipc::ConnectionId connection) { sink_.hang_up(connection); }

 private:
  ipc::MessageSink& sink_;
};

}  // namespace gradwire::control
