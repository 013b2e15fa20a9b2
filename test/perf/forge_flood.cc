// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Somebody on the path of a running group, without its keys. Waits for a chunk that a device
/// sends, takes its addresses, group tag and token, and from then on sends forgeries of 1,500 bytes
/// as fast as they go, or at a rate, until SIGTERM:
///   data    a packet of that type, of a number that nobody used yet; right but for its tag if the
///           group's packets have one, else but for its token
///   hello   the same as a hello
/// They go out of another device, if one is named, to the same addresses. Says at the end how many
/// went. A flood that a group in clear drops by its token is what a sealed one is compared with:
/// with the token it would be taken there.
///
/// usage: forge_flood KIND CAPTURE_DEVICE SEND_DEVICE UDP_PORT [FRAMES_PER_SECOND]
#include <arpa/inet.h>
#include <fmt/core.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "wire/packet.h"
#include "wire/sealed.h"

namespace {

using namespace gradwire;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBefore = 14 + 20 + 8;  ///< Ethernet, IPv4, UDP
constexpr std::size_t kFrame = 14 + 1500;
constexpr std::size_t kBatch = 64;
/// In doc/protocol/frame.md, The header.
constexpr std::size_t kTypeAt = 1, kNumberAt = 8, kTokenAt = 56;
/// So far ahead that the group does not get there meanwhile, within the generations that it has. No
/// number is used up by a forgery, so a million of them serve again and again.
constexpr std::uint64_t kAhead = 1 << 21, kNumbers = 1 << 20;

volatile std::sig_atomic_t ended = 0;

[[noreturn]] void die(const std::string& why) {
  fmt::print(stderr, "forge_flood: {}\n", why);
  std::exit(1);
}

int open_on(const char* device, int protocol) {
  const int fd = ::socket(AF_PACKET, SOCK_RAW, htons(protocol));
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(protocol);
  at.sll_ifindex = static_cast<int>(::if_nametoindex(device));
  if (fd < 0 || at.sll_ifindex == 0 ||
      ::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) {
    die(fmt::format("device {}: {}", device, std::strerror(errno)));
  }
  return fd;
}

void put(std::byte* at, std::size_t bytes, std::uint64_t value) {
  for (std::size_t i = bytes; i-- > 0; value >>= 8) at[i] = static_cast<std::byte>(value);
}

/// A chunk that leaves by the device.
std::vector<std::byte> capture(const char* device, std::uint16_t udp_port) {
  const int fd = open_on(device, ETH_P_ALL);
  std::vector<std::byte> frame(9'216);
  while (ended == 0) {
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, 100) <= 0) continue;
    sockaddr_ll from{};
    socklen_t length = sizeof from;
    const ssize_t bytes = ::recvfrom(fd, frame.data(), frame.size(), MSG_DONTWAIT,
                                     reinterpret_cast<sockaddr*>(&from), &length);
    if (bytes < static_cast<ssize_t>(kBefore + wire::kHeaderBytes)) continue;
    if (from.sll_pkttype != PACKET_OUTGOING || frame[12] != std::byte{8} ||
        frame[23] != std::byte{17}) {
      continue;
    }
    std::uint16_t to = 0;
    std::memcpy(&to, &frame[36], sizeof to);
    const wire::Kind kind = wire::kind_of(&frame[kBefore]);
    if (ntohs(to) != udp_port || !wire::carries_chunk(kind.type)) continue;
    frame.resize(static_cast<std::size_t>(bytes));
    ::close(fd);
    return frame;
  }
  die("ended before the group sent a chunk");
}

/// The captured frame with 1,500 bytes behind Ethernet's header.
std::vector<std::byte> stretched(std::vector<std::byte> frame) {
  frame.resize(kFrame);
  put(&frame[16], 2, kFrame - 14);
  put(&frame[38], 2, kFrame - 14 - 20);
  put(&frame[40], 2, 0);  // UDP's checksum: none
  put(&frame[24], 2, 0);
  std::uint32_t sum = 0;
  for (std::size_t i = 14; i < 34; i += 2) {
    sum += std::to_integer<std::uint32_t>(frame[i]) << 8 |
           std::to_integer<std::uint32_t>(frame[i + 1]);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  put(&frame[24], 2, ~sum & 0xffff);
  return frame;
}

/// Forgeries, each of another number and of random bytes.
class Forgeries {
 public:
  Forgeries(const std::vector<std::byte>& captured, bool hello) : frames_(kBatch) {
    const std::vector<std::byte> frame = stretched(captured);
    first_ = wire::kind_of(&frame[kBefore]).packet_number + kAhead;
    sealed_ = (std::to_integer<unsigned>(frame[kBefore + wire::kFlagsAt]) & wire::kSealFlags) != 0;
    std::mt19937_64 random(1);
    for (auto& one : frames_) {
      one = frame;
      for (std::size_t i = kBefore + wire::kHeaderBytes; i < kFrame; ++i) {
        one[i] = static_cast<std::byte>(random());
      }
      if (hello) one[kBefore + kTypeAt] = static_cast<std::byte>(wire::PacketType::kHello);
      if (!sealed_) one[kBefore + kTokenAt] ^= std::byte{1};
    }
    for (std::size_t i = 0; i < kBatch; ++i) {
      pieces_[i] = {frames_[i].data(), kFrame};
      messages_[i].msg_hdr.msg_iov = &pieces_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
  }
  [[nodiscard]] bool sealed() const { return sealed_; }
  /// @return how many of a batch were sent.
  std::size_t send(int fd) {
    for (auto& frame : frames_) {
      std::byte* const packet = &frame[kBefore];
      put(packet + kNumberAt, 8, first_ + made_++ % kNumbers);
      wire::renew_header_crc(packet);
    }
    const int sent = ::sendmmsg(fd, messages_.data(), kBatch, 0);
    if (sent < 0 && errno != ENOBUFS && errno != EAGAIN && errno != EINTR) {
      die(fmt::format("sending: {}", std::strerror(errno)));
    }
    return sent < 0 ? 0 : static_cast<std::size_t>(sent);
  }

 private:
  std::vector<std::vector<std::byte>> frames_;
  std::array<iovec, kBatch> pieces_{};
  std::array<mmsghdr, kBatch> messages_{};
  std::uint64_t first_ = 0;
  std::uint64_t made_ = 0;
  bool sealed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  if ((argc != 5 && argc != 6) || (kind != "data" && kind != "hello")) {
    fmt::print(stderr,
               "usage: forge_flood data|hello CAPTURE_DEVICE SEND_DEVICE UDP_PORT "
               "[FRAMES_PER_SECOND]\n");
    return 2;
  }
  const auto end = [](int) { ended = 1; };
  std::signal(SIGTERM, end);
  std::signal(SIGINT, end);
  const int out = open_on(argv[3], 0);
  // Past the queueing discipline: what the device carries.
  const int on = 1;
  if (::setsockopt(out, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) != 0) {
    die(fmt::format("PACKET_QDISC_BYPASS: {}", std::strerror(errno)));
  }
  const double rate = argc == 6 ? std::atof(argv[5]) : 0;
  Forgeries forgeries(capture(argv[2], static_cast<std::uint16_t>(std::atoi(argv[4]))),
                      kind == "hello");
  std::uint64_t sent = 0;
  const auto began = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  while (ended == 0) {
    sent += forgeries.send(out);
    if (rate > 0 && static_cast<double>(sent) > rate * seconds()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  fmt::print("{} {} {:.3f} {}\n", kind, sent, seconds(), forgeries.sealed() ? "tag" : "token");
  return 0;
}
