// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "client/version.h"
#include "config/load.h"
#include "tune_costs.h"
#include "tune_link.h"
#include "tune_plan.h"
#include "tune_trial.h"
#include "verbs.h"
#include "wire/frame.h"

namespace gradwire::cli {
namespace {

constexpr std::uint16_t kPort = 18400;
/// How long the other end may take besides the trial itself, to start it and to report it.
constexpr double kSlackSeconds = 10;

struct TuneOptions {
  std::string config;
  std::string eal;
  std::string perf;
  std::string peer;
  std::uint16_t listen = 0;
  double wait_s = 60;
  double step_s = 20;
  std::uint64_t bytes = std::uint64_t{16} << 20;
  std::uint32_t iterations = 10;
  std::vector<std::uint32_t> windows = {16, 32, 64, 128, 256};
  std::uint32_t max_lanes = 0;
  bool json = false;
};

/// Finds gradwire-perf beside this program or in the build folder; else by PATH.
std::string find_perf() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& place : {self / "gradwire-perf", self / "../gradwire-perf/gradwire-perf"}) {
    if (!error && access(place.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(place)) {
      return place.string();
    }
  }
  return "gradwire-perf";
}

/// "HOST:PORT" or "HOST"; an IPv6 address stands in brackets if a port follows.
Result<std::pair<std::string, std::uint16_t>> parse_peer(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || wire::parse_ip(text)) return std::pair(text, kPort);
  if (text.starts_with('[') && text.ends_with(']')) {
    return std::pair(text.substr(1, text.size() - 2), kPort);
  }
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc{} || stopped != end || port == 0 || colon == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--peer {}: must be HOST:PORT, such as 10.0.0.1:{}", text, kPort));
  }
  const std::string host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  return std::pair(bracketed ? host.substr(1, host.size() - 2) : host, port);
}

Result<TuneHost> host_of(const TuneOptions& options) {
  auto config = config::load_file(options.config);
  if (!config) return tl::unexpected(config.error());
  for (const config::PortSection& port : config->ports) {
    if (port.vlan != 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("port {} has vlan = {}, but gradwire tune cannot send VLAN tags: "
                              "remove the key while you measure, or choose the values by hand",
                              port.device, port.vlan));
    }
  }
  if (config->ports.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has no [[port]], so there is no link to tune", options.config));
  }
  if (!config->neighbors.empty()) {
    return fail(ErrorCode::kUnsupported,
                "the configuration has a [[neighbor]], but gradwire tune finds its peer only by "
                "ARP or neighbor discovery: use a link on which these are answered");
  }
  Target daemon{config->daemon.control_socket, 1.0, false};
  if (access(daemon.socket.c_str(), F_OK) == 0 && ask(daemon, ipc::MessageType::kStatus)) {
    return fail(ErrorCode::kBusy, fmt::format("a daemon is running at {} and holds the ports: stop "
                                              "it first (systemctl stop gradwired)",
                                              daemon.socket));
  }
  TuneHost host;
  host.perf = options.perf.empty() ? find_perf() : options.perf;
  host.eal = split_words(options.eal);
  host.config = std::move(*config);
  host.rank = options.peer.empty() ? 0 : 1;
  return host;
}

/// The largest payload that the configuration allows.
std::uint32_t most_payload(const config::DaemonConfig& config) {
  constexpr std::uint64_t kJumboMtu = 9000;
  std::uint64_t most = UINT32_MAX;
  for (const config::PortSection& port : config.ports) {
    const std::uint64_t mtu = port.mtu == config::kAuto ? kJumboMtu : port.mtu;
    most = std::min(most, config::max_payload_bytes(mtu, port.ip));
  }
  return static_cast<std::uint32_t>(most);
}

void show(const TuneOptions& options, const TuneOutcome& outcome) {
  if (options.json) {
    fmt::print("{}\n", to_json(outcome).dump(2));
  } else {
    fmt::print("{}\n{}", tune_table(outcome), tune_fragment(outcome));
  }
}

void tell_progress(const TuneOptions& options, const TuneTrial& trial) {
  if (options.json) return;
  const double rate = trial.settings.rate_gbps;
  fmt::print(stderr, "{}: payload {}, window {}, {} lane{}{}: {}\n", trial.step,
             trial.settings.payload_bytes, trial.settings.window_packets, trial.settings.lanes,
             trial.settings.lanes == 1 ? "" : "s",
             rate == 0 ? "" : fmt::format(", paced to {:.3f} Gbit/s", rate),
             trial.ran() ? fmt::format("{:.2f} Gbit/s", trial.busbw_gbps) : trial.error);
}

