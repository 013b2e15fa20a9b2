// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control_messages.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/types.h"
#include "ipc/message_socket.h"

namespace gradwire::ipc {
namespace {

constexpr std::uint64_t kMaxStatusBytes = 64ull << 20;

/// Bytes of `text` up to `limit` that end between two UTF-8 characters.
std::size_t whole_characters(std::string_view text, std::size_t limit) noexcept {
  if (text.size() <= limit) return text.size();
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return limit;
}

}  // namespace

void copy_text(std::span<char> field, std::string_view text) noexcept {
  if (field.empty()) return;
  const std::size_t bytes = whole_characters(text, field.size() - 1);
  std::fill(field.begin(), field.end(), '\0');
  std::copy_n(text.data(), bytes, field.data());
}

ErrorBody error_body(std::string_view text) noexcept {
  ErrorBody body;
  copy_text(body.text, text);
  return body;
}

std::optional<Error> error_of(const MessageHeader& header, std::span<const std::byte> body) {
  if (header.error_code == 0) return std::nullopt;
  const auto error = body_as<ErrorBody>(body);
  return Error{
      static_cast<ErrorCode>(header.error_code),
      error ? text_of(error->text) : std::string("the daemon sent an error without a text")};
}

std::optional<AllocateReply> allocate_reply(std::span<const std::byte> body) noexcept {
  if (const auto on_gpu = body_as<CudaAllocateReply>(body)) return on_gpu->memory;
  return body_as<AllocateReply>(body);
}

Result<std::string> status_text(const Message& reply) {
  if (auto error = error_of(reply.header, reply.body)) return tl::unexpected(*error);
  if (reply.fds.empty()) {
    return std::string(reinterpret_cast<const char*>(reply.body.data()), reply.body.size());
  }
  struct stat info = {};
  const int fd = reply.fds.front().get();
  if (::fstat(fd, &info) != 0 || info.st_size < 0 ||
      static_cast<std::uint64_t>(info.st_size) > kMaxStatusBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the daemon's answer has {} bytes, must be at most {}", info.st_size,
                            kMaxStatusBytes));
  }
  constexpr const char* kTakenBack =
      "the daemon deleted its answer before it was read, because it was too old or newer ones "
      "needed the room: ask again";
  if (info.st_size == 0) return fail(ErrorCode::kBusy, kTakenBack);
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got =
        ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(ErrorCode::kBusy, kTakenBack);
    done += static_cast<std::size_t>(got);
  }
  return text;
}

const char* name_of(MessageType type) noexcept {
  switch (type) {
    case MessageType::kOpen:
      return "open";
    case MessageType::kAllocate:
      return "allocate";
    case MessageType::kFree:
      return "free";
    case MessageType::kDescribe:
      return "describe";
    case MessageType::kJoin:
      return "join";
    case MessageType::kLeave:
      return "leave";
    case MessageType::kAbort:
      return "abort";
    case MessageType::kStatus:
      return "status";
    case MessageType::kTrace:
      return "trace";
    case MessageType::kDrain:
      return "drain";
    case MessageType::kMakeEvent:
      return "make-event";
    case MessageType::kClose:
      return "close";
    case MessageType::kInject:
      return "inject";
    case MessageType::kLoadKeys:
      return "load-keys";
    case MessageType::kGroupAborted:
      return "group-aborted";
    case MessageType::kCutOff:
      return "cut off";
  }
  return "message?";
}

}  // namespace gradwire::ipc
