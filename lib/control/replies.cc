// SPDX-License-Identifier: BSD-3-Clause
#include "control/replies.h"

#include <fmt/format.h>

#include <utility>

#include "control/lent_texts.h"

namespace gradwire::control {
namespace {

using nlohmann::json;

ipc::MessageHeader header_of(const PendingReply& to) {
  ipc::MessageHeader header;
  header.type = static_cast<std::uint16_t>(to.type);
  header.request_id = to.request_id;
  return header;
}

}  // namespace

Text::Text(const json& value)
    // Texts may come from clients: bytes that are no UTF-8 are replaced, not thrown at us.
    : text(value.dump(-1, ' ', false, json::error_handler_t::replace)),
      is_long(text.size() > ipc::kMaxMessageBytes - sizeof(ipc::MessageHeader)) {
  if (is_long) file = text_file(text);
}

void Replies::send(const PendingReply& to, std::span<const std::byte> body,
                   std::vector<ipc::UniqueFd> fds) {
  if (to.request_id == ipc::kNoReply) return;
  sink_.send(to.connection, header_of(to), body, std::move(fds));
}

void Replies::error(const PendingReply& to, const Error& error) {
  if (to.request_id == ipc::kNoReply) return;
  ipc::MessageHeader header = header_of(to);
  header.error_code = static_cast<std::uint32_t>(error.code);
  const ipc::ErrorBody body = ipc::error_body(error.message);
  sink_.send(to.connection, header, ipc::bytes_of(body), {});
}

void Replies::json(const PendingReply& to, const nlohmann::json& value) { text(to, Text(value)); }

void Replies::text(const PendingReply& to, const Text& text) {
  if (!text.is_long) return send(to, std::as_bytes(std::span(text.text)));
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(for_reading(text.file));
  if (!fds.front()) {
    return error(to,
                 {ErrorCode::kSystem,
                  fmt::format("the answer to '{}' has {} bytes, and creating a file for it failed",
                              ipc::name_of(to.type), text.text.size())});
  }
  send(to, {}, std::move(fds));
}

void Replies::event(ipc::ConnectionId connection, ipc::MessageType type,
                    std::span<const std::byte> body) {
  ipc::MessageHeader header;
  header.type = static_cast<std::uint16_t>(type);
  sink_.send(connection, header, body, {});
}

}  // namespace gradwire::control