/// Rank 0: decides what is tried, and tells the other end before each trial.
int lead(const TuneOptions& options, const TuneHost& host) {
  if (!options.json) fmt::print(stderr, "waiting for the peer at TCP port {}\n", options.listen);
  auto link = TuneLink::accept(options.listen, options.wait_s);
  if (!link) return complain(link.error().message);
  const auto hello = link->receive(kSlackSeconds);
  if (!hello) return complain(hello.error().message);
  if (hello->value("gradwire_tune", std::string()) != GRADWIRE_VERSION) {
    return complain(fmt::format(
        "the peer answers, but it is not gradwire tune " GRADWIRE_VERSION ": {}", hello->dump()));
  }
  TuneLimits limits;
  const auto peer_most = hello->value("most_payload_bytes", std::uint32_t{0});
  limits.payloads = payload_candidates(std::min(most_payload(host.config), peer_most));
  limits.windows = options.windows;
  limits.max_lanes = options.max_lanes != 0 ? options.max_lanes
                     : host.config.lanes.count == config::kAuto
                         ? 1
                         : static_cast<std::uint32_t>(host.config.lanes.count);
  TuneRound round;
  round.rendezvous = fmt::format("tcp://{}:{}", link->leader_address(), options.listen + 1);
  round.seconds = options.step_s;
  const auto outcome = find_settings(
      limits, [&](const std::string& step, const TuneSettings& settings) -> Result<TuneTrial> {
        ++round.epoch;
        const bool costs = step == kCostStep;
        round.bytes = costs ? kCostBytes : options.bytes;
        round.iterations = costs ? kCostIterations : options.iterations;
        auto told = link->send({{"step", step},
                                {"epoch", round.epoch},
                                {"port", options.listen + 1},
                                {"bytes", round.bytes},
                                {"iterations", round.iterations},
                                {"seconds", round.seconds},
                                {"payload_bytes", settings.payload_bytes},
                                {"window_packets", settings.window_packets},
                                {"lanes", settings.lanes},
                                {"rate_gbps", settings.rate_gbps}});
        if (!told) return tl::unexpected(told.error());
        TuneTrial trial = run_trial(host, round, step, settings);
        const auto answer = link->receive(round.seconds + kSlackSeconds);
        if (!answer) return tl::unexpected(answer.error());
        const auto error = answer->value("error", std::string());
        if (!error.empty()) {
          trial.error = trial.ran() ? "the peer: " + error
                                    : fmt::format("{}; the peer: {}", trial.error, error);
        }
        tell_progress(options, trial);
        return trial;
      });
  if (!outcome) {
    // The other end tells its own user. If it has gone already, that changes nothing here.
    static_cast<void>(link->send({{"failed", outcome.error().message}}));
    return complain(outcome.error().message);
  }
  if (auto told = link->send({{"outcome", to_json(*outcome)}}); !told) {
    complain(told.error().message);
  }
  show(options, *outcome);
  return kOk;
}

/// Checks the numbers from another host against the bounds of gradwire-perf's options.
Result<std::pair<TuneRound, TuneSettings>> told_trial(const nlohmann::json& message,
                                                      const std::string& leader) {
  TuneRound round;
  TuneSettings settings;
  try {
    message.at("epoch").get_to(round.epoch);
    round.rendezvous = fmt::format("tcp://{}:{}", leader, message.at("port").get<std::uint16_t>());
    message.at("bytes").get_to(round.bytes);
    message.at("iterations").get_to(round.iterations);
    message.at("seconds").get_to(round.seconds);
    message.at("payload_bytes").get_to(settings.payload_bytes);
    message.at("window_packets").get_to(settings.window_packets);
    message.at("lanes").get_to(settings.lanes);
    message.at("rate_gbps").get_to(settings.rate_gbps);
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the peer sent a message that is not a trial: {}", error.what()));
  }
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
  if (round.bytes > kMostBytes || !(round.seconds > 0 && round.seconds <= 600)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the peer asks for an all-reduce of {} bytes within {} s, must be at "
                            "most 1 GiB and 600 s",
                            round.bytes, round.seconds));
  }
  return std::pair(round, settings);
}

