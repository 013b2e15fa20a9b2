// SPDX-License-Identifier: BSD-3-Clause
#include "port/frame_probe.h"

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <vector>

namespace gradwire::port {

namespace {

constexpr std::size_t kShortBytes = 60;
/// A full queue refuses frames too, but hardly every long frame of several tries and no short one.
constexpr int kTries = 3;

/// @return 0, or errno.
int send_frame(int fd, const sockaddr_ll& to, const std::vector<std::byte>& frame,
               std::size_t bytes) {
  const ssize_t sent = sendto(fd, frame.data(), bytes, MSG_DONTWAIT,
                              reinterpret_cast<const sockaddr*>(&to), sizeof to);
  return sent < 0 ? errno : 0;
}

FrameVerdict probe(int fd, const sockaddr_ll& to, const std::vector<std::byte>& frame) {
  for (int i = 0; i < kTries; ++i) {
    const int error = send_frame(fd, to, frame, frame.size());
    if (error == 0) return FrameVerdict::kPasses;
    // EMSGSIZE: longer than this interface's own MTU. ENOBUFS: the other end dropped the frame.
    if (error == EMSGSIZE) return FrameVerdict::kTooLong;
    if (error != ENOBUFS || send_frame(fd, to, frame, kShortBytes) != 0) {
      return FrameVerdict::kUnknown;
    }
  }
  return FrameVerdict::kTooLong;
}

}  // namespace

FrameVerdict probe_frame(unsigned if_index, const wire::MacAddress& from,
                         const wire::MacAddress& to, std::optional<std::uint16_t> vlan_id,
                         std::size_t frame_bytes) {
  // No protocol: it receives nothing.
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return FrameVerdict::kUnknown;
  std::vector<std::byte> frame(std::max(frame_bytes, kShortBytes));
  auto next = std::copy_n(reinterpret_cast<const std::byte*>(to.data()), to.size(), frame.begin());
  next = std::copy_n(reinterpret_cast<const std::byte*>(from.data()), from.size(), next);
  const auto add16 = [&next](std::uint16_t value) {
    *next++ = static_cast<std::byte>(value >> 8);
    *next++ = static_cast<std::byte>(value & 0xff);
  };
  if (vlan_id) {
    add16(0x8100);
    add16(*vlan_id);
  }
  add16(0x88b5);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = static_cast<int>(if_index);
  address.sll_halen = static_cast<unsigned char>(to.size());
  std::copy(to.begin(), to.end(), address.sll_addr);
  const FrameVerdict verdict = probe(fd, address, frame);
  close(fd);
  return verdict;
}

}  // namespace gradwire::port
