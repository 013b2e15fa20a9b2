// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control_messages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/types.h"
#include "ipc/message_socket.h"

namespace gradwire::ipc {

TEST_CASE("a body is taken only at its exact size") {
  const FreeRequest request = {7, 0};
  CHECK(body_as<FreeRequest>(bytes_of(request))->memory == 7);
  CHECK_FALSE(body_as<FreeRequest>(bytes_of(request).first(7)));
  CHECK_FALSE(body_as<FreeRequest>({}));
  CHECK_FALSE(body_as<AbortRequest>(bytes_of(request)));
}

TEST_CASE("text is cut between characters and always ends") {
  char field[6];
  copy_text(field, "abc");
  CHECK(std::string(field) == "abc");
  copy_text(field, "abcd\xc3\xa9");  // the last character would be half in
  CHECK(std::string(field) == "abcd");
  copy_text(field, "abc\xc3\xa9z");
  CHECK(std::string(field) == "abc\xc3\xa9");
  const char full[3] = {'x', 'y', 'z'};
  CHECK(text_of(full) == "xyz");
}

TEST_CASE("an error travels with its text, and without") {
  MessageHeader header;
  CHECK_FALSE(error_of(header, {}));
  header.error_code = static_cast<std::uint32_t>(ErrorCode::kBusy);
  const ErrorBody body = error_body("in use");
  CHECK(error_of(header, bytes_of(body))->code == ErrorCode::kBusy);
  CHECK(error_of(header, bytes_of(body))->message == "in use");
  CHECK(error_of(header, {})->code == ErrorCode::kBusy);
}

TEST_CASE("status text is in the body, or in a memfd") {
  Message reply;
  const std::string text = "{\"a\":1}";
  const auto bytes = std::as_bytes(std::span(text));
  reply.body.assign(bytes.begin(), bytes.end());
  CHECK(*status_text(reply) == text);
  reply.body.clear();
  UniqueFd fd(::memfd_create("status", MFD_CLOEXEC));
  REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  reply.fds.push_back(std::move(fd));
  CHECK(*status_text(reply) == text);
  reply.header.error_code = static_cast<std::uint32_t>(ErrorCode::kInternal);
  CHECK(status_text(reply).error().code == ErrorCode::kInternal);
}

}  // namespace gradwire::ipc
