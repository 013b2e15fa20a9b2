// SPDX-License-Identifier: BSD-3-Clause
#include "config/keys.h"

#include <algorithm>
#include <array>

#include "base/fault_settings.h"
#include "wire/packet.h"

namespace gradwire::config {
namespace {

constexpr double kNoBound = 0;

// Small functions, so that each row has only the parameters that concern its key.
constexpr Key text(const char* section, const char* name, double min, double max, const char* help,
                   Field (*field)(DaemonConfig&, std::size_t), bool required = false) {
  return {section, name, Kind::kText, "", min, max, false, required, "", help, field};
}
constexpr Key choice(const char* section, const char* name, const char* choices, const char* help,
                     Field (*field)(DaemonConfig&, std::size_t)) {
  return {section, name, Kind::kChoice, "", kNoBound, kNoBound, false, false, choices, help, field};
}
constexpr Key boolean(const char* section, const char* name, const char* help,
                      Field (*field)(DaemonConfig&, std::size_t)) {
  return {section, name, Kind::kBool, "", kNoBound, kNoBound, false, false, "", help, field};
}
constexpr Key integer(const char* section, const char* name, const char* unit, double min,
                      double max, const char* help, Field (*field)(DaemonConfig&, std::size_t)) {
  return {section, name, Kind::kInteger, unit, min, max, false, false, "", help, field};
}
constexpr Key auto_integer(const char* section, const char* name, const char* unit, double min,
                           double max, const char* help,
                           Field (*field)(DaemonConfig&, std::size_t)) {
  return {section, name, Kind::kInteger, unit, min, max, true, false, "", help, field};
}
constexpr Key power_of_two(const char* section, const char* name, const char* unit, double min,
                           double max, const char* help,
                           Field (*field)(DaemonConfig&, std::size_t)) {
  return {section, name, Kind::kPowerOfTwo, unit, min, max, false, false, "", help, field};
}
constexpr Key special(const char* section, const char* name, Kind kind, bool required,
                      const char* help, Field (*field)(DaemonConfig&, std::size_t)) {
  return {section, name, kind, "", kNoBound, kNoBound, false, required, "", help, field};
}

constexpr Key probability(const char* name, const char* help,
                          Field (*field)(DaemonConfig&, std::size_t)) {
  return {"faults", name, Kind::kReal, "", 0, 1, false, false, "", help, field};
}

#define GRADWIRE_FIELD(expression) \
  [](DaemonConfig& c, [[maybe_unused]] std::size_t i) -> Field { return &c.expression; }

// The longest name of a UNIX socket is 107 bytes (unix(7), sun_path).
constexpr double kMaxSocketPath = 107;
// The longest path of Linux (PATH_MAX), without the byte that ends it.
constexpr double kMaxPath = 4095;
// TOML's integers have a sign.
constexpr double kMaxSeed = 4'294'967'295;

const std::array kKeys = {
    text("daemon", "name", 1, 32,
         "the daemon's name in logs, and that of its EAL files in /run/dpdk",
         GRADWIRE_FIELD(daemon.name)),
    text("daemon", "control_socket", 2, kMaxSocketPath,
         "path of the socket to which clients connect", GRADWIRE_FIELD(daemon.control_socket)),
    special("daemon", "socket_mode", Kind::kMode, false, "permissions of the control socket",
            GRADWIRE_FIELD(daemon.socket_mode)),
    text("daemon", "socket_group", 0, 32,
         "group that owns the control socket; \"\": the daemon's own group",
         GRADWIRE_FIELD(daemon.socket_group)),
    boolean(
        "daemon", "require_isolated",
        "refuse to start if the core of a lane is not isolated, is not tickless, or is not on its "
        "port's NUMA node",
        GRADWIRE_FIELD(daemon.require_isolated)),
    choice("daemon", "log_level", "trace|debug|info|warn|error",
           "messages below this level are not logged", GRADWIRE_FIELD(daemon.log_level)),
    text("daemon", "metrics", 0, 63,
         "loopback address and port of Prometheus' metrics, such as 127.0.0.1:9464; \"\": none are "
         "served",
         GRADWIRE_FIELD(daemon.metrics)),
    boolean("daemon", "capture",
            "let root capture what passes the ports, by dpdk-dumpcap --file-prefix=NAME",
            GRADWIRE_FIELD(daemon.capture)),

    text("port", "device", 1, 63, "ethdev name (net_memif0) or PCI address (0000:3b:00.0)",
         GRADWIRE_FIELD(ports[i].device), true),
    special("port", "ip", Kind::kIpPrefix, true,
            "the port's own address, IPv4 or IPv6, with the prefix of its network",
            [](DaemonConfig& c, std::size_t i) -> Field {
              return IpPrefixField{&c.ports[i].ip, &c.ports[i].prefix_bits};
            }),
    special("port", "gateway", Kind::kIp, false,
            "router on the port's network, through which hosts of other networks are reached; "
            "\"\": none, so only hosts of the port's network and of [[route]] sections are reached",
            GRADWIRE_FIELD(ports[i].gateway)),
    text("port", "rail", 0, 32,
         "name of the port's rail, if hosts have several: ports of one name exchange packets. "
         "\"\": those of one network do, and then those with a gateway, in their order",
         GRADWIRE_FIELD(ports[i].rail)),
    integer("port", "vlan", "", 0, 4094, "VLAN id of every frame; 0: untagged",
            GRADWIRE_FIELD(ports[i].vlan)),
    auto_integer("port", "mtu", "bytes", kMinMtu, 9702,
                 "largest IP packet; auto: as the device has it", GRADWIRE_FIELD(ports[i].mtu)),
    Key{"port", "rate_gbps", Kind::kReal, "Gbit/s", 0, 800, false, false, "",
        "the most that the port sends, in bits of frames; groups share it evenly; 0: no limit",
        GRADWIRE_FIELD(ports[i].rate_gbps)},
    integer("port", "rx_descriptors", "", 64, 8192,
            "length of each lane's receive ring: more than a group has ranks",
            GRADWIRE_FIELD(ports[i].rx_descriptors)),
    integer("port", "tx_descriptors", "", 64, 8192, "length of each lane's transmit ring",
            GRADWIRE_FIELD(ports[i].tx_descriptors)),
    choice("port", "xdp_program", "gradwire|driver",
           "for an af_xdp port. gradwire: takes this daemon's packets and leaves the rest to the "
           "kernel; driver: takes every frame of the queue",
           GRADWIRE_FIELD(ports[i].xdp_program)),

    special("route", "to", Kind::kIpPrefix, true, "network that is reached through `via`",
            [](DaemonConfig& c, std::size_t i) -> Field {
              return IpPrefixField{&c.routes[i].to, &c.routes[i].prefix_bits};
            }),
    special("route", "via", Kind::kIp, true,
            "router on the network of a port; that port sends what goes to the network `to`",
            GRADWIRE_FIELD(routes[i].via)),

    special("neighbor", "ip", Kind::kIp, true,
            "address of another rank's port that does not answer ARP (IPv6: neighbor discovery)",
            GRADWIRE_FIELD(neighbors[i].ip)),
    special("neighbor", "mac", Kind::kMac, true, "the Ethernet address of that port",
            GRADWIRE_FIELD(neighbors[i].mac)),

    auto_integer("lanes", "count", "", 1, 16,
                 "how many lanes; auto: one for each lcore but the main one",
                 GRADWIRE_FIELD(lanes.count)),
    integer("lanes", "base_udp_port", "", 1024, 65520, "lane i listens on this port + i",
            GRADWIRE_FIELD(lanes.base_udp_port)),
    choice("lanes", "polling", "busy|adaptive",
           "busy: for isolated cores; adaptive: spin shortly, then sleep, for shared ones",
           GRADWIRE_FIELD(lanes.polling)),
    integer("lanes", "nice", "", -20, 19,
            "nice value of adaptive lanes; below 0 it takes CAP_SYS_NICE or RLIMIT_NICE",
            GRADWIRE_FIELD(lanes.nice)),

    auto_integer(
        "transport", "payload_bytes", "bytes", 64, 9600,
        "payload of a full packet, a multiple of 64; auto: the most that the ports' MTU carries",
        GRADWIRE_FIELD(transport.payload_bytes)),
    Key{"transport", "rate_gbps", Kind::kReal, "Gbit/s", 0, 800, false, false, "",
        "the most that each connection sends; 0: no limit", GRADWIRE_FIELD(transport.rate_gbps)},
    choice("transport", "congestion", "static|dctcp|swift",
           "static: a connection's window stays as it is; dctcp: it follows ECN marks; swift: it "
           "follows delay",
           GRADWIRE_FIELD(transport.congestion)),
    integer(
        "transport", "swift_target_us", "us", 5, 100'000,
        "delay that swift aims at; choose more than the idle path's round trip, polling included",
        GRADWIRE_FIELD(transport.swift_target_us)),
    auto_integer("transport", "window_packets", "packets", 4, 4096,
                 "unacknowledged data packets of a connection; auto: as many as hold 512 KiB, "
                 "from 64 to 128",
                 GRADWIRE_FIELD(transport.window_packets)),
    auto_integer("transport", "transit_packets", "packets", 4, 4096,
                 "received chunks that may wait to be sent on; any more are stored and sent on "
                 "later; auto: as window_packets",
                 GRADWIRE_FIELD(transport.transit_packets)),
    integer("transport", "eager_packets", "packets", 1, 1024,
            "data packets that may be sent ahead of the receiver's grant; the same on all daemons",
            GRADWIRE_FIELD(transport.eager_packets)),
    integer(
        "transport", "exchange_kib", "KiB", 0, 65535,
        "up to this size of an op two ranks exchange whole inputs, in one hop instead of two; the "
        "same on all daemons",
        GRADWIRE_FIELD(transport.exchange_kib)),
    integer("transport", "direct_kib", "KiB", 0, 1024,
            "an op goes from rank to rank in one hop, and not round the ring, if what one rank "
            "sends or gets has at most this size; 0: never. Rank 0's counts for its group",
            GRADWIRE_FIELD(transport.direct_kib)),
    integer(
        "transport", "two_step_kib", "KiB", 0, 256,
        "a larger all-reduce goes in two hops, each rank summing a part, if that part has at most "
        "this size, and other collectives in one; 0: never. Rank 0's counts for its group, if it "
        "has direct ops",
        GRADWIRE_FIELD(transport.two_step_kib)),
    boolean("transport", "two_step_owner",
            "if any daemon of a group has it, the parts of all-reduces in two steps are summed by "
            "those that have it alone; in a group without one every rank sums a part",
            GRADWIRE_FIELD(transport.two_step_owner)),
    integer("transport", "gathered_kib", "KiB", 0, 1024,
            "an all-reduce, all-gather or barrier of many ranks goes to all in log2(ranks) steps, "
            "if the ranks' inputs have at most this size together; 0: never. Rank 0's counts for "
            "its group, if it has direct ops",
            GRADWIRE_FIELD(transport.gathered_kib)),
    integer("transport", "gathered_ranks", "", 2, 1024,
            "groups of more ranks than this have gathered ops. Rank 0's counts for its group",
            GRADWIRE_FIELD(transport.gathered_ranks)),
    choice("transport", "tiles", "auto|never|always",
           "always: all-reduces, reduce-scatters and all-gathers that are neither direct nor "
           "gathered nor in two steps are summed by owners tile by tile (doc/protocol/tiles.md), "
           "and do not go round the ring. auto: those that take less time so, by the ranks' rates "
           "and the three keys below, and all sums that travel in a wire format. never: none, and "
           "no call can have a wire format. Rank 0's counts for its group",
           GRADWIRE_FIELD(transport.tiles)),
    integer("transport", "packet_ns", "ns", 1, 65535,
            "what a lane takes for a packet, for each that it sends and each that it receives. It, "
            "byte_ps and hop_ns decide nothing but which large ops go by tiles if tiles is auto; "
            "gradwire tune measures them. Rank 0's count for its group",
            GRADWIRE_FIELD(transport.packet_ns)),
    integer("transport", "byte_ps", "ps", 1, 65535,
            "likewise: what a lane takes to copy or sum a byte", GRADWIRE_FIELD(transport.byte_ps)),
    integer("transport", "hop_ns", "ns", 1, 1'000'000'000,
            "likewise: the time from one host's wire to another's",
            GRADWIRE_FIELD(transport.hop_ns)),
    integer("transport", "tile_scratch_kib", "KiB", 64, 1u << 20,
            "memory of each lane of a group for parts of tiles, if the group has some",
            GRADWIRE_FIELD(transport.tile_scratch_kib)),
    integer("transport", "source_ports", "", 1, wire::kSourcePortsMax,
            "from so many UDP source ports a lane may send to a rank: it takes another one if "
            "nothing arrives that it sends from the one it has, which leads it round a bad path of "
            "several of equal cost. 1: never. On a leaf-spine fabric set it to 32 on all hosts, "
            "once firewalls let the ports pass",
            GRADWIRE_FIELD(transport.source_ports)),
    choice("transport", "integrity", "payload|link",
           "payload: each payload has a CRC from sender to receiver; link: none, for memif alone, "
           "which moves payloads through this host's memory; the same on all daemons",
           GRADWIRE_FIELD(transport.integrity)),
    integer("transport", "dscp", "", 0, 63, "DSCP of every packet", GRADWIRE_FIELD(transport.dscp)),
    boolean("transport", "ecn", "mark packets as ECN-capable (ECT(0))",
            GRADWIRE_FIELD(transport.ecn)),

    auto_integer(
        "timeouts", "silence_ms", "ms", 10, 600'000,
        "a neighbor that is silent for so long counts as dead; auto: 150 if polling is busy and "
        "require_isolated is true, else 1500",
        GRADWIRE_FIELD(timeouts.silence_ms)),
    integer("timeouts", "formation_ms", "ms", 100, 3'600'000, "how long a group may take to form",
            GRADWIRE_FIELD(timeouts.formation_ms)),
    integer("timeouts", "open_ms", "ms", 100, 600'000,
            "a connection that has opened no client is closed after so long without a request",
            GRADWIRE_FIELD(timeouts.open_ms)),
    integer("timeouts", "hello_ms", "ms", 1, 10'000, "time between hellos while a group forms",
            GRADWIRE_FIELD(timeouts.hello_ms)),
    integer("timeouts", "ping_ms", "ms", 1, 60'000,
            "a neighbor to which nothing was sent for so long is pinged; a tenth of silence_ms if "
            "that is less",
            GRADWIRE_FIELD(timeouts.ping_ms)),
    integer("timeouts", "leave_ms", "ms", 10, 600'000,
            "a group that is left closes after so long, whatever its neighbors say",
            GRADWIRE_FIELD(timeouts.leave_ms)),
    integer("timeouts", "leave_grace_ms", "ms", 10, 3'600'000,
            "if one member has left and others have not, the group is aborted after so long",
            GRADWIRE_FIELD(timeouts.leave_grace_ms)),
    integer("timeouts", "drain_ms", "ms", 0, 600'000,
            "when the daemon is told to stop: how long clients have to leave their groups",
            GRADWIRE_FIELD(timeouts.drain_ms)),
    integer("timeouts", "close_ms", "ms", 100, 600'000,
            "and then: how long the lanes have to abort and close what is left",
            GRADWIRE_FIELD(timeouts.close_ms)),

    integer("limits", "clients", "", 1, 1024,
            "clients connected at once; root and the daemon's own user can ask for the status even "
            "then",
            GRADWIRE_FIELD(limits.clients)),
    auto_integer(
        "limits", "user_clients", "", 1, 1024,
        "clients of one user, so that nobody can lock the others out; auto: three quarters "
        "of clients",
        GRADWIRE_FIELD(limits.user_clients)),
    integer("limits", "groups", "", 1, 256, "groups at once; they share the lanes' packet buffers",
            GRADWIRE_FIELD(limits.groups)),
    auto_integer("limits", "user_groups", "", 1, 256,
                 "groups of one user; auto: three quarters of groups",
                 GRADWIRE_FIELD(limits.user_groups)),
    integer("limits", "client_groups", "", 1, 256, "groups of one client",
            GRADWIRE_FIELD(limits.client_groups)),
    integer("limits", "transfer_groups", "", 0, 1024,
            "groups for transfers alone at once, beside groups: those of NCCL's plug-in",
            GRADWIRE_FIELD(limits.transfer_groups)),
    auto_integer("limits", "user_transfer_groups", "", 0, 1024,
                 "groups for transfers alone of one user; auto: three quarters of transfer_groups",
                 GRADWIRE_FIELD(limits.user_transfer_groups)),
    integer("limits", "client_regions", "", 1, 4096, "pieces of gradient memory of one client",
            GRADWIRE_FIELD(limits.client_regions)),
    integer("limits", "client_memory_mib", "MiB", 2, 16'777'216,
            "gradient memory of one client in all", GRADWIRE_FIELD(limits.client_memory_mib)),
    auto_integer("limits", "user_memory_mib", "MiB", 2, 16'777'216,
                 "gradient memory of all clients of one user; auto: three quarters of the host's "
                 "hugepages, and no bound on a GPU",
                 GRADWIRE_FIELD(limits.user_memory_mib)),
    power_of_two("limits", "active_ops", "", 1, 256, "unfinished ops of a group",
                 GRADWIRE_FIELD(limits.active_ops)),
    integer("limits", "key_memory_mib", "MiB", 1, 1'048'576,
            "memory for the keys of groups, 12 KiB for each other rank and lane; one user may have "
            "three quarters of it",
            GRADWIRE_FIELD(limits.key_memory_mib)),
    integer("limits", "lane_chunks", "", 1024, 1 << 26,
            "chunks of all unfinished ops of a group on one lane",
            GRADWIRE_FIELD(limits.lane_chunks)),

    text("gpu", "device", 0, 63,
         "GPU that reduces, as the EAL names it (gpu_emu0, gpu_cuda0, PCI address); \"\": the CPU "
         "reduces",
         GRADWIRE_FIELD(gpu.device)),
    choice("gpu", "staging", "copy|mapped|gpudirect|auto",
           "how payloads reach the GPU. copy: they are copied into its memory and back; mapped: it "
           "reads and writes the host's memory; gpudirect: ports receive into its memory and send "
           "from it, if their drivers can; auto: the best of these that works here, with a warning "
           "that says why a better one does not",
           GRADWIRE_FIELD(gpu.staging)),
    choice("gpu", "kernel", "launch|persistent",
           "launch: a kernel for each batch; persistent: one kernel that polls, which must not be "
           "chosen on a GPU that also trains",
           GRADWIRE_FIELD(gpu.kernel)),
    integer("gpu", "persistent_sms", "", 1, 64, "multiprocessors of each lane's persistent kernel",
            GRADWIRE_FIELD(gpu.persistent_sms)),
    choice("gpu", "client_memory", "host|gpu",
           "where clients' gradient memory is made: in hugepages, or on the GPU of gpu.device",
           GRADWIRE_FIELD(gpu.client_memory)),

    choice(
        "security", "mode", "off|authenticate|encrypt",
        "what groups of jobs that say nothing want: off, that packets cannot be changed, or that "
        "they cannot be read either. The highest that any rank wants counts for its group",
        GRADWIRE_FIELD(security.mode)),
    choice("security", "minimum", "off|authenticate|encrypt",
           "a job that wants less is refused here", GRADWIRE_FIELD(security.minimum)),
    text(
        "security", "key_file", 0, kMaxPath,
        "the cluster's key: a file that gradwire key make has made, of mode 0600; \"\": the daemon "
        "has no key, and forms no group that wants more than off",
        GRADWIRE_FIELD(security.key_file)),
    text("security", "second_key_file", 0, kMaxPath,
         "another key that is valid too while keys are rotated; \"\": there is none",
         GRADWIRE_FIELD(security.second_key_file)),

    text("faults", "port", 0, 63,
         "for tests only: device of the port that gets faults on purpose; \"\": every port",
         GRADWIRE_FIELD(faults.port)),
    integer("faults", "seed", "", 0, kMaxSeed, "the same seed gives the same faults",
            GRADWIRE_FIELD(faults.seed)),
    probability("drop", "share of received frames that is dropped", GRADWIRE_FIELD(faults.drop)),
    probability("duplicate", "share of received frames that arrives twice",
                GRADWIRE_FIELD(faults.duplicate)),
    probability("reorder", "share of received frames that later ones overtake",
                GRADWIRE_FIELD(faults.reorder)),
    integer("faults", "reorder_frames", "", 1, FaultSettings::kMaxReorderFrames,
            "how many later frames may overtake one", GRADWIRE_FIELD(faults.reorder_frames)),
    probability("corrupt", "share of received frames that has one bit flipped",
                GRADWIRE_FIELD(faults.corrupt)),
    probability("delay", "share of received frames that arrives late",
                GRADWIRE_FIELD(faults.delay)),
    integer("faults", "delay_us", "us", 1, FaultSettings::kMaxDelayUs, "how late it arrives",
            GRADWIRE_FIELD(faults.delay_us)),
};
#undef GRADWIRE_FIELD

}  // namespace

std::span<const Key> keys() noexcept { return kKeys; }

const Key* find_key(std::string_view section, std::string_view name) noexcept {
  for (const Key& key : kKeys) {
    if (section == key.section && name == key.name) return &key;
  }
  return nullptr;
}

bool is_section(std::string_view section) noexcept {
  return std::any_of(kKeys.begin(), kKeys.end(),
                     [&](const Key& key) { return section == key.section; });
}

}  // namespace gradwire::config