/// Rank 1: runs the trials that rank 0 sends, until it sends the outcome.
int follow(const TuneOptions& options, const TuneHost& host) {
  const auto peer = parse_peer(options.peer);
  if (!peer) {
    complain(peer.error().message);
    return kUsage;
  }
  auto link = TuneLink::connect(peer->first, peer->second, options.wait_s);
  if (!link) return complain(link.error().message);
  auto told = link->send(
      {{"gradwire_tune", GRADWIRE_VERSION}, {"most_payload_bytes", most_payload(host.config)}});
  double patience = options.wait_s;
  while (told) {
    const auto message = link->receive(patience);
    if (!message) return complain(message.error().message);
    if (message->contains("failed")) {
      return complain("the peer gave up: " + message->value("failed", std::string()));
    }
    if (message->contains("outcome")) {
      const auto outcome = outcome_of((*message)["outcome"]);
      if (!outcome) return complain(outcome.error().message);
      show(options, *outcome);
      return kOk;
    }
    const auto trial = told_trial(*message, link->leader_address());
    if (!trial) return complain(trial.error().message);
    // The leader still waits for its own process, and then decides.
    patience = trial->first.seconds + kSlackSeconds;
    const TuneTrial done =
        run_trial(host, trial->first, message->value("step", std::string()), trial->second);
    tell_progress(options, done);
    told = link->send({{"error", done.error}});
  }
  return complain(told.error().message);
}

}  // namespace

void add_tune(CLI::App& app, Action& action) {
  const auto options = std::make_shared<TuneOptions>();
  if (const char* const eal = std::getenv("GRADWIRED_EAL")) options->eal = eal;
  CLI::App* const verb =
      app.add_subcommand("tune",
                         "Measure the link to a peer by short all-reduces and propose payload, "
                         "window, lanes, rate and the thresholds of shapes. Run it on both hosts "
                         "while the daemons are "
                         "stopped: with --listen on one, with --peer on the other");
  verb->add_option("--config", options->config,
                   "The daemon's configuration file; tune uses its ports")
      ->required();
  verb->add_option(
      "--eal", options->eal,
      "The EAL's arguments, as the daemon gets them before \"--\"; default $GRADWIRED_EAL");
  CLI::Option* const peer = verb->add_option(
      "--peer", options->peer,
      fmt::format("HOST[:PORT] of the listening side, over the kernel's network; default port {}",
                  kPort));
  CLI::Option* const listen =
      verb->add_option("--listen", options->listen,
                       "Wait for the peer on this TCP port; tune uses the next port too")
          ->check(CLI::Range(1024, 65'534));
  peer->excludes(listen);
  verb->add_option("--wait", options->wait_s, "Seconds to wait for the peer")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str();
  verb->add_option("--step-seconds", options->step_s, "Limit for one step, in seconds")
      ->check(CLI::Range(1.0, 600.0))
      ->capture_default_str();
  verb->add_option("--bytes", options->bytes, "Size of the all-reduces whose bandwidth is measured")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1024}, std::uint64_t{1} << 30))
      ->capture_default_str();
  verb->add_option("--iterations", options->iterations, "Timed all-reduces per step")
      ->check(CLI::Range(1u, 100'000u))
      ->capture_default_str();
  verb->add_option("--windows", options->windows,
                   "Windows to try besides the default of the payload, in packets")
      ->delimiter(',')
      ->check(CLI::Range(4u, 4096u))
      ->capture_default_str();
  verb->add_option(
          "--max-lanes", options->max_lanes,
          "How many lanes to try at most; default: lanes.count of the configuration, else 1")
      ->check(CLI::Range(1u, 16u));
  verb->add_option("--perf", options->perf,
                   "Path of gradwire-perf, unless it is beside this program");
  verb->add_flag("--json", options->json, "Print the outcome as JSON");
  verb->callback([options, &action] {
    action = [options] {
      if (options->peer.empty() && options->listen == 0) options->listen = kPort;
      const auto host = host_of(*options);
      if (!host) return complain(host.error().message);
      std::sort(options->windows.begin(), options->windows.end());
      return host->rank == 0 ? lead(*options, *host) : follow(*options, *host);
    };
  });
}

}  // namespace gradwire::cli
