// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "config/load.h"
#include "host/examine.h"
#include "host/isolation.h"
#include "host/mtu_probe.h"
#include "verbs.h"

namespace gradwire::cli {
namespace {

struct DoctorOptions {
  bool json = false;
  std::string config;
  std::vector<std::string> nics;
  std::string cpus;
  std::vector<std::string> peers;
  std::uint64_t mtu = 0;
  std::string root;
};

/// What a configuration needs of the host. The EAL creates devices that are no PCI addresses.
Result<host::Subject> subject_of(const std::string& path) {
  if (path.empty()) {
    host::Subject unknown;
    unknown.base_udp_port = static_cast<std::uint16_t>(config::DaemonConfig{}.lanes.base_udp_port);
    return unknown;
  }
  const auto config = config::load_file(path);
  if (!config) return tl::unexpected(config.error());
  auto subject = host::Subject::without_ports();
  for (const config::PortSection& port : config->ports) {
    subject.add_port(port.device);
    subject.mtu = std::max(subject.mtu, port.mtu);
  }
  subject.base_udp_port = static_cast<std::uint16_t>(config->lanes.base_udp_port);
  if (config->lanes.count != config::kAuto) {
    subject.lanes = static_cast<std::uint16_t>(config->lanes.count);
  }
  subject.ecn = config->transport.ecn;
  subject.congestion = config->transport.congestion;
  subject.reduces_on_gpu = !config->gpu.device.empty();
  subject.seals = !config->security.key_file.empty();
  return subject;
}

int doctor(const DoctorOptions& options) {
  auto subject = subject_of(options.config);
  if (!subject) return complain(subject.error().message);
  subject->devices.insert(subject->devices.end(), options.nics.begin(), options.nics.end());
  if (!options.nics.empty()) subject->pci = subject->nics = true;
  if (options.mtu != 0) subject->mtu = options.mtu;
  if (!options.cpus.empty()) {
    auto cpus = host::parse_cpu_list(options.cpus);
    if (!cpus) return complain(cpus.error().message);
    subject->lane_cpus = std::move(*cpus);
  }
  const host::Machine machine(options.root);
  host::Findings findings = host::examine(machine, *subject);
  for (const std::string& peer : options.peers) {
    findings.push_back(host::check_path_mtu(peer, host::probe_path_mtu(peer), subject->mtu));
  }
  if (options.json) {
    fmt::print("{}\n", host::to_json(findings).dump(2));
  } else {
    fmt::print("{}", host::to_text(findings));
  }
  return host::is_fit(findings) ? kOk : kFailed;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* const verb =
      app.add_subcommand("doctor",
                         "Check whether this host is fit for gradwired: show what was found, why "
                         "it matters and how to fix it. Exit status 0 if it is fit");
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_option("--config", options->config,
                   "The daemon's configuration file: check only what it uses");
  verb->add_option("--nic", options->nics,
                   "A NIC that gradwired will use: its PCI address or interface");
  verb->add_option("--cpus", options->cpus, "The lanes' CPUs, such as 3,4");
  verb->add_option("--mtu", options->mtu, "The MTU that the path must carry")
      ->check(CLI::Range(68, 65'535));
  verb->add_option("--peer", options->peers,
                   "Measure the path MTU to this address, over the kernel's route");
  verb->add_option("--root", options->root, "Read sysfs and procfs below this folder");
  verb->callback([options, &action] { action = [options] { return doctor(*options); }; });
}

}  // namespace gradwire::cli
