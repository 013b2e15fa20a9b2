// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/join_message.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

namespace gradwire::ipc {
namespace {

std::string refusal(std::span<const std::byte> body) {
  const auto join = parse_join(body);
  return join ? std::string() : join.error().message;
}

Message in_memfd(UniqueFd fd) {
  Message message;
  message.fds.push_back(std::move(fd));
  return message;
}

std::string refusal(const Message& message) {
  const auto join = parse_join(message);
  return join ? std::string() : join.error().message;
}

/// The largest group there is.
std::vector<std::byte> largest_join() {
  std::vector<RankInfo> table(kMaxRanks);
  std::vector<std::uint16_t> ranks(kMaxProcesses);
  for (std::size_t rank = 0; rank < table.size(); ++rank) table[rank].incarnation = rank + 1;
  for (std::size_t p = 0; p < ranks.size(); ++p) ranks[p] = static_cast<std::uint16_t>(p / 64);
  JoinWants wants;
  wants.mode = WantedMode::kEncrypt;
  return encode_join({}, table, ranks, wants);
}

}  // namespace

TEST_CASE("a join travels") {
  JoinRequest request;
  request.group_id = 5;
  request.rank = 2;
  std::vector<RankInfo> table(3);
  table[2].incarnation = 99;
  const auto join = parse_join(std::span<const std::byte>(encode_join(request, table)));
  REQUIRE(join);
  CHECK(join->request.nranks == 3);
  CHECK(join->request.rank == 2);
  CHECK(join->table.size() == 3);
  CHECK(join->table[2].incarnation == 99);
  CHECK(join->ranks.empty());

  const std::vector<std::uint16_t> ranks = {2, 0, 1, 0};
  const auto placed = parse_join(std::span<const std::byte>(encode_join(request, table, ranks)));
  REQUIRE(placed);
  CHECK(placed->request.processes == 4);
  CHECK(placed->ranks == ranks);
}

TEST_CASE(
    "what a job wants of its packets travels with the join, and nothing if it wants nothing") {
  const std::vector<RankInfo> table(2);
  const std::vector<std::uint16_t> ranks = {1, 0};
  JoinWants wants;
  CHECK(encode_join({}, table, ranks, wants) == encode_join({}, table, ranks));
  wants.mode = WantedMode::kEncrypt;
  wants.job = {1, 2, 3, 4, 5, 6, 7, 8};
  auto body = encode_join({}, table, ranks, wants);
  const auto join = parse_join(std::span<const std::byte>(body));
  REQUIRE(join);
  CHECK(join->ranks == ranks);
  CHECK(join->wants == wants);
  CHECK_THAT(refusal(std::span<const std::byte>(body).first(body.size() - 1)),
             Catch::Contains("must have"));
  wants.mode = static_cast<WantedMode>(4);
  CHECK_THAT(refusal(std::span<const std::byte>(encode_join({}, table, ranks, wants))),
             Catch::Contains("security 4, must be 0 to 3"));
  JoinRequest odd;
  odd.nranks = 1;
  odd.flags = 4;
  CHECK_THAT(refusal(bytes_of(odd)), Catch::Contains("flags 0x4"));
}

TEST_CASE("a join with wrong counts is refused") {
  const std::vector<RankInfo> one(1);
  auto body = encode_join({}, one);
  CHECK(refusal(std::span<const std::byte>()) != "");
  CHECK(refusal(std::span<const std::byte>(body).first(sizeof(JoinRequest) - 1)) != "");
  CHECK(refusal(std::span<const std::byte>(body).first(body.size() - 1)) != "");
  body.push_back({});
  CHECK(refusal(std::span<const std::byte>(body)) != "");
  CHECK_THAT(refusal(std::span<const std::byte>(encode_join({}, {}))), Catch::Contains("0 ranks"));
  const std::vector<RankInfo> many(kMaxRanks + 1);
  CHECK_THAT(refusal(std::span<const std::byte>(encode_join({}, many))),
             Catch::Contains("1025 ranks, must be 1 to 1024"));
  // Numbers that promise more than there is.
  JoinRequest liar;
  liar.nranks = kMaxRanks;
  CHECK_THAT(refusal(bytes_of(liar)), Catch::Contains("must have 524320"));
  liar.nranks = 1;
  liar.processes = kMaxProcesses + 1;
  CHECK_THAT(refusal(bytes_of(liar)), Catch::Contains("65536 processes, must be at most 65535"));
  liar.processes = UINT32_MAX;
  CHECK_THAT(refusal(bytes_of(liar)), Catch::Contains("must be at most 65535"));
}

TEST_CASE("the largest join is too long for a message and travels by memfd") {
  const std::vector<std::byte> body = largest_join();
  CHECK(body.size() == kMaxJoinBytes);
  REQUIRE(is_long(body));
  CHECK_FALSE(is_long(std::span(body).first(kMaxMessageBytes - sizeof(MessageHeader))));
  CHECK(is_long(std::span(body).first(kMaxMessageBytes - sizeof(MessageHeader) + 1)));

  int ends[2] = {};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  const auto memfd = to_memfd(body);
  REQUIRE(memfd);
  const int fd = memfd->get();
  REQUIRE(send_message(from.get(), {}, {}, std::span(&fd, 1)));
  Message message;
  REQUIRE(receive_message(to.get(), message));
  const auto join = parse_join(message);
  REQUIRE(join);
  CHECK(join->table.size() == kMaxRanks);
  CHECK(join->table.back().incarnation == kMaxRanks);
  CHECK(join->ranks.size() == kMaxProcesses);
  CHECK(join->ranks.back() == 1023);
}

TEST_CASE("a memfd that could still change, or is none, is refused") {
  const std::vector<std::byte> body = encode_join({}, std::vector<RankInfo>(2));
  const auto made = [&body](unsigned flags, int seals) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | flags));
    REQUIRE(::write(fd.get(), body.data(), body.size()) == static_cast<ssize_t>(body.size()));
    if (seals != 0) REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    return in_memfd(std::move(fd));
  };
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  CHECK(refusal(made(MFD_ALLOW_SEALING, kAll)).empty());
  for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE}) {
    CHECK_THAT(refusal(made(MFD_ALLOW_SEALING, kAll & ~missing)),
               Catch::Contains("no memfd that is sealed"));
  }
  CHECK_THAT(refusal(made(0, 0)), Catch::Contains("no memfd that is sealed"));
  int pipe_ends[2] = {};
  REQUIRE(::pipe2(pipe_ends, O_CLOEXEC) == 0);  // nothing is in it: a read would wait for ever
  const UniqueFd writer(pipe_ends[1]);
  CHECK_THAT(refusal(in_memfd(UniqueFd(pipe_ends[0]))), Catch::Contains("no memfd"));
  CHECK_THAT(refusal(in_memfd(UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC)))),
             Catch::Contains("no memfd"));
}

TEST_CASE("a memfd of the wrong size, and a request in two places, are refused") {
  std::vector<std::byte> body = encode_join({}, std::vector<RankInfo>(2));
  body.pop_back();
  CHECK_THAT(refusal(in_memfd(to_memfd(body).value())), Catch::Contains("has 1055 bytes"));
  CHECK_THAT(refusal(in_memfd(to_memfd({}).value())), Catch::Contains("of 0 bytes"));
  const std::vector<std::byte> large(kMaxJoinBytes + 1);
  CHECK_THAT(refusal(in_memfd(to_memfd(large).value())),
             Catch::Contains("must be at most " + std::to_string(kMaxJoinBytes)));

  Message both = in_memfd(to_memfd(largest_join()).value());
  both.body = encode_join({}, std::vector<RankInfo>(2));
  CHECK_THAT(refusal(both), Catch::Contains("came with 1 file descriptors"));
  Message two = in_memfd(to_memfd(largest_join()).value());
  two.fds.push_back(to_memfd(largest_join()).value());
  CHECK_THAT(refusal(two), Catch::Contains("came with 2 file descriptors"));
}

}  // namespace gradwire::ipc
