// SPDX-License-Identifier: BSD-3-Clause
// The daemon's main: reads the command line and the configuration, starts the EAL, runs. Exceptions
// of libraries end here.
#include <fmt/format.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "base/require.h"
#include "command_line.h"
#include "config/load.h"
#include "daemon.h"
#include "host/logging.h"
#include "host/output.h"
#include "ipc/control_server.h"
#include "ipc/standard_descriptors.h"
#include "port/eal.h"
#include "port/memif/memif_link.h"
#include "port/xdp/xdp_steering.h"
#include "settings.h"

namespace gradwire::gradwired {
namespace {

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

/// For the last words to be read by who still reads.
constexpr int kFinishMs = 1'000;

int complain(const Error& error, int status) {
  host::standard_error().write(fmt::format("gradwired: {}\n", error.message));
  return status;
}

std::atomic<int> signals{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler counts in it");

/// SIGTERM and SIGINT stop the daemon; a second one does not wait for clients. A client that went
/// away must not kill the daemon by SIGPIPE.
void count_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { signals.fetch_add(1, std::memory_order_relaxed); };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

/// What a group takes goes back to the system when it is closed. By default glibc keeps large
/// blocks for later ones once a few were freed: 1.6 MB of each group that was ever open at once.
void give_back_large_blocks() { mallopt(M_MMAP_THRESHOLD, 128 << 10); }

/// A client needs limits.client_regions descriptors and about six more, and without a free one
/// nobody is accepted: the usual 1,024 are too few.
void allow_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    spdlog::warn("the limit of open files could not be raised to the hard limit of {}",
                 limit.rlim_max);
  }
}

int serve(const config::DaemonConfig& config, std::unique_ptr<ipc::ControlServer> server,
          port::XdpSteering& steering, control::ClusterKeysPtr keys) {
  auto daemon = Daemon::start(config, std::move(server), steering, std::move(keys));
  if (!daemon) return complain(daemon.error(), kFailed);
  host::standard_output().write(fmt::format("{}\n", (*daemon)->ready_line()));
  if (const auto served = (*daemon)->run(signals); !served) {
    complain(served.error(), kFailed);
    // A lane or a GPU still uses memory that the destructors would free.
    unlink(config.daemon.control_socket.c_str());
    port::remove_eal_files();
    host::standard_error().finish(kFinishMs);
    std::_Exit(kFailed);
  }
  spdlog::info("stopped");
  return kOk;
}

int run(std::span<const char* const> arguments) {
  const auto command_line = parse_command_line(arguments);
  if (!command_line) return complain(command_line.error(), kUsage);
  if (command_line->show_help) {
    fmt::print("{}", help_text());
    return kOk;
  }
  if (command_line->show_version) {
    fmt::print("gradwired {}\n", GRADWIRE_VERSION);
    return kOk;
  }
  const auto config = config::load_file(command_line->config_path, command_line->overrides);
  if (!config) return complain(config.error(), kFailed);
  auto keys = read_keys(config->security);
  if (!keys) return complain(keys.error(), kFailed);
  if (command_line->check) {
    // Checks that depend on this host: key files, the group of the socket, the kernel's addresses.
    const std::string& name = config->daemon.socket_group;
    if (!name.empty()) {
      if (const auto group = group_id(name); !group) return complain(group.error(), kFailed);
    }
    for (const std::string& warning : address_warnings(*config)) {
      fmt::print(stderr, "warning: {}\n", warning);
    }
    fmt::print("{}", config::to_toml(*config));
    return kOk;
  }
  if (const auto logging = host::set_up_logging(config->daemon.log_level); !logging) {
    return complain(logging.error(), kFailed);
  }
  if (std::FILE* log = host::log_stream(); log != nullptr) port::log_to(log);
  auto eal_arguments = port::make_eal_arguments(command_line->program, command_line->eal_arguments,
                                                config->daemon.name, config->daemon.capture);
  if (!eal_arguments) return complain(eal_arguments.error(), kUsage);

  // Before the EAL starts, because a second instance must not touch the first one's hugepages and
  // devices.
  const auto socket = control_server_options(*config);
  if (!socket) return complain(socket.error(), kFailed);
  auto server = ipc::ControlServer::create(*socket);
  if (!server) return complain(server.error(), kFailed);

  const auto stale = port::remove_stale_memif_sockets(*eal_arguments);
  if (!stale) return complain(stale.error(), kFailed);
  for (const std::string& path : *stale)
    spdlog::info("removed {}, left behind by a server that has ended", path);
  auto steering = port::XdpSteering::prepare(xdp_ports(*config), *eal_arguments,
                                             config->daemon.control_socket + ".xdp");
  if (!steering) return complain(steering.error(), kFailed);
  const auto started = port::start_eal(std::move(*eal_arguments));
  if (!started) {
    Error error = started.error();
    error.message += why_no_eal(host::Machine());
    return complain(error, kFailed);
  }
  count_signals();
  give_back_large_blocks();
  allow_descriptors();
  return serve(*config, std::move(*server), *steering, std::move(*keys));
}

}  // namespace
}  // namespace gradwire::gradwired

int main(int argc, char** argv) {
  int status = 1;
  if (!gradwire::ipc::open_standard_descriptors()) return status;
  gradwire::set_last_words(gradwire::host::say_last_words);
  try {
    status = gradwire::gradwired::run({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& error) {
    gradwire::host::standard_error().write(fmt::format("gradwired: {}\n", error.what()));
  } catch (...) {
    gradwire::host::standard_error().write("gradwired: an unknown exception\n");
  }
  // Not in exit handlers: see port::start_eal().
  gradwire::port::leave_eal();
  std::fflush(stdout);
  gradwire::host::standard_output().finish(gradwire::gradwired::kFinishMs);
  gradwire::host::standard_error().finish(gradwire::gradwired::kFinishMs);
  std::_Exit(status);
}
