// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// An end of a link whose path, or source port, PathChoice chooses, and what its hellos meet.
#pragma once

#include <cstdint>
#include <string>

#include "collective/links/path_choice.h"

namespace gradwire::collective::chosen_path {

inline constexpr TimeNs kMillisecond = 1'000'000;
inline constexpr TimeNs kLimit = 1'600 * kMillisecond;

inline wire::IpAddress ip_of(int rail) {
  return wire::parse_ip("10." + std::to_string(rail) + ".0.2").value();
}

/// An end with as many paths as wanted, and its choice, in rounds of a millisecond.
struct ChosenPath {
  explicit ChosenPath(int rails, std::uint8_t sources = 1)
      : end(address_of(rails, sources)), choice(config_of(), end) {}

  static LinkAddress address_of(int rails, std::uint8_t sources) {
    LinkAddress address;
    address.gets_data = true;
    address.ip = ip_of(0);
    address.sources = {sources, true};
    if (sources > 1) {
      wire::FrameAddresses frame;
      frame.source_ip = frame.destination_ip = ip_of(0);
      frame.source_port = kPort;
      address.frame = *wire::FrameTemplate::make(frame);
    }
    for (int rail = 1; rail < rails; ++rail) {
      address.others.push_back({ip_of(rail), address.frame, static_cast<std::uint16_t>(rail)});
    }
    return address;
  }
  static ShardConfig config_of() {
    ShardConfig config;
    config.timeouts.silence_ns = kLimit;
    config.timeouts.ping_interval_ns = 10 * kMillisecond;
    return config;
  }
  /// @param living  paths whose hellos are answered, a bit each; data by them is acknowledged.
  void run_for(TimeNs duration, unsigned living) {
    for (const TimeNs until = now + duration; now < until; now += kMillisecond) {
      const PathChoice::Move move = choice.run(kMillisecond, now);
      if (move == PathChoice::Move::kAway) ++away;
      if (move == PathChoice::Move::kBack) ++back;
      const std::uint64_t number = end.numbers().take();
      if ((living >> end.path() & 1) != 0) choice.on_acknowledged(number, true);
      for (auto way = choice.next_to_ask(); way.path != kNoPath; way = choice.next_to_ask()) {
        choice.asked(way);
        if ((living >> way.path & 1) != 0) choice.on_hello_ack(way.path, way.source + 1, 1);
      }
    }
  }
  /// Of one path.
  /// @param living  source ports from which packets arrive, a bit each
  /// @param long_ones  those from which full packets do
  /// @param answers  whether what the other rank sends arrives
  void run_from(TimeNs duration, std::uint32_t living, std::uint32_t long_ones, bool answers) {
    for (const TimeNs until = now + duration; now < until; now += kMillisecond) {
      if (choice.run(kMillisecond, now, spare) == PathChoice::Move::kSource) ++away;
      const std::uint64_t number = end.numbers().take();
      const auto arrives = [&](std::uint32_t from, std::uint8_t source) {
        return answers && (from >> source & 1) != 0;
      };
      if (arrives(living, end.source_of(0)))
        choice.on_acknowledged(number, arrives(long_ones, end.source_of(0)));
      for (auto way = choice.next_to_ask(); way.path != kNoPath; way = choice.next_to_ask()) {
        choice.asked(way);
        ++hellos;
        if (arrives(long_ones, way.source)) {
          choice.on_hello_ack(0, static_cast<std::uint8_t>(way.source + 1), 7);
        }
      }
    }
  }

  /// Pings pass, and hellos from source ports, of one path, are answered.
  /// @param data  is acknowledged
  void wait_for(TimeNs duration, std::uint32_t answered, bool data) {
    for (const TimeNs until = now + duration; now < until; now += kMillisecond) {
      choice.run(kMillisecond, now);
      choice.on_acknowledged(end.numbers().take(), data);
      for (auto way = choice.next_to_ask(); way.path != kNoPath; way = choice.next_to_ask()) {
        choice.asked(way);
        ++hellos;
        if ((answered >> way.source & 1) == 0) continue;
        choice.on_hello_ack(way.path, static_cast<std::uint8_t>(way.source + 1), 7);
      }
    }
  }

  /// Nothing is acknowledged, and every hello answered from one source port of the other rank's.
  void ask_for(int rounds, std::uint8_t from_source) {
    for (; rounds > 0; --rounds) {
      choice.run(kLimit / 32, now += kLimit / 32);
      for (auto way = choice.next_to_ask(); way.path != kNoPath; way = choice.next_to_ask()) {
        choice.asked(way);
        choice.on_hello_ack(0, static_cast<std::uint8_t>(way.source + 1), from_source);
      }
    }
  }

  static constexpr std::uint16_t kPort = 18'515;

  LinkEnd end;
  PathChoice choice;
  TimeNs now = kMillisecond;
  bool spare = true;  ///< the port is not behind
  int hellos = 0;
  int away = 0;
  int back = 0;
};

}  // namespace gradwire::collective::chosen_path
