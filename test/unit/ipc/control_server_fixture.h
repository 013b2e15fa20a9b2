// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A control server in a directory of its own, for tests. One thread.
#pragma once

#include <sys/un.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ipc/control_server.h"
#include "raw_socket.h"
#include "support/temporary_directory.h"

namespace gradwire::ipc::test {

using gradwire::test::TemporaryDirectory;

inline UniqueFd connect_to(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return {};
  }
  return socket;
}

/// A server in a directory of its own, and what it reported.
struct Fixture {
  Fixture() { options.path = directory.path + "/control.sock"; }
  void start() {
    auto made = ControlServer::create(options);
    INFO((made ? "" : made.error().message));
    REQUIRE(made);
    server = std::move(*made);
    server->set_callbacks({[this](ConnectionId id, const PeerCredentials& peer, const Message& m) {
                             messages.emplace_back(id, m.header.request_id);
                             peers.push_back(peer);
                             if (on_message) on_message(id, m);
                           },
                           [this](ConnectionId id) { hangups.push_back(id); }});
  }
  void poll(int rounds = 3) {
    for (int i = 0; i < rounds; ++i) server->poll(0);
  }
  TemporaryDirectory directory;
  ControlServerOptions options;
  std::unique_ptr<ControlServer> server;
  std::vector<std::pair<ConnectionId, std::uint32_t>> messages;
  std::vector<PeerCredentials> peers;
  std::vector<ConnectionId> hangups;
  std::function<void(ConnectionId, const Message&)> on_message;
};

}  // namespace gradwire::ipc::test
