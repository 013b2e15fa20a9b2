// SPDX-License-Identifier: BSD-3-Clause
// Sockets of drivers, found among the files of the process.
#include "port/memif/wake_socket.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "ipc/unique_fd.h"

using gradwire::ipc::UniqueFd;
namespace port = gradwire::port;

namespace {

UniqueFd packet_socket(unsigned if_index) {
  UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return fd;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(0x0003);  // ETH_P_ALL
  address.sll_ifindex = static_cast<int>(if_index);
  if (if_index != 0) {
    REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  return fd;
}

bool is_readable(int fd) {
  pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, 1000) == 1;
}

}  // namespace

TEST_CASE("the packet socket of an interface is found, and none if several are") {
  const unsigned loopback = if_nametoindex("lo");
  REQUIRE(loopback != 0);
  CHECK(port::packet_socket_of(loopback) == -1);
  const UniqueFd unbound = packet_socket(0);
  if (unbound.get() < 0) {
    WARN("skipped: packet sockets need CAP_NET_RAW");
    return;
  }
  CHECK(port::packet_socket_of(loopback) == -1);

  UniqueFd bound = packet_socket(loopback);
  CHECK(port::packet_socket_of(loopback) == bound.get());
  CHECK(port::packet_socket_of(loopback + 1000) == -1);
  SECTION("it becomes readable when a packet comes") {
    const UniqueFd sender(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(sendto(sender.get(), "x", 1, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) == 1);
    CHECK(is_readable(port::packet_socket_of(loopback)));
  }
  SECTION("of two, nobody knows which is the driver's") {
    const UniqueFd other = packet_socket(loopback);
    CHECK(port::packet_socket_of(loopback) == -1);
  }
  SECTION("a closed one is not found") {
    bound.reset();
    CHECK(port::packet_socket_of(loopback) == -1);
  }
}

TEST_CASE("packets that the kernel drops at a packet socket that nobody reads are told once") {
  const UniqueFd bound = packet_socket(if_nametoindex("lo"));
  if (bound.get() < 0) {
    WARN("skipped: packet sockets need CAP_NET_RAW");
    return;
  }
  const int bytes = 4096;
  REQUIRE(setsockopt(bound.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
  CHECK(port::packets_dropped(bound.get()) == 0);
  const UniqueFd sender(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const char datagram[1000] = {};
  for (int i = 0; i < 1000; ++i) {
    // One that nobody takes is answered by ICMP, of which the next call tells.
    (void)sendto(sender.get(), datagram, sizeof datagram, 0, reinterpret_cast<sockaddr*>(&to),
                 sizeof to);
  }
  const std::uint64_t dropped = port::packets_dropped(bound.get());
  CHECK(dropped > 400);
  CHECK(port::packets_dropped(bound.get()) < dropped);  // others may use the loopback, too
  CHECK(port::packets_dropped(sender.get()) == 0);
}

TEST_CASE("an AF_XDP socket that came while a queue was set up is found, and none if two came") {
  const std::vector<int> before = port::xdp_sockets();
  const UniqueFd one(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (one.get() < 0) {
    WARN("skipped: this kernel or container has no AF_XDP sockets");
    return;
  }
  CHECK(port::only_new(before, port::xdp_sockets()) == one.get());
  CHECK(port::only_new(port::xdp_sockets(), port::xdp_sockets()) == -1);
  const UniqueFd two(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  CHECK(port::only_new(before, port::xdp_sockets()) == -1);
}

TEST_CASE("the only new file") {
  CHECK(port::only_new({}, {}) == -1);
  CHECK(port::only_new({3, 7}, {3, 5, 7}) == 5);
  CHECK(port::only_new({3, 5, 7}, {3, 7}) == -1);
  CHECK(port::only_new({3}, {3, 5, 7}) == -1);
}
