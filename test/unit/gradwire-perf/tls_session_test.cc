// SPDX-License-Identifier: BSD-3-Clause
#include "tcp/tls_session.h"

#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <future>
#include <vector>

#include "tcp/tcp_socket.h"

using namespace gradwire;
using namespace gradwire::perf;

namespace {

Clock::time_point soon() { return Clock::now() + std::chrono::seconds(10); }

/// Two sockets over loopback.
struct Connection {
  Connection() {
    const auto listener = tcp_listen("127.0.0.1", 0, {});
    client = std::move(*tcp_connect("127.0.0.1", *tcp_port(*listener), {}, soon()));
    server = std::move(*tcp_accept(*listener, {}, soon()));
  }
  TcpSocket client;
  TcpSocket server;
};

/// Both ends shake hands.
void secure(Connection& both) {
  auto served =
      std::async(std::launch::async, [&] { return both.server.secure(TlsEnd::kServer, soon()); });
  REQUIRE(both.client.secure(TlsEnd::kClient, soon()).has_value());
  REQUIRE(served.get().has_value());
}

}  // namespace

TEST_CASE("what goes by TLS comes whole, both ways, and says who seals it") {
  Connection both;
  CHECK(both.client.tls_text().empty());
  secure(both);
  CHECK(both.client.tls_text().find("TLSv1.3, TLS_AES_128_GCM_SHA256, sealed by ") == 0);
  CHECK(both.server.tls_text().find(", opened by ") != std::string::npos);
  std::vector<std::byte> sent(3'000'001);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31 >> 3);
  for (const auto& [from, to] :
       {std::pair(&both.client, &both.server), std::pair(&both.server, &both.client)}) {
    auto sending = std::async(std::launch::async,
                              [&, from = from] { return tcp_send_all(*from, sent, soon()); });
    std::vector<std::byte> got(sent.size());
    REQUIRE(tcp_receive_all(*to, got, soon()).has_value());
    CHECK(sending.get().has_value());
    CHECK(got == sent);
  }
}

TEST_CASE("nothing that is sent by TLS is in clear on the wire") {
  Connection both;
  secure(both);
  const std::vector<std::byte> sent(1000, std::byte{0x5a});
  REQUIRE(tcp_send_all(both.client, sent, soon()).has_value());
  // Read past the session, as whoever taps the wire does.
  std::array<std::byte, 1500> wire{};
  std::size_t bytes = 0;
  while (bytes < sent.size()) {
    const ssize_t more = ::recv(both.server.fd(), &wire[bytes], wire.size() - bytes, 0);
    if (more < 0 && errno == EAGAIN) continue;
    REQUIRE(more > 0);
    bytes += static_cast<std::size_t>(more);
  }
  // A record: header, the bytes, their type and a tag.
  CHECK(bytes == 5 + sent.size() + 1 + 16);
  CHECK(::memmem(wire.data(), bytes, sent.data(), 8) == nullptr);
}

TEST_CASE("a record that does not open is an error by name, and nothing of it is received") {
  Connection both;
  secure(both);
  std::array<unsigned char, 5 + 40> record{0x17, 3, 3, 0, 40};
  REQUIRE(::send(both.client.fd(), record.data(), record.size(), 0) == ssize_t{record.size()});
  std::array<std::byte, 64> got{};
  std::optional<std::size_t> received = 0;
  while (received && *received == 0) received = both.server.receive(got);
  CHECK_FALSE(received.has_value());
  CHECK(errno == EBADMSG);
  CHECK(got[0] == std::byte{});
}

TEST_CASE("a peer that does not speak TLS is refused by name") {
  Connection both;
  constexpr char kPlain[] = "sixteen bytes or more in clear";
  REQUIRE(::send(both.client.fd(), kPlain, sizeof kPlain, 0) == ssize_t{sizeof kPlain});
  const auto refused = both.server.secure(TlsEnd::kServer, soon());
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == ErrorCode::kUnavailable);
  CHECK(refused.error().message == "TLS is not agreed on: wrong version number");
  CHECK(both.server.tls_text().empty());
}

TEST_CASE("a peer that is gone ends TLS, and one that says nothing times out") {
  Connection both;
  const auto late =
      both.client.secure(TlsEnd::kClient, Clock::now() + std::chrono::milliseconds(10));
  REQUIRE_FALSE(late.has_value());
  CHECK(late.error().code == ErrorCode::kTimedOut);
  Connection other;
  secure(other);
  other.client = TcpSocket();
  std::array<std::byte, 8> got{};
  std::optional<std::size_t> received = 0;
  while (received && *received == 0) received = other.server.receive(got);
  CHECK_FALSE(received.has_value());
  CHECK(errno == ECONNRESET);
}
