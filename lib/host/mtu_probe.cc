// SPDX-License-Identifier: BSD-3-Clause
#include "host/mtu_probe.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/system_error.h"
#include "base/types.h"

namespace gradwire::host {
namespace {

/// Every IPv4 path carries this size, so an existing peer answers it.
constexpr std::uint32_t kSmallest = 576;
constexpr std::uint32_t kLargest = 65'535;
constexpr int kTries = 3;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

std::uint16_t internet_checksum(const std::vector<std::uint8_t>& bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    sum += static_cast<std::uint32_t>(bytes[i] << 8 | bytes[i + 1]);
  }
  if (bytes.size() % 2 != 0) sum += static_cast<std::uint32_t>(bytes.back() << 8);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

/// The interface that has the local address of the route to `peer`, and its MTU.
Result<PathMtu> find_interface(const sockaddr_in& peer, const std::string& text) {
  const Socket route(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in local{};
  socklen_t length = sizeof local;
  if (route.get() < 0 ||
      connect(route.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof peer) != 0 ||
      getsockname(route.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
    return system_error(fmt::format("the kernel has no route to {}", text));
  }
  PathMtu found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return system_error("getifaddrs");
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in own{};
    std::memcpy(&own, i->ifa_addr, sizeof own);
    if (own.sin_addr.s_addr == local.sin_addr.s_addr) found.interface = i->ifa_name;
  }
  freeifaddrs(all);
  ifreq request{};
  if (found.interface.empty() || found.interface.size() >= sizeof request.ifr_name) {
    return fail(
        ErrorCode::kNotFound,
        fmt::format("no interface has the address that the kernel would use to reach {}", text));
  }
  std::memcpy(request.ifr_name, found.interface.c_str(), found.interface.size() + 1);
  if (ioctl(route.get(), SIOCGIFMTU, &request) != 0) return system_error(found.interface);
  // The MTU of lo is one byte more than IP's length field can hold.
  found.interface_mtu = std::min(static_cast<std::uint32_t>(request.ifr_mtu), kLargest);
  return found;
}

/// Sends echo requests of one size until one is answered.
class Prober {
 public:
  Prober(int fd, const sockaddr_in& peer, int timeout_ms)
      : fd_(fd),
        peer_(peer),
        timeout_ms_(timeout_ms),
        id_(static_cast<std::uint16_t>(getpid() & 0xffff)) {}

  /// @param ip_bytes  of the whole packet, with its IP header.
  bool comes_back(std::uint32_t ip_bytes) {
    for (int i = 0; i < kTries; ++i) {
      if (!send(ip_bytes)) return false;  // larger than the interface's MTU
      if (await(sequence_, ip_bytes)) return true;
    }
    return false;
  }

 private:
  bool send(std::uint32_t ip_bytes) {
    std::vector<std::uint8_t> packet(ip_bytes - sizeof(iphdr));
    ++sequence_;
    packet[0] = ICMP_ECHO;
    packet[4] = static_cast<std::uint8_t>(id_ >> 8);
    packet[5] = static_cast<std::uint8_t>(id_);
    packet[6] = static_cast<std::uint8_t>(sequence_ >> 8);
    packet[7] = static_cast<std::uint8_t>(sequence_);
    const std::uint16_t sum = internet_checksum(packet);
    packet[2] = static_cast<std::uint8_t>(sum >> 8);
    packet[3] = static_cast<std::uint8_t>(sum);
    return sendto(fd_, packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&peer_),
                  sizeof peer_) == static_cast<ssize_t>(packet.size());
  }

  bool await(std::uint16_t sequence, std::uint32_t ip_bytes) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms_);
    std::vector<std::uint8_t> packet(65'536);
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd wait{fd_, POLLIN, 0};
      if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) <= 0) return false;
      sockaddr_in from{};
      socklen_t length = sizeof from;
      const ssize_t got = recvfrom(fd_, packet.data(), packet.size(), 0,
                                   reinterpret_cast<sockaddr*>(&from), &length);
      if (got < static_cast<ssize_t>(sizeof(iphdr) + 8)) continue;
      const std::size_t header = (packet[0] & 0xfu) * 4u;
      if (header + 8 > static_cast<std::size_t>(got)) continue;
      const std::uint8_t* const icmp = packet.data() + header;
      if (icmp[0] == ICMP_ECHOREPLY && (icmp[4] << 8 | icmp[5]) == id_ &&
          (icmp[6] << 8 | icmp[7]) == sequence && got == static_cast<ssize_t>(ip_bytes) &&
          from.sin_addr.s_addr == peer_.sin_addr.s_addr) {
        return true;
      }
    }
  }

  int fd_;
  sockaddr_in peer_;
  int timeout_ms_;
  std::uint16_t id_;
  std::uint16_t sequence_ = 0;
};

}  // namespace

