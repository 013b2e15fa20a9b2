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
#include <span>

#include "wire/frame.h"
#include "wire/load.h"
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
      return load<T>(frame.data() + at) ^ load<T>(header_.data() + at);
    };
    // The second and the third overlap.
    const Lanes differ = differs(0, Lanes{}) | differs(16, Lanes{}) | differs(kLeast - 16, Lanes{});
    if (any_bit(differ)) return false;
    if (compared_bytes_ == kLeast) [[likely]]
      return true;  // IPv4
    for (std::size_t at = kLeast; at < compared_bytes_; at += 4) {
      if (differs(at, std::uint32_t{}) != 0) return false;
    }
    // Over IPv6 a UDP checksum is there, and another one for each packet.
    return !has_checksum_ || load<std::uint16_t>(frame.data() + compared_bytes_) != 0;
  }
  // Of a frame that is_alike(): its payload has the remembered one's length.
  [[nodiscard]] const std::byte* payload_of(const std::byte* frame) const noexcept {
    return frame + compared_bytes_ + kChecksumBytes;
  }
  [[nodiscard]] std::size_t payload_bytes() const noexcept { return payload_bytes_; }

 private:
  static constexpr std::size_t kChecksumBytes = 2;  ///< UDP's, which ends its header
  /// Compared of each frame: without a VLAN's tag, over IPv4.
  static constexpr std::size_t kLeast = kEthernetBytes + kIpv4Bytes + kUdpBytes - kChecksumBytes;
  static_assert(kLeast >= 32 && kLeast <= 48);

  alignas(16) std::array<std::byte, kMaxFrameHeaderBytes> header_{};
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
  /// Something is remembered.
  /// @param packet       as many bytes as the remembered one has.
  /// @param address_crc  as decode_header().
  /// @return whether decode() would make of `packet` what it made of the remembered one but for
  /// `out`. If not, it may be right all the same, and `out` is unspecified.
  [[nodiscard]] bool read(const std::byte* packet, std::uint32_t address_crc,
                          DataPlace& out) const noexcept;

 private:
  alignas(16) std::array<std::byte, kHeaderBytes> header_{};
};

/// The headers of data packets that differ in their place alone.
class DataTemplate {
 public:
  /// @param data  but chunk and hop.
  void make(const CommonHeader& common, const DataHeader& data) noexcept;
  /// As encode_data() of that place. It was made.
  void write(std::byte* out, std::uint64_t packet_number, std::uint32_t chunk, std::uint16_t hop,
             std::uint32_t payload_crc) const noexcept;

 private:
  std::array<std::uint64_t, kHeaderBytes / 8> words_{};
};

}  // namespace gradwire::wire
