// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {

using nlohmann::json;

namespace {

constexpr const char* kAlternateScreen = "\x1b[?1049h\x1b[?25l";
constexpr const char* kNormalScreen = "\x1b[?25h\x1b[?1049l";
constexpr const char* kHome = "\x1b[H\x1b[2J";

/// The terminal gives each key at once and does not echo, while this lives.
class RawTerminal {
 public:
  RawTerminal() {
    if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    changed_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    fmt::print("{}", kAlternateScreen);
  }
  ~RawTerminal() {
    fmt::print("{}", kNormalScreen);
    std::fflush(stdout);
    if (changed_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  /// @return whether q was pressed, or the terminal is gone, within `seconds`.
  [[nodiscard]] static bool quit_within(double seconds) {
    pollfd key{STDIN_FILENO, POLLIN, 0};
    if (::poll(&key, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
    char pressed = 0;
    return read(STDIN_FILENO, &pressed, 1) != 1 || pressed == 'q' || pressed == 'Q';
  }

 private:
  termios before_{};
  bool changed_ = false;
};

struct Options {
  Target target;
  double interval_s = 1.0;
  bool once = false;
};

/// Two looks at the daemon and what happened between them.
class Watch {
 public:
  explicit Watch(const Target& target) : target_(target) {}

  [[nodiscard]] Result<json> look() {
    auto status = ask(target_, ipc::MessageType::kStatus);
    if (!status) return tl::unexpected(status.error());
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - before_at_).count();
    json rates = top_of(before_, *status, before_.is_null() ? 0.0 : seconds);
    before_ = std::move(*status);
    before_at_ = now;
    return rates;
  }

 private:
  const Target& target_;
  json before_;
  std::chrono::steady_clock::time_point before_at_;
};

int show_once(const Options& options) {
  Watch watch(options.target);
  if (const auto first = watch.look(); !first) return complain(first.error().message);
  std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_s));
  const auto rates = watch.look();
  if (!rates) return complain(rates.error().message);
  fmt::print("{}", options.target.json ? rates->dump(2) + "\n" : top_text(*rates));
  return kOk;
}

int show_live(const Options& options) {
  Watch watch(options.target);
  std::string error;
  {
    const RawTerminal terminal;
    while (true) {
      const auto rates = watch.look();
      if (!rates) {
        error = rates.error().message;
        break;
      }
      fmt::print("{}{}\nq ends\n", kHome, top_text(*rates));
      std::fflush(stdout);
      if (RawTerminal::quit_within(options.interval_s)) break;
    }
  }
  return error.empty() ? kOk : complain(error);
}

}  // namespace

void add_top(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("top", "What happens in the daemon, live; q ends");
  add_target(*command, options->target);
  command->add_option("--interval", options->interval_s, "Seconds between two looks")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  command->add_flag("--once", options->once, "One interval, as text or JSON, for scripts");
  command->callback([options, &action] {
    action = [options] {
      // Without a terminal, or as JSON, there is nothing to be live on.
      const bool live = !options->once && !options->target.json && isatty(STDOUT_FILENO) == 1;
      return live ? show_live(*options) : show_once(*options);
    };
  });
}

}  // namespace gradwire::cli
