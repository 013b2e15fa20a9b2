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
  CHECK_FALSE(body_as<JoinRequest>(bytes_of(request)));
}

TEST_CASE("a join travels") {
  JoinRequest request;
  request.group_id = 5;
  request.rank = 2;
  std::vector<RankInfo> table(3);
  table[2].incarnation = 99;
  const auto join = parse_join(encode_join(request, table));
  REQUIRE(join);
  CHECK(join->request.nranks == 3);
  CHECK(join->request.rank == 2);
  CHECK(join->table.size() == 3);
  CHECK(join->table[2].incarnation == 99);
}

TEST_CASE("a join with wrong counts is refused") {
  CHECK_FALSE(parse_join({}));
  const std::vector<RankInfo> one(1);
  auto body = encode_join({}, one);
  CHECK_FALSE(parse_join(std::span(body).first(sizeof(JoinRequest) - 1)));
  CHECK_FALSE(parse_join(std::span(body).first(body.size() - 1)));
  body.push_back({});
  CHECK_FALSE(parse_join(body));
  CHECK_THAT(parse_join(encode_join({}, {})).error().message, Catch::Contains("0 ranks"));
  const std::vector<RankInfo> many(kMaxRanks + 1);
  CHECK_THAT(parse_join(encode_join({}, many)).error().message, Catch::Contains("65 ranks"));
  // nranks that promises more than there is.
  JoinRequest liar;
  liar.nranks = kMaxRanks;
  CHECK_THAT(parse_join(bytes_of(liar)).error().message, Catch::Contains("must have"));
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
