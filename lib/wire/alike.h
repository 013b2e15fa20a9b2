// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Most data packets differ from the one before in a few fields alone. What was found out about a
/// frame, and about a data packet, holds for all that are alike: so they are compared, and not
/// parsed and decoded again; and what is sent is not encoded again. One lane owns each; nothing
/// here allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::wire {

/// The UDP frame that was parsed last.
class FrameMemory {
 public:
  /// @param view  what parse_frame() made of `frame`.
  void remember(std::span<const std::byte> frame, const FrameView& view) noexcept;
  void forget() noexcept { frame_bytes_ = 0; }
  /// @return whether parse_frame() would say of `frame` what it said of the remembered one. Where
  /// its payload lies payload_of() tells.
  [[nodiscard]] bool is_alike(std::span<const std::byte> frame) const noexcept {
    if (frame.size() != frame_bytes_ || frame_bytes_ == 0) return false;
    const auto differs = [&]<class T>(std::size_t at, T) {
      return std::uint64_t{load<T>(frame.data() + at) ^ load<T>(header_.data() + at)};
    };
    constexpr std::size_t kLeast = kEthernetBytes + kIpv4Bytes + kUdpBytes - kChecksumBytes;
    std::uint64_t differ = 0;
    for (std::size_t at = 0; at < kLeast; at += 8) differ |= differs(at, std::uint64_t{});
    for (std::size_t at = kLeast; at < compared_bytes_; at += 4)
      [[unlikely]] differ |= differs(at, std::uint32_t{});
    // Over IPv6 a UDP checksum is there, and another one for each packet.
    return differ == 0 &&
           (!has_checksum_ || load<std::uint16_t>(frame.data() + compared_bytes_) != 0);
  }
  /// Of a frame that is_alike().
  [[nodiscard]] std::span<const std::byte> payload_of(
      std::span<const std::byte> frame) const noexcept {
    return frame.subspan(compared_bytes_ + kChecksumBytes, payload_bytes_);
  }

 private:
  static constexpr std::size_t kChecksumBytes = 2;  ///< UDP's, which ends its header

  template <class T>
  [[nodiscard]] static T load(const std::byte* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }

  std::array<std::byte, kMaxFrameHeaderBytes> header_{};
  std::size_t frame_bytes_ = 0;     ///< 0: nothing is remembered
  std::size_t compared_bytes_ = 0;  ///< up to the UDP checksum: a multiple of 4
  std::size_t payload_bytes_ = 0;
  bool has_checksum_ = false;
};

/// What data packets of one op and link differ in.
struct DataPlace {
  std::uint64_t packet_number = 0;
  std::uint32_t chunk = 0;
  std::uint32_t payload_crc = 0;
  std::uint16_t hop = 0;
};

/// The data packet that was decoded last.
class DataMemory {
 public:
  /// @param packet  of kData, which decode_body() took; with its tag, if it was sealed.
  void remember(std::span<const std::byte> packet) noexcept;
  void forget() noexcept { packet_bytes_ = 0; }
  /// @param address_crc  as decode_header().
  /// @return whether decode() would make of `packet` what it made of the remembered one but for
  /// `out`, which is set then. If not, it may be right all the same.
  [[nodiscard]] bool read(std::span<const std::byte> packet, std::uint32_t address_crc,
                          DataPlace& out) const noexcept;

 private:
  std::array<std::byte, kHeaderBytes> header_{};
  std::size_t packet_bytes_ = 0;  ///< 0: nothing is remembered
};

/// The headers of data packets that differ in their place alone.
class DataTemplate {
 public:
  /// @param data  but chunk and hop.
  void make(const CommonHeader& common, const DataHeader& data) noexcept;
  /// As encode_data() of that place. It was made.
  void write(std::byte* out, const DataPlace& place) const noexcept;

 private:
  std::array<std::uint64_t, kHeaderBytes / 8> words_{};
};

}  // namespace gradwire::wire
