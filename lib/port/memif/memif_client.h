// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The client end of a memif link, which connects only when its port is started: when to leave a
/// port alone whose link is down, stop it, and start it again. It says what to do next, and the
/// port does that. Control thread; time is a parameter; it makes system calls to find out whether a
/// server listens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "port/memif/memif_link.h"

namespace gradwire::port {

class MemifClient {
 public:
  enum class Step : std::uint8_t {
    kNone,
    kConnected,  ///< nothing to do: the link is up after starts that were refused
    kRelease,    ///< lanes leave the port alone from now on
    kStop,       ///< they do: stop it, then stopped()
    kStart,      ///< a server listens: start it, then started()
  };

  /// @param device  as the configuration names it, for texts.
  MemifClient(MemifEnd end, std::string device);

  /// The port is to be started for the first time. @return whether a server listens; if not, it is
  /// started when one does.
  [[nodiscard]] bool may_start();
  /// The time to connect begins, of a port that was started.
  void begin(TimeNs now) noexcept { since_ = now; }
  /// @param lane_rounds  how many rounds each lane has made: two more after kRelease, and it leaves
  ///                     the port alone.
  [[nodiscard]] Step look(TimeNs now, bool link_up, std::span<const std::uint64_t> lane_rounds);

  // What happened, for the log; empty if it is no news.
  [[nodiscard]] std::string connected() const;
  /// @param queues  that the port has.
  [[nodiscard]] std::string stopped(std::uint16_t queues);
  [[nodiscard]] std::string started(TimeNs now);

  /// Why the link is down, for people.
  [[nodiscard]] std::string why_down() const;

 private:
  enum class State : std::uint8_t {
    kWatched,    ///< started, and lanes may use it
    kReleasing,  ///< waiting until lanes no longer use it
    kWaiting,    ///< stopped until a server listens
  };

  [[nodiscard]] std::string went_down();
  [[nodiscard]] std::string tell_refusal(std::uint16_t queues);

  MemifEnd end_;
  std::string device_;
  State state_ = State::kWatched;
  TimeNs since_ = 0;  ///< when it was started
  TimeNs down_since_ = kNever;
  bool was_up_ = false;         ///< the link, since the port was started
  std::uint32_t refusals_ = 0;  ///< starts in a row after which the link never came up
  std::vector<std::uint64_t> rounds_at_release_;
};

}  // namespace gradwire::port
