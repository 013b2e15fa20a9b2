// SPDX-License-Identifier: BSD-3-Clause
#include "host/mtu_probe.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/icmp6.h>
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

/// Every path carries these sizes, so an existing peer answers them.
constexpr std::uint32_t kSmallestIpv4 = 576;
constexpr std::uint32_t kSmallestIpv6 = 1280;
constexpr std::uint32_t kIpv6HeaderBytes = 40;
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

/// An address of either family, as the kernel takes it.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return storage.ss_family; }
};

/// Whether both are the same host's, whatever their ports.
bool same_host(const Address& a, const Address& b) {
  if (a.family() != b.family()) return false;
  if (a.family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&a.storage)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(&b.storage)->sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(&a.storage)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(&b.storage)->sin6_addr,
                     sizeof(in6_addr)) == 0;
}

/// Whether link-local addresses are of one interface: several may have the same.
bool same_link(const Address& a, const Address& b) {
  if (a.family() != AF_INET6) return true;
  const auto* one = reinterpret_cast<const sockaddr_in6*>(&a.storage);
  const auto* other = reinterpret_cast<const sockaddr_in6*>(&b.storage);
  return !IN6_IS_ADDR_LINKLOCAL(&one->sin6_addr) || one->sin6_scope_id == other->sin6_scope_id;
}

/// The interface that has the local address of the route to `peer`, and its MTU.
Result<PathMtu> find_interface(const Address& peer, const std::string& text) {
  const Socket route(socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Address local;
  if (route.get() < 0 || connect(route.get(), peer.get(), peer.length) != 0 ||
      getsockname(route.get(), local.get(), &local.length) != 0) {
    return system_error(fmt::format("the kernel has no route to {}", text));
  }
  PathMtu found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return system_error("getifaddrs");
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != peer.family()) continue;
    Address own;
    std::memcpy(&own.storage, i->ifa_addr,
                peer.family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (same_host(own, local) && same_link(own, local)) found.interface = i->ifa_name;
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
  Prober(int fd, const Address& peer, int timeout_ms)
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
    std::vector<std::uint8_t> packet(ip_bytes - (is_ipv6() ? kIpv6HeaderBytes : sizeof(iphdr)));
    ++sequence_;
    packet[0] = is_ipv6() ? ICMP6_ECHO_REQUEST : ICMP_ECHO;
    packet[4] = static_cast<std::uint8_t>(id_ >> 8);
    packet[5] = static_cast<std::uint8_t>(id_);
    packet[6] = static_cast<std::uint8_t>(sequence_ >> 8);
    packet[7] = static_cast<std::uint8_t>(sequence_);
    // The kernel computes ICMPv6's itself (RFC 3542 section 3.1).
    const std::uint16_t sum = is_ipv6() ? 0 : internet_checksum(packet);
    packet[2] = static_cast<std::uint8_t>(sum >> 8);
    packet[3] = static_cast<std::uint8_t>(sum);
    return sendto(fd_, packet.data(), packet.size(), 0, peer_.get(), peer_.length) ==
           static_cast<ssize_t>(packet.size());
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
      Address from;
      const ssize_t got = recvfrom(fd_, packet.data(), packet.size(), 0, from.get(), &from.length);
      if (got < 8) continue;
      // A raw socket over IPv6 gives what follows the header.
      const std::size_t header = is_ipv6() ? 0 : (packet[0] & 0xfu) * 4u;
      if (header + 8 > static_cast<std::size_t>(got)) continue;
      const std::uint8_t* const icmp = packet.data() + header;
      const auto whole = static_cast<std::uint32_t>(got) + (is_ipv6() ? kIpv6HeaderBytes : 0);
      if (icmp[0] == (is_ipv6() ? ICMP6_ECHO_REPLY : ICMP_ECHOREPLY) &&
          (icmp[4] << 8 | icmp[5]) == id_ && (icmp[6] << 8 | icmp[7]) == sequence &&
          whole == ip_bytes && same_host(from, peer_)) {
        return true;
      }
    }
  }

  [[nodiscard]] bool is_ipv6() const { return peer_.family() == AF_INET6; }

  int fd_;
  Address peer_;
  int timeout_ms_;
  std::uint16_t id_;
  std::uint16_t sequence_ = 0;
};

}  // namespace

Result<PathMtu> probe_path_mtu(const std::string& peer, int timeout_ms) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* parsed = nullptr;
  // Any port: connect() only looks up the route.
  if (getaddrinfo(peer.c_str(), nullptr, &hints, &parsed) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--peer {}: must be an address such as 10.10.0.2 or fd00::2", peer));
  }
  Address address;
  address.length = parsed->ai_addrlen;
  std::memcpy(&address.storage, parsed->ai_addr, parsed->ai_addrlen);
  freeaddrinfo(parsed);
  const bool is_ipv6 = address.family() == AF_INET6;
  auto found = find_interface(address, peer);
  if (!found) return found;
  const Socket raw(
      socket(address.family(), SOCK_RAW | SOCK_CLOEXEC, is_ipv6 ? +IPPROTO_ICMPV6 : +IPPROTO_ICMP));
  if (raw.get() < 0)
    return system_error("opening a raw socket for echo requests, which needs CAP_NET_RAW");
  // Sets "don't fragment", and ignores the path MTU that the kernel remembers.
  const int probe = is_ipv6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
  if (setsockopt(raw.get(), is_ipv6 ? +IPPROTO_IPV6 : +IPPROTO_IP,
                 is_ipv6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &probe, sizeof probe) != 0) {
    return system_error("IP_MTU_DISCOVER");
  }
  const int whole = 1;
  if (is_ipv6 && setsockopt(raw.get(), IPPROTO_IPV6, IPV6_DONTFRAG, &whole, sizeof whole) != 0) {
    return system_error("IPV6_DONTFRAG");
  }
  Prober prober(raw.get(), address, timeout_ms);
  if (prober.comes_back(found->interface_mtu)) {
    found->path_mtu = found->interface_mtu;
    return found;
  }
  std::uint32_t fits = is_ipv6 ? kSmallestIpv6 : kSmallestIpv4;
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
