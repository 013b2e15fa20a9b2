// SPDX-License-Identifier: BSD-3-Clause
// Groups whose packets are to be sealed, from the request for an entry to the plan.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "fake_daemon.h"
#include "keys_support.h"
#include "security/key_file.h"

namespace gradwire::control {
namespace {

using ipc::MessageType;
using security::Mode;
using test::FakeDaemon;
using test::FakeWorker;
using test::KeyedDaemon;

const std::vector<unsigned char> kNoKeys;
const std::vector<unsigned char> kOneKey = {1};

struct Daemon : FakeDaemon {
  explicit Daemon(const std::vector<unsigned char>& firsts = kOneKey, FakeWorker* worker = nullptr)
      : FakeDaemon({}, worker), other(1, firsts) {
    options.keys.cluster = test::cluster_of(firsts);
    options.keys.sealed_payload_bytes = 8128;
    make();
  }
  Result<ipc::RankInfo> describe(ipc::ConnectionId connection, const ipc::DescribeRequest& wanted,
                                 uid_t uid = test::kUid) {
    send(connection, MessageType::kDescribe, ipc::bytes_of(wanted), uid);
    const auto sent = take(connection);
    if (sent.code() != ErrorCode::kOk) return fail(sent.code(), sent.error());
    return ipc::body_as<ipc::RankInfo>(sent.body).value();
  }
  ipc::RankInfo described(ipc::ConnectionId connection, Mode mode) {
    ipc::DescribeRequest wanted;
    wanted.mode = test::wanted(mode);
    const auto info = describe(connection, wanted);
    if (!info) FAIL(info.error().message);
    return *info;
  }
  /// Of rank 0 and `other`.
  ipc::JoinBody join_of(const ipc::RankInfo& own, Mode mode, std::uint16_t member = 0,
                        std::uint16_t members = 1) {
    auto body = test::join_body(0, {own, other.entry(mode)}, member, members);
    body.wants = test::wants(mode);
    return body;
  }
  void join_with(ipc::ConnectionId connection, const ipc::JoinBody& body) {
    const auto bytes = ipc::encode_join(body.request, body.table, body.ranks, body.wants);
    send(connection, MessageType::kJoin, std::span<const std::byte>(bytes));
  }
  KeyedDaemon other;
};

ipc::DescribeRequest with_job_key(unsigned char first, Mode mode = Mode::kEncrypt) {
  ipc::DescribeRequest wanted;
  wanted.mode = test::wanted(mode);
  wanted.has_job_key = 1;
  const security::Secret32 key = test::key_bytes(first);
  std::memcpy(wanted.job_key, key.span().data(), 32);
  return wanted;
}

}  // namespace

TEST_CASE("a daemon without keys describes itself as ever, and to no job that wants more") {
  Daemon daemon(kNoKeys);
  daemon.open(1);
  daemon.send(1, MessageType::kDescribe, std::span<const std::byte>());
  const auto info = ipc::body_as<ipc::RankInfo>(daemon.take(1).body).value();
  CHECK(std::ranges::count(info.keys, 0) == sizeof info.keys);
  CHECK(info.checksum == checksum_of(info));
  CHECK_THAT(daemon.describe(1, {ipc::WantedMode::kEncrypt}).error().message,
             Catch::Contains("this daemon has no key"));
  CHECK_THAT(daemon.describe(1, with_job_key(9, Mode::kOff)).error().message,
             Catch::Contains("this daemon has no cluster's key"));
  CHECK(daemon.describe(1, {ipc::WantedMode::kOff}));
}

TEST_CASE("an entry says for whom and for what it was made") {
  Daemon daemon;
  daemon.open(1);
  const auto info = daemon.described(1, Mode::kAuthenticate);
  CHECK(info.checksum == checksum_of(info));
  const auto said = security::read_keys(bytes_of_entry(info)).value();
  CHECK(said.wanted == Mode::kAuthenticate);
  CHECK(said.user == test::kUid);
  CHECK(said.payload_bytes == 8128);
  CHECK(said.key_count == 1);
  CHECK(said.ids[0] == test::key_id(1));
  CHECK_FALSE(is_key(said.job));
  CHECK(security::mac_fits(bytes_of_entry(info), test::cluster_of({1})->all()[0]));
  // All processes of a user get the same.
  daemon.open(2);
  const auto again = daemon.described(2, Mode::kAuthenticate);
  CHECK(std::memcmp(&again, &info, sizeof info) == 0);
  const auto another = daemon.describe(2, {ipc::WantedMode::kAuthenticate}, 501).value();
  CHECK(security::read_keys(bytes_of_entry(another))->public_key != said.public_key);
  CHECK_FALSE(daemon.describe(2, {static_cast<ipc::WantedMode>(4)}));
  daemon.send(2, MessageType::kDescribe, ipc::OpenRequest{});
  daemon.refused(2, ErrorCode::kInvalidArgument, "must have 40");
}

TEST_CASE("a group's keys are in its plan, and in its tokens") {
  Daemon daemon;
  daemon.open(1);
  daemon.join_with(1, daemon.join_of(daemon.described(1, Mode::kEncrypt), Mode::kEncrypt));
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  const PlanRequest& plan = daemon.lanes.plan_requests[0];
  CHECK(plan.security.mode == Mode::kEncrypt);
  CHECK(plan.payload_bytes == 8128);
  REQUIRE(plan.keys != nullptr);
  CHECK(plan.keys->has(1));
  CHECK(plan.tokens[0].downstream == plan.keys->tokens(0, 1));
  const auto group = daemon.group_json();
  CHECK(group["security"] == "encrypt");
  CHECK(group["key"] == security::text_of(test::key_id(1)));
  CHECK(daemon.status_json()["daemon"]["keys"].size() == 1);
  daemon.all_lanes_formed(1);
  daemon.take_join_reply(1);
}

TEST_CASE("a lane that wants the next key gets it, and no other") {
  Daemon daemon;
  daemon.open(1);
  daemon.join_with(1, daemon.join_of(daemon.described(1, Mode::kEncrypt), Mode::kEncrypt));
  daemon.all_lanes_formed(1);
  daemon.take_join_reply(1);
  const auto wish = [&](std::uint64_t handle, std::uint8_t lane, std::uint16_t rank,
                        std::uint64_t generation) {
    command::Notice notice;
    notice.type = command::NoticeType::kKeyWanted;
    notice.group_handle = handle;
    notice.lane = lane;
    notice.wish = {rank, security::Direction::kFrom, generation};
    daemon.lanes.notices.push_back(notice);
    daemon.poll();
    return daemon.lanes.holding(command::RequestType::kSupplyKey).size();
  };
  CHECK(wish(99, 0, 1, 2) == 0);  // no group
  CHECK(wish(1, 0, 1, 3) == 0);   // 2 comes first
  CHECK(wish(1, 0, 0, 2) == 0);   // this rank itself
  CHECK(wish(1, 9, 1, 2) == 0);   // no lane
  REQUIRE(wish(1, 0, 1, 2) == 1);
  const command::Request& supply = *daemon.lanes.holding(command::RequestType::kSupplyKey).front();
  CHECK(supply.group_handle == 1);
  CHECK(supply.wish.generation == 2);
  CHECK(*supply.key);
  CHECK(wish(1, 0, 1, 2) == 1);  // it is given once
  CHECK(wish(1, 0, 1, 3) == 2);
  CHECK(daemon.lanes.finish(command::RequestType::kSupplyKey) == 2);
  daemon.poll();
  CHECK(daemon.status_json()["lanes"][0]["requests_unsent"] == 0);
}

TEST_CASE("a group that wants off has no keys") {
  Daemon daemon;
  daemon.open(1);
  daemon.join_with(1, daemon.join_of(daemon.described(1, Mode::kOff), Mode::kOff));
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  CHECK(daemon.lanes.plan_requests[0].keys == nullptr);
  CHECK(daemon.lanes.plan_requests[0].payload_bytes == 8192);
  CHECK(daemon.group_json()["security"] == "off");
}

TEST_CASE("each member asks for what the entry says") {
  Daemon daemon;
  daemon.open(1);
  daemon.open(2);
  const auto own = daemon.described(1, Mode::kEncrypt);
  auto first = daemon.join_of(own, Mode::kEncrypt, 0, 2);
  daemon.join_with(1, first);
  auto second = first;
  second.request.member = 1;
  second.wants = test::wants(Mode::kAuthenticate);
  daemon.join_with(2, second);
  daemon.refused(2, ErrorCode::kMismatch, "says that the job wants encrypt");
  second.wants = first.wants;
  daemon.join_with(2, second);
  CHECK(daemon.lanes.plan_requests.size() == 1);
}

TEST_CASE("keys are made beside the control thread, and a group that ends meanwhile gets none") {
  FakeWorker worker;
  Daemon daemon(kOneKey, &worker);
  daemon.open(1);
  const auto own = daemon.described(1, Mode::kEncrypt);
  daemon.join_with(1, daemon.join_of(own, Mode::kEncrypt));
  REQUIRE(worker.jobs.size() == 1);
  daemon.poll(5);
  CHECK(daemon.lanes.plan_requests.empty());
  worker.run();
  daemon.poll();
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  daemon.poll();
  CHECK(worker.jobs.empty());
  CHECK(daemon.lanes.plan_requests.size() == 1);

  daemon.open(2);
  auto next = daemon.join_of(own, Mode::kEncrypt);
  next.request.epoch = 2;
  daemon.join_with(2, next);
  REQUIRE(worker.jobs.size() == 1);
  daemon.hang_up(2);
  worker.run();
  daemon.poll();
  CHECK(daemon.lanes.plan_requests.size() == 1);
  // It was begun: its epoch does not come again.
  daemon.open(3);
  daemon.join_with(3, next);
  daemon.refused(3, ErrorCode::kBusy, "has begun to form epoch 2");
}

TEST_CASE("the keys of a user's groups have a bound, and the worker frees them") {
  FakeWorker worker;
  Daemon daemon(kOneKey, &worker);
  // Two lanes and one other rank: room for one group of each user.
  const std::uint64_t kGroup = 2 * GroupKeys::link_bytes();
  daemon.options.limits.key_bytes = 2 * kGroup + 100;
  daemon.options.limits.key_bytes_per_user = 2 * kGroup - 1;
  daemon.make();
  daemon.open(1);
  daemon.open(2);
  const auto own = daemon.described(1, Mode::kEncrypt);
  auto next = daemon.join_of(own, Mode::kEncrypt);
  std::uint64_t handle = 0;
  // The keys of what was made before wait to be freed, and are not counted as the user's.
  for (std::size_t waiting = 0; waiting < 3; ++waiting) {
    daemon.join_with(1, next);
    REQUIRE(worker.jobs.size() == waiting + 1);
    worker.run_last();
    daemon.poll();
    CHECK(daemon.group_json()["key_memory_bytes"] == kGroup);
    REQUIRE(daemon.lanes.plan_requests.size() == 1);
    daemon.all_lanes_formed(++handle);
    daemon.take_join_reply(1);
    auto other = next;
    other.request.group_id += 1'000;
    daemon.join_with(2, other);
    daemon.refused(2, ErrorCode::kResourceExhausted, "raise limits.key_memory_mib");
    daemon.leave(1, handle);
    daemon.poll();
    CHECK(daemon.lanes.finish(command::RequestType::kLeaveGroup) == 2);
    CHECK(worker.jobs.size() == waiting);
    daemon.lanes.plan_requests.clear();  // it has them too
    daemon.poll();
    daemon.take(1);
    REQUIRE(worker.jobs.size() == waiting + 1);
    ++next.request.epoch;
  }
  // As much again may wait, and no more.
  daemon.join_with(1, next);
  daemon.refused(1, ErrorCode::kBusy, "of groups that user 500 left are not cleared yet");
  worker.run();
  daemon.join_with(1, next);
  REQUIRE(worker.jobs.size() == 3);
  // Given up before they are made, and before they are taken: the worker frees them too.
  daemon.hang_up(1);
  while (!worker.jobs.empty()) worker.run();
  daemon.open(3);
  ++next.request.epoch;
  daemon.join_with(3, next);
  REQUIRE(worker.jobs.size() == 1);
  worker.run();
  daemon.hang_up(3);
  CHECK(daemon.lanes.plan_requests.empty());
  REQUIRE(worker.jobs.size() == 1);
  worker.run();
}

TEST_CASE("a key that is retired while members gather ends the group") {
  FakeWorker worker;
  Daemon daemon(kOneKey, &worker);
  daemon.options.keys.users = {1, 2, 8};
  daemon.make();
  daemon.open(1);
  daemon.open(2);
  const auto own = daemon.described(1, Mode::kEncrypt);
  auto waiting = daemon.join_of(own, Mode::kEncrypt, 0, 2);
  daemon.join_with(1, waiting);
  for (std::uint64_t id : {5, 6}) {
    daemon.open(10 + id);
    auto body = daemon.join_of(daemon.described(10 + id, Mode::kOff), Mode::kOff);
    body.request.group_id = id;
    daemon.join_with(10 + id, body);
  }
  waiting.request.member = 1;
  daemon.join_with(2, waiting);
  daemon.refused(2, ErrorCode::kUnavailable, "the entry of rank 0 is too old: ask for another one");
  CHECK(worker.jobs.empty());
}

TEST_CASE("a job's key is brought with the request for the entry, and kept as long as it is used") {
  Daemon daemon;
  daemon.send(1, MessageType::kDescribe, ipc::bytes_of(with_job_key(9)));
  daemon.refused(1, ErrorCode::kInvalidArgument, "a job's key came before 'open'");
  daemon.open(1);
  daemon.open(2);
  const security::KeyId job = test::job_key(9)->id;
  const auto own = daemon.describe(1, with_job_key(9)).value();
  CHECK(security::read_keys(bytes_of_entry(own))->job == job);
  auto body = test::join_body(0, {own, daemon.other.entry(Mode::kEncrypt, test::kUid, job)});
  body.wants = test::wants(Mode::kEncrypt, job);
  daemon.join_with(2, body);
  daemon.refused(2, ErrorCode::kInvalidArgument, "this connection has not brought it");
  daemon.join_with(1, body);
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  CHECK(daemon.group_json()["job_key"] == security::text_of(job));
  auto bad = with_job_key(9);
  std::memset(bad.job_key, 'a', sizeof bad.job_key);
  CHECK_THAT(daemon.describe(1, bad).error().message, Catch::Contains("the job's key: all its"));
  for (unsigned char i = 0; i < Entries::kJobKeysMax - 1; ++i) {
    REQUIRE(daemon.describe(1, with_job_key(static_cast<unsigned char>(20 + i))));
  }
  CHECK_THAT(daemon.describe(1, with_job_key(200)).error().message,
             Catch::Contains("has brought 64 keys"));
  CHECK(daemon.describe(1, with_job_key(9)));
}

TEST_CASE("key files are read again on request, and groups that wait for a key that went end") {
  char name[] = "/tmp/gradwire-keys-test.XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  const std::string folder = name;
  KeyFiles files{folder + "/first", folder + "/second"};
  REQUIRE(security::make_key_file(files.first));
  Daemon daemon;
  daemon.options.keys.files = files;
  daemon.options.keys.cluster = read_cluster_keys(files).value();
  daemon.make();
  const auto load = [&](ErrorCode code) {
    daemon.send(9, MessageType::kLoadKeys, std::span<const std::byte>(), 0);
    const auto sent = daemon.take(9);
    CHECK(sent.code() == code);
    if (code != ErrorCode::kOk) return nlohmann::json(sent.error());
    return nlohmann::json::parse(
        std::string(reinterpret_cast<const char*>(sent.body.data()), sent.body.size()))["keys"];
  };
  const auto before = load(ErrorCode::kOk);
  CHECK(before.size() == 1);
  // Another becomes the second, then the first, and then the old one goes.
  REQUIRE(security::make_key_file(files.second));
  const auto both = load(ErrorCode::kOk);
  REQUIRE(both.size() == 2);
  CHECK(both[0] == before[0]);
  std::filesystem::rename(files.first, folder + "/swap");
  std::filesystem::rename(files.second, files.first);
  std::filesystem::rename(folder + "/swap", files.second);
  CHECK(load(ErrorCode::kOk) == nlohmann::json::array({both[1], both[0]}));

  // A group of the old key waits for its second member.
  daemon.open(1);
  daemon.open(2);
  const auto own = daemon.described(1, Mode::kEncrypt);
  daemon.other.options.cluster = read_cluster_keys({files.second, {}}).value();
  daemon.other.keys = std::make_unique<DaemonKeys>(daemon.other.options, 101);
  auto body = daemon.join_of(own, Mode::kEncrypt, 0, 2);
  daemon.join_with(1, body);
  std::filesystem::remove(files.second);
  CHECK(load(ErrorCode::kOk) == nlohmann::json::array({both[1]}));
  CHECK(daemon.status_json()["daemon"]["keys"] == nlohmann::json::array({both[1]}));
  body.request.member = 1;
  daemon.join_with(2, body);
  daemon.refused(2, ErrorCode::kUnavailable, "was taken away from this daemon");

  std::ofstream(files.first, std::ios::trunc) << "short";
  CHECK_THAT(load(ErrorCode::kInvalidArgument).get<std::string>(),
             Catch::Contains("has 5 bytes, must have 32"));
  CHECK(daemon.status_json()["daemon"]["keys"] == nlohmann::json::array({both[1]}));
  daemon.send(9, MessageType::kLoadKeys, std::span<const std::byte>(), 12345);
  daemon.refused(9, ErrorCode::kPermission, "only root and the daemon's own user");
  std::filesystem::remove_all(folder);

  Daemon none(kNoKeys);
  none.send(9, MessageType::kLoadKeys, std::span<const std::byte>(), 0);
  none.refused(9, ErrorCode::kUnsupported, "set security.key_file");
}

}  // namespace gradwire::control
