// SPDX-License-Identifier: BSD-3-Clause
#include "tune_trial.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "table.h"

extern char** environ;

namespace gradwire::cli {
namespace {

using Clock = std::chrono::steady_clock;
/// The time limit for formation and for each op of a trial; the whole trial may take longer.
constexpr double kOpSeconds = 5;
constexpr auto kKillAfter = std::chrono::milliseconds(500);

/// A folder for the files of one trial, which the destructor removes.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/gradwire-tune-XXXXXX";
    if (mkdtemp(name) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// The last line of gradwire-perf's output, without its name.
std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  constexpr std::string_view kName = "gradwire-perf: ";
  return last.starts_with(kName) ? last.substr(kName.size()) : last;
}

/// @return waitpid()'s status; -1 where it had to be killed.
int wait_bounded(pid_t pid, Clock::time_point deadline) {
  int status = 0;
  bool told = false;
  while (true) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return told ? -1 : status;
    if (ended < 0 && errno != EINTR) return -1;
    if (Clock::now() >= deadline) {
      kill(pid, told ? SIGKILL : SIGTERM);
      told = true;
      deadline = Clock::now() + kKillAfter;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// @return waitpid()'s status, -1: killed; errors of the start as text.
Result<int> run_process(const std::vector<std::string>& command, const std::string& output,
                        Clock::time_point deadline) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("{} could not be started: {}", command[0], std::strerror(error)));
  }
  return wait_bounded(pid, deadline);
}

/// Fills what gradwire-perf's JSON says. @return what is wrong with it, or "".
std::string read_figures(const std::string& path, TuneTrial& trial) {
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  const nlohmann::json results = json.is_object() ? elements(json, "results") : nlohmann::json();
  if (results.size() != 2) return "gradwire-perf succeeded but wrote no results";
  const nlohmann::json counters = section(results[1], "counters");
  trial.latency_us = number(results[0], "time_p50_us");
  trial.best_64_us = number(results[0], "time_min_us");
  trial.best_us = number(results[1], "time_min_us");
  trial.busbw_gbps = number(results[1], "busbw_bytes_per_s") * 8 / 1e9;
  trial.retransmissions = number(counters, "retransmissions");
  trial.packets = number(counters, "data_packets");
  for (const nlohmann::json& one : results) {
    if (number(one, "wrong") != 0) return "the sums are wrong";
  }
  return "";
}

}  // namespace

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> perf_arguments(const TuneHost& host, const TuneRound& round,
                                        const TuneSettings& settings, const std::string& json) {
  std::vector<std::string> out = {host.perf};
  out.insert(out.end(), host.eal.begin(), host.eal.end());
  const auto add = [&](const char* option, const auto& value) {
    out.emplace_back(option);
    out.push_back(fmt::format("{}", value));
  };
  out.emplace_back("--");
  add("--transport", "gradwire");
  add("--rank", host.rank);
  add("--nranks", 2);
  add("--rendezvous", round.rendezvous);
  add("--epoch", round.epoch);
  for (const config::PortSection& port : host.config.ports) {
    const std::string mtu = port.mtu == config::kAuto ? "" : fmt::format(",{}", port.mtu);
    add("--port", fmt::format("{}={}/{}{}", port.device, port.ip, port.prefix_bits, mtu));
  }
  add("--udp-port", host.config.lanes.base_udp_port);
  add("--payload", settings.payload_bytes);
  add("--window", settings.window_packets);
  add("--transit", settings.window_packets);
  add("--lanes", settings.lanes);
  add("--port-rate", settings.rate_gbps);
  add("--sizes", fmt::format("64:200,{}:{}", round.bytes, round.iterations));
  add("--timeout", std::min(kOpSeconds, round.seconds));
  add("--json", json);
  if (host.config.lanes.polling == "busy") out.emplace_back("--busy");
  return out;
}

TuneTrial run_trial(const TuneHost& host, const TuneRound& round, const std::string& step,
                    const TuneSettings& settings) {
  TuneTrial trial;
  trial.step = step;
  trial.settings = settings;
  const Folder folder;
  if (folder.path().empty()) {
    trial.error = fmt::format("creating a folder in /tmp: {}", std::strerror(errno));
    return trial;
  }
  const std::string json = folder.path() + "/figures.json";
  const std::string output = folder.path() + "/output";
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(round.seconds));
  const auto status = run_process(perf_arguments(host, round, settings, json), output, deadline);
  if (!status) {
    trial.error = status.error().message;
  } else if (*status == -1) {
    trial.error = fmt::format("not done within {} s", round.seconds);
  } else if (*status != 0) {
    trial.error = last_line(output);
    if (trial.error.empty()) trial.error = fmt::format("gradwire-perf ended with {}", *status);
  } else {
    trial.error = read_figures(json, trial);
  }
  return trial;
}

}  // namespace gradwire::cli