Result<PathMtu> probe_path_mtu(const std::string& peer, int timeout_ms) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);  // any port: connect() only looks up the route
  if (inet_pton(AF_INET, peer.c_str(), &address.sin_addr) != 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--peer {}: must be an IPv4 address such as 10.10.0.2", peer));
  }
  auto found = find_interface(address, peer);
  if (!found) return found;
  const Socket raw(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
  if (raw.get() < 0)
    return system_error("opening a raw socket for echo requests, which needs CAP_NET_RAW");
  // Sets "don't fragment", and ignores the path MTU that the kernel remembers.
  const int probe = IP_PMTUDISC_PROBE;
  if (setsockopt(raw.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe) != 0) {
    return system_error("IP_MTU_DISCOVER");
  }
  Prober prober(raw.get(), address, timeout_ms);
  if (prober.comes_back(found->interface_mtu)) {
    found->path_mtu = found->interface_mtu;
    return found;
  }
  std::uint32_t fits = kSmallest;
  std::uint32_t too_large = found->interface_mtu;
  if (too_large <= fits || !prober.comes_back(fits)) return found;
  while (too_large - fits > 1) {
    const std::uint32_t middle = fits + (too_large - fits) / 2;
    (prober.comes_back(middle) ? fits : too_large) = middle;
  }
  found->path_mtu = fits;
  return found;
}

Finding check_path_mtu(const std::string& peer, const Result<PathMtu>& probed,
                       std::uint64_t wanted_mtu) {
  Finding finding{
      "path MTU",
      peer,
      Verdict::kOk,
      "",
      "if one switch port or host carries less, it drops every full packet and groups do not form",
      ""};
  if (!probed) {
    finding.verdict = Verdict::kFail;
    finding.value = probed.error().message;
    finding.mend =
        "if the NIC is bound to vfio, probe from another host of the segment, or form a group: it "
        "tells which rank full-size packets do not reach";
    return finding;
  }
  finding.value = fmt::format("{} of {} bytes through {}", probed->path_mtu, probed->interface_mtu,
                              probed->interface);
  if (probed->path_mtu == 0) {
    finding.verdict = Verdict::kFail;
    finding.value = fmt::format("no answer through {}", probed->interface);
    finding.why = "the peer is down, or something on the path drops echo requests";
    finding.mend = fmt::format("ping {}; then check cable, VLAN and addresses", peer);
    return finding;
  }
  // By default the path has to carry the MTU of its first interface.
  const std::uint64_t asked = wanted_mtu != 0 ? wanted_mtu : probed->interface_mtu;
  const std::uint64_t needed = std::max<std::uint64_t>(asked, kMinMtu);
  if (wanted_mtu != 0) finding.value += fmt::format(", {} wanted", wanted_mtu);
  if (probed->path_mtu < kMinMtu) {
    // The configuration refuses a smaller mtu.
    finding.verdict = Verdict::kFail;
    finding.why = fmt::format("it is {} bytes too small: gradwire needs at least {}",
                              kMinMtu - probed->path_mtu, kMinMtu);
    finding.mend = fmt::format(
        "raise the MTU of {}, of the switch ports and of {} to {} (switches often count the "
        "Ethernet header too)",
        probed->interface, peer, needed);
  } else if (probed->path_mtu < needed) {
    finding.verdict = Verdict::kFail;
    finding.mend = fmt::format(
        "raise the MTU of the switch ports and of {} to {} (switches often count the Ethernet "
        "header too), or set mtu = {} in [[port]] on every host",
        peer, needed, probed->path_mtu);
  }
  return finding;
}

}  // namespace gradwire::host
