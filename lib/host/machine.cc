// SPDX-License-Identifier: BSD-3-Clause
#include "host/machine.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gradwire::host {

std::optional<std::string> Machine::text(const std::string& path) const {
  std::ifstream in(root_ + path);
  std::ostringstream out;
  if (!in || !(out << in.rdbuf())) return std::nullopt;
  const std::string all = out.str();
  const std::size_t first = all.find_first_not_of(" \t\n");
  if (first == std::string::npos) return std::string();
  return all.substr(first, all.find_last_not_of(" \t\n") - first + 1);
}

std::optional<std::int64_t> Machine::number(const std::string& path) const {
  const auto all = text(path);
  std::int64_t value = 0;
  if (!all) return std::nullopt;
  const auto [end, error] = std::from_chars(all->data(), all->data() + all->size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

bool Machine::exists(const std::string& path) const {
  std::error_code ignored;
  return std::filesystem::exists(root_ + path, ignored);
}

std::vector<std::string> Machine::names(const std::string& path) const {
  std::vector<std::string> out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(root_ + path, error), end; !error && it != end;
       it.increment(error)) {
    out.push_back(it->path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string Machine::link_name(const std::string& path) const {
  std::error_code error;
  const auto target = std::filesystem::read_symlink(root_ + path, error);
  return error ? std::string() : target.filename().string();
}

std::optional<bool> Machine::has_capability(unsigned number) const {
  constexpr const char* kName = "CapEff:";
  std::istringstream lines(text("/proc/self/status").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kName)) continue;
    return (std::strtoull(line.c_str() + std::strlen(kName), nullptr, 16) >> number & 1) != 0;
  }
  return std::nullopt;
}

std::uint64_t Machine::memlock_bytes() const {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur;
}

std::optional<Pause> Machine::pause(const std::string& interface) const {
  ifreq request{};
  if (interface.size() >= sizeof request.ifr_name) return std::nullopt;
  std::memcpy(request.ifr_name, interface.c_str(), interface.size() + 1);
  ethtool_pauseparam parameters{};
  parameters.cmd = ETHTOOL_GPAUSEPARAM;
  request.ifr_data = reinterpret_cast<char*>(&parameters);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  const bool told = ioctl(fd, SIOCETHTOOL, &request) == 0;
  close(fd);
  if (!told) return std::nullopt;
  return Pause{parameters.rx_pause != 0, parameters.tx_pause != 0};
}

std::optional<std::string> Machine::output(const std::vector<std::string>& command) const {
  int pipe_fds[2];
  if (command.empty() || pipe2(pipe_fds, O_CLOEXEC) != 0) return std::nullopt;
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  std::string out;
  std::array<char, 4096> buffer{};
  if (error == 0) {
    for (ssize_t got = 0; (got = read(pipe_fds[0], buffer.data(), buffer.size())) > 0;) {
      out.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  close(pipe_fds[0]);
  int status = -1;
  if (error != 0 || waitpid(child, &status, 0) != child || status != 0) return std::nullopt;
  return out;
}

}  // namespace gradwire::host
