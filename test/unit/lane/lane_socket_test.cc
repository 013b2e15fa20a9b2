// SPDX-License-Identifier: BSD-3-Clause
// Lanes above the kernel's sockets: which packets end their sleeps.
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <rte_dev.h>
#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>

#include "ipc/unique_fd.h"
#include "lane/lane.h"
#include "two_ranks.h"

using namespace gradwire;
using namespace gradwire::lane;
using gradwire::test::AllReduceCase;

namespace {

/// Two interfaces with a cable between them, in a network namespace of their own, in which this
/// thread is as long as the object lives. The kernel itself sends nothing there.
class Cable {
 public:
  Cable() : before_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    entered_ = before_.get() >= 0 && unshare(CLONE_NEWNET) == 0;
    made_ = entered_ && std::system(
                            "for all in all default; do"
                            " echo 1 >/proc/sys/net/ipv6/conf/$all/disable_ipv6; done 2>&-;"
                            "ip link add gw_a type veth peer name gw_b 2>&- &&"
                            " ip link set gw_a up && ip link set gw_b up") == 0;
  }
  ~Cable() {
    if (entered_) setns(before_.get(), CLONE_NEWNET);
  }
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;

  [[nodiscard]] bool made() const { return made_; }
  /// A frame of nobody's comes to the end `gw_b`.
  static void send_to_b() {
    const ipc::UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = static_cast<int>(if_nametoindex("gw_a"));
    std::array<unsigned char, 64> frame{};
    std::fill_n(frame.begin(), 6, 0xff);
    frame[12] = 0x88;  // For local experiments.
    frame[13] = 0xb5;
    REQUIRE(sendto(fd.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to),
                   sizeof to) == static_cast<ssize_t>(frame.size()));
  }

 private:
  ipc::UniqueFd before_;
  bool entered_ = false;
  bool made_ = false;
};

}  // namespace

TEST_CASE("packets at a kernel's socket wake a lane only while small ops alone are under way") {
  const Cable cable;
  if (!cable.made()) {
    WARN("skipped: interfaces in a network namespace need CAP_SYS_ADMIN and iproute2");
    return;
  }
  REQUIRE(rte_eal_hotplug_add("vdev", "net_af_packet_a", "iface=gw_a") == 0);
  REQUIRE(rte_eal_hotplug_add("vdev", "net_af_packet_b", "iface=gw_b") == 0);
  TwoRanksOptions options;
  options.devices = {"net_af_packet_a", "net_af_packet_b"};
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  Lane& lane = ranks.rank(1).datapath->lane(0);
  const port::Port& port = *ranks.rank(1).datapath->ports()[0];
  REQUIRE(port.wakes_by_socket());

  const auto settle = [&] {
    for (int i = 0; i < 2'000; ++i) ranks.round();
  };
  struct Sleep {
    bool looked = false;  // for packets, after it had said that they are to wake it
    bool whole = false;   // nothing ended it before its time
  };
  // A packet is there already when the lane falls asleep.
  const auto sleep_beside_packet = [&] {
    constexpr TimeNs kSleepNs = 50'000'000;
    settle();
    lane.sleep(1'000'000, ranks.now);  // Nothing that came before will end the next.
    Cable::send_to_b();
    pollfd readable{port.enable_interrupt(0), POLLIN, 0};
    REQUIRE(::poll(&readable, 1, 10'000) == 1);
    const std::uint64_t before = ranks.counter(1, &LaneCounters::rx_packets);
    const auto begin = std::chrono::steady_clock::now();
    lane.sleep(kSleepNs, ranks.now);
    const auto slept = std::chrono::steady_clock::now() - begin;
    return Sleep{ranks.counter(1, &LaneCounters::rx_packets) > before,
                 slept >= std::chrono::nanoseconds(kSleepNs)};
  };
  const auto finish = [&](std::uint16_t r, AllReduceCase& each) {
    std::optional<ipc::CompletionEntry> answer;
    REQUIRE(ranks.run_until([&] {
      answer = ranks.rank(r).client->completion();
      return answer.has_value();
    }));
    CHECK(static_cast<ErrorCode>(answer->status) == ErrorCode::kOk);
    CHECK(each.wrong(r) == "");
  };

  CHECK(sleep_beside_packet().whole);  // Nothing is under way.
  for (int time = 0; time < 2; ++time) {
    INFO("time " << time);
    AllReduceCase small(2, 1, 7, DataType::kFloat32, RedOp::kSum, 3, false);
    ranks.post(1, small);
    CHECK(sleep_beside_packet().looked);
    ranks.post(0, small);
    for (const std::uint16_t r : {0, 1}) finish(r, small);
    CHECK(sleep_beside_packet().whole);

    AllReduceCase large(2, 1, 100'000, DataType::kFloat32, RedOp::kSum, 5, false);
    ranks.post(1, large);
    CHECK(sleep_beside_packet().whole);
    ranks.post(0, large);
    for (const std::uint16_t r : {0, 1}) finish(r, large);
  }

  // A late rank, which takes longer than it is worth to look at whatever the interface carries.
  AllReduceCase late(2, 1, 7, DataType::kFloat32, RedOp::kSum, 9, false);
  ranks.post(1, late);
  CHECK(sleep_beside_packet().looked);
  (void)lane.after_round(ranks.now, false);
  ranks.now += 3'000'000;
  CHECK(sleep_beside_packet().whole);
  ranks.post(0, late);
  for (const std::uint16_t r : {0, 1}) finish(r, late);
  ranks.leave_and_check();
}
