// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {

namespace {

constexpr const char* kAlternateScreen = "\x1b[?1049h\x1b[?25l";
constexpr const char* kNormalScreen = "\x1b[?25h\x1b[?1049l";
constexpr const char* kHome = "\x1b[H";
constexpr const char* kRestOfLine = "\x1b[K";
constexpr const char* kRestOfScreen = "\x1b[J";
constexpr char kCtrlC = 3;
/// Rates need two updates. The first rates are shown after this time, whatever the interval.
constexpr double kFirstLook = 0.2;

/// While it exists, the terminal delivers each key at once and does not echo it.
class RawTerminal {
 public:
  RawTerminal() {
    if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    // Ctrl-C arrives as a key, because a signal would end the program with the cursor hidden.
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
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

  /// @return whether q or Ctrl-C was pressed, or the terminal has closed, within `seconds`.
  [[nodiscard]] static bool quit_within(double seconds) {
    pollfd key{STDIN_FILENO, POLLIN, 0};
    if (::poll(&key, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
    char pressed = 0;
    return read(STDIN_FILENO, &pressed, 1) != 1 || pressed == 'q' || pressed == 'Q' ||
           pressed == kCtrlC;
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

/// Two updates from the daemon, and what happened between them.
class Watch {
 public:
  explicit Watch(const Target& target) : target_(target) {}

  [[nodiscard]] Result<Top> look() {
    auto answer = ask_status(target_);
    if (!answer) return tl::unexpected(answer.error());
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - before_at_).count();
    Top rates = top_of(before_, answer->status, looked_ ? seconds : 0.0);
    looked_ = true;
    before_ = std::move(answer->status);
    before_at_ = now;
    return rates;
  }

 private:
  const Target& target_;
  bool looked_ = false;
  status::DaemonStatus before_;
  std::chrono::steady_clock::time_point before_at_;
};

int show_once(const Options& options) {
  Watch watch(options.target);
  if (const auto first = watch.look(); !first) return complain(first.error().message);
  std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_s));
  const auto rates = watch.look();
  if (!rates) return complain(rates.error().message);
  fmt::print("{}", options.target.json ? nlohmann::json(*rates).dump(2) + "\n" : top_text(*rates));
  return kOk;
}

/// Shows as much of `text` as fits the terminal, and below it how to quit.
void show_screen(const std::string& text) {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 3 || size.ws_col < 20) {
    size.ws_row = 24;
    size.ws_col = 80;
  }
  std::string screen = kHome;
  std::istringstream lines(text);
  int row = 1;
  for (std::string line; std::getline(lines, line);) {
    // Long lines are wrapped, not cut, because whom an op waits for is at the end of its line.
    const int rows = std::max(1, static_cast<int>((line.size() + size.ws_col - 1) / size.ws_col));
    const bool more = lines.peek() != std::istringstream::traits_type::eof();
    if (row + rows > size.ws_row - (more ? 1 : 0)) {
      screen += fmt::format("...{}\n", kRestOfLine);
      break;
    }
    row += rows;
    screen += fmt::format("{}{}\n", line, kRestOfLine);
  }
  screen += fmt::format("press q to quit{}", kRestOfScreen);
  fmt::print("{}", screen);
  std::fflush(stdout);
}

int show_live(const Options& options) {
  Watch watch(options.target);
  std::string error;
  {
    const RawTerminal terminal;
    const auto first = watch.look();
    if (!first) error = first.error().message;
    bool quit = !first || RawTerminal::quit_within(std::min(kFirstLook, options.interval_s));
    while (!quit) {
      const auto rates = watch.look();
      if (!rates) {
        error = rates.error().message;
        break;
      }
      show_screen(top_text(*rates));
      quit = RawTerminal::quit_within(options.interval_s);
    }
  }
  return error.empty() ? kOk : complain(error);
}

}  // namespace

void add_top(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("top", "What the daemon is doing, live; press q to quit");
  add_target(*command, options->target);
  command->add_option("--interval", options->interval_s, "Seconds between two updates")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  command->add_flag("--once", options->once,
                    "Print one interval as text or JSON and exit, for scripts");
  command->callback([options, &action] {
    action = [options] {
      // Without a terminal, or as JSON, it prints once.
      const bool live = !options->once && !options->target.json && isatty(STDOUT_FILENO) == 1;
      return live ? show_live(*options) : show_once(*options);
    };
  });
}

}  // namespace gradwire::cli
