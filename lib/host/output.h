// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Writes lines to standard output or standard error without ever waiting for whoever reads them: a
/// pipe that nobody reads must not stop a daemon. What the reader does not take at once is kept up
/// to a bound; lines beyond it are dropped and counted, and when the reader is back it is told how
/// many. Any thread; locks, allocates, makes system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace gradwire::host {

class Output {
 public:
  /// The whole configuration, and some thousand lines after it.
  static constexpr std::size_t kKeptBytes = 256 * 1024;

  /// @param fd  stays the caller's, and open; its flags are not changed, since other processes may
  /// have it too.
  explicit Output(int fd, std::size_t kept_bytes = kKeptBytes);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// @param line  ends with a newline.
  void write(std::string_view line);
  /// Writes what is kept, as far as the reader takes it now.
  void flush();
  /// Waits at most so long for the reader to take what is kept.
  void finish(int timeout_ms);
  /// Lines so far.
  [[nodiscard]] std::uint64_t dropped() const;
  [[nodiscard]] bool is_terminal() const noexcept { return is_terminal_; }

 private:
  enum class Way : std::uint8_t {
    kWrite,  ///< a file, which never waits for a reader, or a description of our own
    kSend,   ///< a socket
    kPoll,   ///< a pipe that cannot be opened again
  };
  /// @return how much was taken.
  std::size_t give(std::string_view bytes) const;
  void flush_locked();

  mutable std::mutex mutex_;
  int fd_;
  bool owns_fd_ = false;
  Way way_ = Way::kWrite;
  bool is_terminal_ = false;
  const std::size_t kept_bytes_;
  std::string kept_;
  std::uint64_t dropped_ = 0;
  std::uint64_t untold_ = 0;  ///< dropped since the reader was told last
};

/// Of this process's standard output and standard error. They are made when they are first used,
/// and never destroyed.
[[nodiscard]] Output& standard_output();
[[nodiscard]] Output& standard_error();

/// Of a process that ends at once: to standard error, and waits a second at most for its reader.
/// Takes no lock. For gradwire::set_last_words().
void say_last_words(const char* text);

}  // namespace gradwire::host
