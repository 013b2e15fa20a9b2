// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A sender with a window of its own choice and shorthand for acknowledgements.
#pragma once

#include <catch2/catch.hpp>
#include <initializer_list>
#include <memory>
#include <vector>

#include "transport/sender.h"

namespace gradwire::transport::test {

inline constexpr TimeNs kMs = 1'000'000;

/// Keeps what the sender told its controller.
class RecordingController final : public CongestionController {
 public:
  explicit RecordingController(std::uint64_t window) : window_(window) {}
  [[nodiscard]] std::uint64_t window_bytes() const noexcept override { return window_; }
  void on_packet_sent(TimeNs, std::uint32_t bytes) noexcept override { sent_bytes += bytes; }
  void on_ack(TimeNs, std::uint64_t bytes, std::uint32_t ce, TimeNs) noexcept override {
    acked_bytes += bytes;
    ce_packets += ce;
  }
  void on_loss(TimeNs, std::uint64_t bytes) noexcept override { lost_bytes += bytes; }
  void restart() noexcept override { ++restarts; }
  [[nodiscard]] const char* name() const noexcept override { return "recording"; }

  std::uint64_t sent_bytes = 0;
  std::uint64_t acked_bytes = 0;
  std::uint64_t lost_bytes = 0;
  std::uint64_t ce_packets = 0;
  int restarts = 0;

 private:
  std::uint64_t window_;
};

inline wire::AckHeader ack_of(std::initializer_list<wire::AckRange> ranges) {
  wire::AckHeader ack;
  for (const wire::AckRange& range : ranges) ack.ranges[ack.range_count++] = range;
  return ack;
}

struct Fixture {
  explicit Fixture(const SenderConfig& config = {}, std::uint64_t window = 1'000'000) {
    auto owned = std::make_unique<RecordingController>(window);
    controller = owned.get();
    sender = std::make_unique<Sender>(config, std::move(owned), numbers);
  }

  /// Sends `count` packets of 1,000 bytes whose cookie is 100 x their number.
  void send(TimeNs now, int count) {
    for (int i = 0; i < count; ++i) {
      REQUIRE(sender->has_room());
      const std::uint64_t number = sender->on_sent(now, 1'000, 100 * (last + 1));
      REQUIRE(number == last + 1);
      last = number;
    }
  }
  Outcome ack(TimeNs now, std::initializer_list<wire::AckRange> ranges) {
    return sender->on_ack(now, ack_of(ranges));
  }
  static std::vector<Cookie> list(std::span<const Cookie> cookies) {
    return {cookies.begin(), cookies.end()};
  }

  PacketNumbers numbers;
  std::unique_ptr<Sender> sender;
  RecordingController* controller = nullptr;
  std::uint64_t last = 0;  ///< packet number sent last
};

using Cookies = std::vector<Cookie>;

}  // namespace gradwire::transport::test
