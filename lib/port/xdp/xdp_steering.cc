// SPDX-License-Identifier: BSD-3-Clause
#include "port/xdp/xdp_steering.h"

#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/system_error.h"
#include "port/driver_table.h"
#include "port/neighbors/neighbor_message.h"

namespace gradwire::port {
namespace {

constexpr std::string_view kDriver = "net_af_xdp";
constexpr std::string_view kOption = "--vdev";

/// Makes a file without a name that contains `bytes`. It can be read as /proc/self/fd/N while the
/// process lives.
Result<ipc::UniqueFd> memory_file(std::span<const std::byte> bytes) {
  ipc::UniqueFd file(memfd_create("gradwire-xdp", MFD_CLOEXEC));
  if (!file ||
      write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    return system_error("writing the XDP program to a memory file");
  }
  return file;
}

/// @return 0 if the interface has no program.
std::uint32_t program_on(unsigned interface_index) noexcept {
  std::uint32_t id = 0;
  return bpf_xdp_query_id(static_cast<int>(interface_index), 0, &id) == 0 ? id : 0;
}

std::string describe(const XdpTraffic& traffic) {
  const unsigned last = traffic.first_udp_port + traffic.udp_ports - 1u;
  const std::string ports = traffic.udp_ports == 1
                                ? fmt::format("port {}", traffic.first_udp_port)
                                : fmt::format("ports {} to {}", traffic.first_udp_port, last);
  return fmt::format("UDP {} of {}, its {} and its pings", ports, wire::to_string(traffic.ip),
                     protocol_name(traffic.ip));
}

}  // namespace

Result<XdpSteering> XdpSteering::prepare(std::span<const XdpPort> ports,
                                         std::vector<std::string>& eal_arguments,
                                         std::string record) {
  XdpSteering steering(std::move(record));
  for (std::size_t i = 0; i < eal_arguments.size(); ++i) {
    const bool value_follows = eal_arguments[i] == kOption && i + 1 < eal_arguments.size();
    if (value_follows) ++i;
    const std::string prefix = value_follows ? "" : std::string(kOption) + '=';
    std::string& argument = eal_arguments[i];
    if (!value_follows && !argument.starts_with(prefix)) continue;
    std::string vdev = argument.substr(prefix.size());
    if (!vdev.starts_with(kDriver)) continue;
    const std::string name = vdev.substr(0, vdev.find(','));
    const auto port = std::find_if(ports.begin(), ports.end(),
                                   [&](const XdpPort& one) { return one.device == name; });
    if (port == ports.end()) continue;
    if (auto added = steering.add(*port, vdev); !added) return tl::unexpected(added.error());
    argument = prefix + vdev;
  }
  return steering;
}

Result<void> XdpSteering::add(const XdpPort& port, std::string& vdev) {
  const std::string interface(devarg(vdev, "iface").value_or(""));
  if (const auto given = devarg(vdev, "xdp_prog")) {
    facts_.push_back(
        fmt::format("port {}: the XDP program {} given in its --vdev decides what it receives",
                    port.device, *given));
    return {};
  }
  const auto takes_all = [&](const std::string& why) {
    warnings_.push_back(
        fmt::format("port {}: takes every frame that {} receives on its queue, SSH included, and "
                    "the kernel no longer gets them, because {}",
                    port.device, interface, why));
  };
  if (!port.steer) {
    takes_all("its xdp_program is \"driver\"");
    return {};
  }
  if (xdp_program_object().empty()) {
    takes_all("gradwire was built without its XDP program (clang was missing)");
    return {};
  }
  auto program = make_xdp_program(port.traffic);
  if (!program) {
    return fail(program.error().code,
                fmt::format("port {}: {}", port.device, program.error().message));
  }
  Attached attached{interface, if_nametoindex(interface.c_str()), 0};
  // If there is no such interface, the driver reports it.
  if (attached.index != 0) {
    if (auto cleared = clear_interface(port.device, attached); !cleared) return cleared;
  }
  auto file = memory_file(*program);
  if (!file) return tl::unexpected(file.error());
  vdev += fmt::format(",xdp_prog=/proc/self/fd/{}", file->get());
  program_files_.push_back(std::move(*file));
  attached_.push_back(std::move(attached));
  facts_.push_back(
      fmt::format("port {}: gradwire's XDP program takes {}; everything else that {} receives "
                  "still goes to the kernel",
                  port.device, describe(port.traffic), interface));
  return {};
}

Result<void> XdpSteering::clear_interface(const std::string& device, const Attached& wanted) const {
  Attached there = wanted;
  there.program_id = program_on(wanted.index);
  if (there.program_id == 0) return {};
  const auto left = read_record();
  if (std::find(left.begin(), left.end(), there) == left.end()) {
    return fail(
        ErrorCode::kBusy,
        fmt::format("port {}: {} already has an XDP program (id {}) that gradwire did not put "
                    "there. If nobody needs it, remove it by: ip link set dev {} xdp off",
                    device, there.interface, there.program_id, there.interface));
  }
  if (const int error = bpf_xdp_detach(static_cast<int>(there.index), 0, nullptr); error != 0) {
    return fail(
        ErrorCode::kSystem,
        fmt::format(
            "port {}: the XDP program that a killed daemon left on {} could not be removed: {}",
            device, there.interface, std::strerror(-error)));
  }
  return {};
}

XdpSteering::~XdpSteering() {
  for (const Attached& one : attached_) {
    if (one.program_id == 0 || program_on(one.index) != one.program_id) continue;
    bpf_xdp_detach(static_cast<int>(one.index), 0, nullptr);
  }
  if (!record_.empty() && !attached_.empty()) unlink(record_.c_str());
}

Result<void> XdpSteering::write_record() {
  if (attached_.empty()) return {};
  for (Attached& one : attached_) one.program_id = program_on(one.index);
  if (record_.empty()) return {};
  std::ofstream file(record_);
  for (const Attached& one : attached_) {
    file << one.interface << ' ' << one.index << ' ' << one.program_id << '\n';
  }
  file.close();
  if (!file) return system_error(fmt::format("{} could not be written", record_));
  return {};
}

std::vector<XdpSteering::Attached> XdpSteering::read_record() const {
  std::vector<Attached> out;
  if (record_.empty()) return out;
  std::ifstream file(record_);
  Attached one;
  while (file >> one.interface >> one.index >> one.program_id) out.push_back(one);
  return out;
}

}  // namespace gradwire::port
