// SPDX-License-Identifier: BSD-3-Clause
#include "wire/internet_checksum.h"

#include <bit>
#include <cstring>

#include "base/require.h"
#include "wire/load.h"

namespace gradwire::wire {
namespace {

constexpr std::uint8_t kIcmpv6 = 58;
constexpr std::size_t kIcmpv6SumOffset = 2;

}  // namespace

void InternetSum::add(std::span<const std::byte> bytes) noexcept {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  // 32-bit words in 64-bit sums: an IP packet has too few of them to overflow.
  constexpr std::size_t kStep = 2 * sizeof(Lanes);
  if (left >= kStep) {
    Lanes low{};
    Lanes high{};
    for (; left >= kStep; at += kStep, left -= kStep) {
      const auto first = load<Lanes>(at);
      const auto second = load<Lanes>(at + sizeof(Lanes));
      low += (first & 0xffffffff) + (second & 0xffffffff);
      high += (first >> 32) + (second >> 32);
    }
    for (std::size_t i = 0; i < 2; ++i) sum_ += low[i] + high[i];
  }
  for (; left >= 4; at += 4, left -= 4) sum_ += load<std::uint32_t>(at);
  if (left == 0) return;
  std::uint32_t last = 0;
  std::memcpy(&last, at, left);
  sum_ += last;
}

void InternetSum::add16(std::uint16_t value) noexcept {
  const auto swapped = static_cast<std::uint16_t>(value << 8 | value >> 8);
  sum_ += std::endian::native == std::endian::little ? swapped : value;
}

std::uint16_t InternetSum::folded() const noexcept {
  std::uint64_t sum = (sum_ & 0xffffffff) + (sum_ >> 32);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

InternetSum pseudo_header_sum(const IpAddress& source, const IpAddress& destination,
                              std::uint8_t protocol, std::size_t bytes) noexcept {
  require(bytes <= UINT16_MAX, "what a checksum covers fits an IP packet");
  InternetSum sum;
  sum.add(std::as_bytes(std::span(source.bytes)));
  sum.add(std::as_bytes(std::span(destination.bytes)));
  sum.add16(static_cast<std::uint16_t>(bytes));
  sum.add16(protocol);
  return sum;
}

bool icmpv6_sum_ok(const IpAddress& source, const IpAddress& destination,
                   std::span<const std::byte> message) noexcept {
  InternetSum sum = pseudo_header_sum(source, destination, kIcmpv6, message.size());
  sum.add(message);
  return sum.folded() == 0xffff;
}

void put_icmpv6_sum(const IpAddress& source, const IpAddress& destination,
                    std::span<std::byte> message) noexcept {
  std::memset(message.data() + kIcmpv6SumOffset, 0, 2);
  InternetSum sum = pseudo_header_sum(source, destination, kIcmpv6, message.size());
  sum.add(message);
  const auto checksum = static_cast<std::uint16_t>(~sum.folded());
  std::memcpy(message.data() + kIcmpv6SumOffset, &checksum, sizeof(checksum));
}

}  // namespace gradwire::wire
