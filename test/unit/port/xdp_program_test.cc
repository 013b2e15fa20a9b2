// SPDX-License-Identifier: BSD-3-Clause
// The XDP program's verdicts, by the kernel itself (BPF_PROG_TEST_RUN): no interface is needed.
#include "port/xdp/xdp_program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <memory>

#include "port/xdp/xdp_steering.h"

namespace gradwire::port {
namespace {

constexpr int kPass = 2;
constexpr int kRedirect = 4;
using Frame = std::vector<std::uint8_t>;

void append(Frame& frame, std::initializer_list<unsigned> bytes) {
  for (const unsigned byte : bytes) frame.push_back(static_cast<std::uint8_t>(byte));
}

Frame ethernet(unsigned type, unsigned vlan_id = 0) {
  Frame frame = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
  if (vlan_id != 0) append(frame, {0x81, 0, vlan_id >> 8, vlan_id & 255});
  append(frame, {type >> 8, type & 255});
  return frame;
}

/// From 10.0.0.1 to 10.0.0.`host`; its payload follows.
Frame ipv4(unsigned protocol, unsigned host, unsigned vlan_id = 0, unsigned fragment = 0) {
  Frame frame = ethernet(0x0800, vlan_id);
  append(frame, {0x45, 0, 0, 60, 0, 0, fragment >> 8, fragment & 255, 64, protocol, 0, 0});
  append(frame, {10, 0, 0, 1, 10, 0, 0, host});
  return frame;
}

Frame udp(unsigned host, unsigned port, unsigned vlan_id = 0, unsigned fragment = 0) {
  Frame frame = ipv4(17, host, vlan_id, fragment);
  append(frame, {0x30, 0x39, port >> 8, port & 255, 0, 40, 0, 0});
  frame.resize(frame.size() + 32);
  return frame;
}

Frame with_byte(unsigned protocol, unsigned host, unsigned byte) {
  Frame frame = ipv4(protocol, host);
  append(frame, {byte});
  frame.resize(frame.size() + 39);
  return frame;
}

Frame arp(unsigned operation, unsigned target_host, unsigned sender_host = 1) {
  Frame frame = ethernet(0x0806);
  append(frame, {0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 1, 10, 0, 0, sender_host});
  append(frame, {0, 0, 0, 0, 0, 0, 10, 0, 0, target_host});
  return frame;
}

/// The program, loaded, with a socket at queue 0.
class Loaded {
 public:
  explicit Loaded(const XdpTraffic& traffic) {
    auto program = make_xdp_program(traffic);
    REQUIRE(program.has_value());
    object_.reset(bpf_object__open_mem(program->data(), program->size(), nullptr));
    REQUIRE(object_ != nullptr);
    const int error = bpf_object__load(object_.get());
    refused_ = error == -EPERM;
    if (refused_) return;
    REQUIRE(error == 0);
    socket_ = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    refused_ = socket_ < 0;
    if (refused_) return;
    const int queue = 0;
    const int map = bpf_object__find_map_fd_by_name(object_.get(), "xsks_map");
    REQUIRE(bpf_map_update_elem(map, &queue, &socket_, 0) == 0);
  }
  ~Loaded() {
    if (socket_ >= 0) close(socket_);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  [[nodiscard]] bool refused() const { return refused_; }
  [[nodiscard]] int verdict(const Frame& frame) const {
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    options.data_in = frame.data();
    options.data_size_in = static_cast<__u32>(frame.size());
    options.repeat = 1;
    const bpf_program* const program =
        bpf_object__find_program_by_name(object_.get(), "gradwire_steer");
    REQUIRE(program != nullptr);
    REQUIRE(bpf_prog_test_run_opts(bpf_program__fd(program), &options) == 0);
    return static_cast<int>(options.retval);
  }

 private:
  struct Close {
    void operator()(bpf_object* object) const { bpf_object__close(object); }
  };
  std::unique_ptr<bpf_object, Close> object_;
  int socket_ = -1;
  bool refused_ = false;
};

XdpTraffic traffic(std::uint16_t vlan_id = 0) {
  return {*wire::parse_ip("10.0.0.2"), 18515, 2, vlan_id};
}

TEST_CASE("what is the daemon's goes to its socket, all else to the kernel") {
  if (xdp_program_object().empty()) {
    WARN("skipped: built without the XDP program");
    return;
  }
  const Loaded program(traffic());
  if (program.refused()) {
    WARN("skipped: this kernel or container does not let us load XDP programs");
    return;
  }
  // UDP to the lanes' ports at the daemon's address.
  CHECK(program.verdict(udp(2, 18515)) == kRedirect);
  CHECK(program.verdict(udp(2, 18516)) == kRedirect);
  CHECK(program.verdict(udp(2, 18514)) == kPass);
  CHECK(program.verdict(udp(2, 18517)) == kPass);
  CHECK(program.verdict(udp(3, 18515)) == kPass);
  CHECK(program.verdict(udp(2, 18515, 0, 0x2000)) == kPass);
  CHECK(program.verdict(udp(2, 18515, 0, 0x0001)) == kPass);
  CHECK(program.verdict(udp(2, 18515, 0, 0x4000)) == kRedirect);  // "do not fragment"
  CHECK(program.verdict(udp(2, 18515, 7)) == kPass);
  // Requests for the daemon's address, and answers to it.
  CHECK(program.verdict(arp(1, 2)) == kRedirect);
  CHECK(program.verdict(arp(2, 2)) == kRedirect);
  CHECK(program.verdict(arp(1, 3)) == kPass);
  CHECK(program.verdict(arp(2, 3)) == kPass);
  // Another host that has the daemon's address.
  CHECK(program.verdict(arp(1, 3, 2)) == kRedirect);
  // Echo requests alone of ICMP; no TCP, no IPv6.
  CHECK(program.verdict(with_byte(1, 2, 8)) == kRedirect);
  CHECK(program.verdict(with_byte(1, 2, 0)) == kPass);
  CHECK(program.verdict(with_byte(1, 2, 3)) == kPass);
  CHECK(program.verdict(with_byte(1, 3, 8)) == kPass);
  CHECK(program.verdict(with_byte(6, 2, 0)) == kPass);
  Frame six = ethernet(0x86dd);
  six.resize(80);
  CHECK(program.verdict(six) == kPass);
}

TEST_CASE("over IPv6 the daemon's traffic goes to its socket, all else to the kernel") {
  if (xdp_program_object().empty()) return;
  const Loaded program(XdpTraffic{*wire::parse_ip("fd00::2"), 18515, 2, 0});
  if (program.refused()) return;
  // From fd00::`source` to fd00::`host`.
  const auto ipv6 = [](unsigned protocol, unsigned host, unsigned source = 1) {
    Frame frame = ethernet(0x86dd);
    append(frame, {0x60, 0, 0, 0, 0, 40, protocol, 255});
    for (const unsigned last : {source, host}) {
      append(frame, {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last});
    }
    return frame;
  };
  const auto udp6 = [&](unsigned host, unsigned port) {
    Frame frame = ipv6(17, host);
    append(frame, {0x30, 0x39, port >> 8, port & 255, 0, 40, 1, 1});
    frame.resize(frame.size() + 32);
    return frame;
  };
  const auto icmp = [&](unsigned type, unsigned host, unsigned target, unsigned source = 1) {
    Frame frame = ipv6(58, host, source);
    append(frame, {type, 0, 0, 0, 0, 0, 0, 0});
    append(frame, {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, target});
    frame.resize(frame.size() + 16);
    return frame;
  };
  CHECK(program.verdict(udp6(2, 18515)) == kRedirect);
  CHECK(program.verdict(udp6(2, 18516)) == kRedirect);
  CHECK(program.verdict(udp6(2, 18514)) == kPass);
  CHECK(program.verdict(udp6(2, 18517)) == kPass);
  CHECK(program.verdict(udp6(3, 18515)) == kPass);
  // Questions for the daemon's address, answers to it, and another host that has it.
  CHECK(program.verdict(icmp(135, 0xff, 2)) == kRedirect);
  CHECK(program.verdict(icmp(135, 0xff, 3)) == kPass);
  CHECK(program.verdict(icmp(136, 2, 1)) == kRedirect);
  CHECK(program.verdict(icmp(136, 3, 1)) == kPass);
  CHECK(program.verdict(icmp(135, 0xff, 3, 2)) == kRedirect);
  // Echo requests alone besides; routers' advertisements and redirects are the kernel's.
  CHECK(program.verdict(icmp(128, 2, 9)) == kRedirect);
  CHECK(program.verdict(icmp(129, 2, 9)) == kPass);
  CHECK(program.verdict(icmp(134, 2, 2)) == kPass);
  CHECK(program.verdict(icmp(137, 2, 2)) == kPass);
  Frame tcp = ipv6(6, 2);
  tcp.resize(tcp.size() + 40);
  CHECK(program.verdict(tcp) == kPass);
  // No IPv4, and nothing that ends early.
  CHECK(program.verdict(udp(2, 18515)) == kPass);
  CHECK(program.verdict(arp(1, 2)) == kPass);
  const Frame whole = udp6(2, 18515);
  for (std::size_t bytes = 14; bytes < 14 + 40 + 8; ++bytes) {
    CHECK(program.verdict(Frame(whole.begin(), whole.begin() + static_cast<long>(bytes))) == kPass);
  }
}

TEST_CASE("short and odd frames are the kernel's") {
  if (xdp_program_object().empty()) return;
  const Loaded program(traffic());
  if (program.refused()) return;
  const Frame whole = udp(2, 18515);
  constexpr std::size_t kLeast = 14;  // the kernel takes no shorter one for a test
  for (std::size_t bytes = kLeast; bytes < 14 + 20 + 8; ++bytes) {
    CHECK(program.verdict(Frame(whole.begin(), whole.begin() + static_cast<long>(bytes))) == kPass);
  }
  Frame options = whole;
  options[14] = 0x46;
  CHECK(program.verdict(options) == kPass);
}

TEST_CASE("a port with a VLAN takes frames of that VLAN alone") {
  if (xdp_program_object().empty()) return;
  const Loaded program(traffic(7));
  if (program.refused()) return;
  CHECK(program.verdict(udp(2, 18515, 7)) == kRedirect);
  CHECK(program.verdict(udp(2, 18515, 8)) == kPass);
  CHECK(program.verdict(udp(2, 18515)) == kPass);
}

TEST_CASE("only af_xdp devices of ours get the program, and none that names its own") {
  XdpPort port{"net_af_xdp0", traffic(), true};
  const std::vector<std::string> given = {"--no-pci",
                                          "--vdev",
                                          "net_af_xdp0,iface=none0",
                                          "--vdev=net_af_xdp1,iface=none1",
                                          "--vdev",
                                          "net_memif0,role=server"};
  auto arguments = given;
  {
    const auto steering = XdpSteering::prepare({&port, 1}, arguments, "");
    REQUIRE(steering.has_value());
    if (!xdp_program_object().empty()) {
      CHECK_THAT(arguments[2],
                 Catch::Matchers::StartsWith("net_af_xdp0,iface=none0,xdp_prog=/proc/self/fd/"));
      // What the driver will open is the program.
      char magic[4] = {};
      std::unique_ptr<FILE, int (*)(FILE*)> file(
          std::fopen(arguments[2].substr(arguments[2].rfind('=') + 1).c_str(), "rb"), std::fclose);
      REQUIRE(file != nullptr);
      REQUIRE(std::fread(magic, 1, sizeof magic, file.get()) == sizeof magic);
      CHECK(std::memcmp(magic, "\177ELF", sizeof magic) == 0);
      REQUIRE(steering->facts().size() == 1);
      CHECK_THAT(steering->facts()[0], Catch::Matchers::Contains("ports 18515 to 18516") &&
                                           Catch::Matchers::Contains("none0"));
      CHECK(steering->warnings().empty());
    }
  }
  CHECK(arguments[3] == given[3]);
  CHECK(arguments[5] == given[5]);

  arguments = {"--vdev=net_af_xdp0,iface=none0,xdp_prog=/my.o"};
  const auto own = XdpSteering::prepare({&port, 1}, arguments, "");
  REQUIRE(own.has_value());
  CHECK(arguments[0] == "--vdev=net_af_xdp0,iface=none0,xdp_prog=/my.o");
  CHECK_THAT(own->facts().at(0), Catch::Matchers::Contains("/my.o"));

  arguments = {"--vdev=net_af_xdp0,iface=none0"};
  port.steer = false;
  const auto all = XdpSteering::prepare({&port, 1}, arguments, "");
  REQUIRE(all.has_value());
  CHECK(arguments[0] == "--vdev=net_af_xdp0,iface=none0");
  CHECK_THAT(all->warnings().at(0),
             Catch::Matchers::Contains("every frame") && Catch::Matchers::Contains("none0"));
}

}  // namespace
}  // namespace gradwire::port
