// SPDX-License-Identifier: BSD-3-Clause
// The manager behind a real control socket, wired as the daemon does it.
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fake_daemon.h"
#include "ipc/control_server.h"

namespace gradwire::control {
namespace {

using ipc::MessageType;
using test::join_body;
using test::RequestType;
using test::table_of;

class Wiring {
 public:
  explicit Wiring(ipc::PageKind pages) {
    spdlog::set_level(spdlog::level::off);
    char name[] = "/tmp/gradwire_wiring_XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    directory_ = name;
    ipc::ControlServerOptions where;
    where.path = directory_ + "/control.sock";
    auto made = ipc::ControlServer::create(where);
    REQUIRE(made);
    server = std::move(*made);
    ManagerOptions options;
    options.daemon = test::daemon_info(100);
    options.pages = pages;
    lanes.answers.insert(
        {RequestType::kRemoveClient, RequestType::kRemoveMemory, RequestType::kLeaveGroup});
    manager = std::make_unique<Manager>(options, lanes, memory, reports, *server, now);
    server->set_callbacks(
        {[this](ipc::ConnectionId id, const ipc::PeerCredentials& peer,
                const ipc::Message& message) { manager->on_message(id, peer, message, now); },
         [this](ipc::ConnectionId id) { manager->on_hangup(id, now); }});
  }
  ~Wiring() { std::filesystem::remove_all(directory_); }

  void loop() {
    for (int i = 0; i < 5; ++i) {
      now += 1'000'000;
      server->poll(0);
      manager->poll(now);
    }
  }
  ipc::UniqueFd connect() const {
    ipc::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = directory_ + "/control.sock";
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    return socket;
  }
  ipc::Message ask(const ipc::UniqueFd& socket, MessageType type, std::span<const std::byte> body) {
    ipc::MessageHeader header;
    header.type = static_cast<std::uint16_t>(type);
    header.request_id = 7;
    REQUIRE(*ipc::send_message(socket.get(), header, body) == ipc::SocketStatus::kDone);
    loop();
    if (type == MessageType::kJoin) {
      lanes.formed(1, 0);
      lanes.formed(1, 1);
      loop();
    }
    ipc::Message reply;
    REQUIRE(*ipc::receive_message(socket.get(), reply) == ipc::SocketStatus::kDone);
    const auto error = ipc::error_of(reply.header, reply.body);
    INFO((error ? error->message : ""));
    REQUIRE_FALSE(error);
    CHECK(reply.header.request_id == 7);
    return reply;
  }

  TimeNs now = 1;
  test::FakeLanes lanes;
  test::FakeMemory memory;
  test::FakeReports reports{lanes};
  std::unique_ptr<ipc::ControlServer> server;
  std::unique_ptr<Manager> manager;

 private:
  std::string directory_;
};

long free_hugepages() {
  std::string word;
  std::ifstream info("/proc/meminfo");
  while (info >> word) {
    long count = 0;
    if (word == "HugePages_Free:" && info >> count) return count;
  }
  return 0;
}

/// Open, allocate, join, leave, free, hang up.
void whole_life(Wiring& daemon) {
  const ipc::UniqueFd socket = daemon.connect();
  ipc::Message reply = daemon.ask(socket, MessageType::kOpen, ipc::bytes_of(ipc::OpenRequest{}));
  CHECK(reply.fds.size() == 3);
  reply = daemon.ask(socket, MessageType::kAllocate, ipc::bytes_of(ipc::AllocateRequest{100'000}));
  REQUIRE(reply.fds.size() == 1);
  const auto memory = ipc::body_as<ipc::AllocateReply>(reply.body).value();
  CHECK(memory.bytes >= 100'000);
  auto table = table_of(2);
  table[0] = test::rank_info(0, 2, ::geteuid());
  const auto body = join_body(0, table);
  reply = daemon.ask(socket, MessageType::kJoin, ipc::encode_join(body.request, body.table));
  const auto joined = ipc::body_as<ipc::JoinReply>(reply.body).value();
  reply = daemon.ask(socket, MessageType::kStatus, {});
  const auto status = nlohmann::json::parse(ipc::status_text(reply).value());
  CHECK(status["groups"][0]["state"] == "formed");
  CHECK(status["clients"][0]["pid"] == ::getpid());
  daemon.ask(socket, MessageType::kLeave, ipc::bytes_of(ipc::GroupRequest{joined.group_handle}));
  daemon.ask(socket, MessageType::kFree, ipc::bytes_of(ipc::FreeRequest{memory.memory, 0}));
}

}  // namespace

TEST_CASE("a client's whole life over a real socket") {
  Wiring daemon(ipc::PageKind::kOrdinaryForTests);
  whole_life(daemon);
  daemon.loop();
  CHECK(daemon.manager->client_count() == 0);
  CHECK(daemon.manager->group_count() == 0);
  CHECK(daemon.server->connections() == 0);
}

TEST_CASE("a client's whole life in hugepages") {
  if (free_hugepages() < 2) {
    WARN("skipped: fewer than 2 free hugepages; reserve some with vm.nr_hugepages");
    return;
  }
  Wiring daemon(ipc::PageKind::kHuge);
  whole_life(daemon);
  daemon.loop();
  CHECK(daemon.manager->client_count() == 0);
}

TEST_CASE("a stopping daemon lets its clients go, and is done") {
  Wiring daemon(ipc::PageKind::kOrdinaryForTests);
  const ipc::UniqueFd socket = daemon.connect();
  daemon.ask(socket, MessageType::kOpen, ipc::bytes_of(ipc::OpenRequest{}));
  daemon.manager->begin_stop(daemon.now);
  daemon.loop();
  CHECK(daemon.manager->stopped(daemon.now));
  CHECK(daemon.server->connections() == 0);
  ipc::Message message;
  REQUIRE(*ipc::receive_message(socket.get(), message) == ipc::SocketStatus::kDone);
  CHECK(message.type() == ipc::MessageType::kCutOff);
  CHECK(*ipc::receive_message(socket.get(), message) == ipc::SocketStatus::kClosed);
}

}  // namespace gradwire::control
