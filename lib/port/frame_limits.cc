// SPDX-License-Identifier: BSD-3-Clause
// How large a frame of a port may be: what the device, its arguments and the kernel leave.
#include <fmt/format.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "port/driver_table.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::port {
namespace {

// What the kernel puts before a frame in a TPACKET_V2 ring slot: the aligned header and socket
// address, 16 bytes for the MAC header; the frame starts 14 bytes before the end of that.
constexpr std::uint32_t kPacketSlotHeader = 66;
// The data room that the driver requires of an mbuf is the slot's size minus this.
constexpr std::uint32_t kPacketSlotOverhead = 32;
constexpr std::uint32_t kPacketSlotDefault = 2048;
constexpr std::uint32_t kPacketBlockDefault = 4096;
constexpr std::uint32_t kMemifBufferDefault = 2048;
// The kernel keeps this before a frame in a UMEM chunk; a chunk is at most a page, and the mbuf
// header, the mempool's object header and our headroom lie in it too.
constexpr std::uint32_t kXdpHeadroom = 256;
constexpr std::uint32_t kXdpChunk = 4096;

/// What is left of a chunk for the kernel's headroom and the frame. A mempool makes its objects one
/// or two cache lines longer than requested, to spread them over the memory channels.
std::uint32_t xdp_max_buffer() noexcept {
  constexpr std::uint32_t kBefore = sizeof(rte_mbuf) + RTE_PKTMBUF_HEADROOM;
  std::uint32_t buffer = kXdpChunk - kBefore;
  while (rte_mempool_calc_obj_size(kBefore + buffer, 0, nullptr) > kXdpChunk) buffer -= 64;
  return buffer;
}

std::uint32_t number_or(std::optional<std::string_view> text, std::uint32_t fallback) {
  std::uint32_t value = fallback;
  if (text) {
    std::uint32_t parsed = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), parsed);
    if (error == std::errc{} && end == text->data() + text->size()) value = parsed;
  }
  return value;
}

}  // namespace

std::uint32_t xdp_max_mtu() noexcept {
  return xdp_max_buffer() - kXdpHeadroom - static_cast<std::uint32_t>(wire::kEthernetBytes);
}

std::optional<std::string_view> devarg(std::string_view devargs, std::string_view key) noexcept {
  while (!devargs.empty()) {
    const std::size_t comma = devargs.find(',');
    const std::string_view item = devargs.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals != std::string_view::npos && item.substr(0, equals) == key) {
      return item.substr(equals + 1);
    }
    if (comma == std::string_view::npos) break;
    devargs.remove_prefix(comma + 1);
  }
  return std::nullopt;
}

Result<FrameLimits> frame_limits(const DriverRow& row, const DeviceFacts& facts,
                                 std::string_view device) {
  if (facts.vlan && row.moves_vlan) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("port {}: the driver {} takes the VLAN tag out of the frames that it "
                            "sends, so none could be sent again: leave out vlan in [[port]]",
                            device, row.driver));
  }
  const auto header = static_cast<std::uint32_t>(wire::kEthernetBytes +
                                                 (facts.vlan ? wire::kVlanBytes : std::size_t{0}));
  std::uint32_t frame_limit = 0;
  std::uint32_t buffer_bytes = 0;
  std::string raise;  // what the operator can do to get a larger frame

  switch (row.limit) {
    case FrameLimitRule::kMemifBuffer: {
      frame_limit = number_or(devarg(facts.devargs, "bsize"), kMemifBufferDefault);
      buffer_bytes = frame_limit;
      raise =
          fmt::format("give the device bsize={} or more, on both ends", facts.wanted_mtu + header);
      break;
    }
    case FrameLimitRule::kPacketFrame: {
      const std::uint32_t slot = number_or(devarg(facts.devargs, "framesz"), kPacketSlotDefault);
      if (slot <= kPacketSlotHeader + header) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("port {}: framesz={} leaves no room for a frame", device, slot));
      }
      // The kernel places slots from the start of each block; the driver counts slots from the
      // first block on. If slots do not fill a block exactly, the two look for frames in different
      // places, and nothing is ever received.
      const std::uint32_t block = number_or(devarg(facts.devargs, "blocksz"), kPacketBlockDefault);
      if (block % slot != 0) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("port {}: framesz={} does not divide blocksz={}: use powers of two",
                                device, slot, block));
      }
      frame_limit = slot - kPacketSlotHeader;
      if (facts.kernel_mtu != 0) frame_limit = std::min(frame_limit, facts.kernel_mtu + header);
      buffer_bytes = slot - kPacketSlotOverhead;
      const std::uint32_t wanted_slot =
          std::bit_ceil(facts.wanted_mtu + header + kPacketSlotHeader);
      raise =
          fmt::format("set the interface's MTU to {} and give the device framesz={} and blocksz={}",
                      facts.wanted_mtu, wanted_slot, std::max(wanted_slot, kPacketBlockDefault));
      break;
    }
    case FrameLimitRule::kXdpChunk: {
      frame_limit = xdp_max_buffer() - kXdpHeadroom;
      if (facts.kernel_mtu != 0) frame_limit = std::min(frame_limit, facts.kernel_mtu + header);
      buffer_bytes = std::max<std::uint32_t>(2048, frame_limit + kXdpHeadroom);
      raise =
          "an AF_XDP frame must fit in one page together with the headroom of the kernel and the "
          "mbuf";
      break;
    }
    case FrameLimitRule::kDeviceInfo: {
      std::uint32_t mtu = facts.max_mtu;
      if (mtu == 0 || mtu >= 65535) {
        // The driver does not report it. max_rx_pktlen includes Ethernet's header and CRC.
        mtu = facts.max_rx_pktlen > 18 ? facts.max_rx_pktlen - 18 : 0;
      }
      if (row.max_mtu != 0) mtu = std::min(mtu, row.max_mtu);
      frame_limit = std::min(mtu, facts.wanted_mtu != 0 ? facts.wanted_mtu : kJumboMtu) + header;
      // Some NICs deliver the CRC and a second VLAN tag. virtio always adds room for a tag and for
      // its own header of 12 bytes, and refuses a queue whose mbufs are smaller.
      buffer_bytes = std::max<std::uint32_t>(2048, frame_limit + 20);
      raise = fmt::format("the {} {} supports {} at most", row.max_mtu != 0 ? "driver" : "device",
                          row.max_mtu != 0 ? row.driver : device, mtu);
      break;
    }
    case FrameLimitRule::kWhateverMbufs: {
      frame_limit = (facts.wanted_mtu != 0 ? facts.wanted_mtu : kJumboMtu) + header;
      buffer_bytes = frame_limit;
      break;
    }
  }

  FrameLimits out;
  if (frame_limit <= header) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("port {}: frames of {} bytes are too small for any packet", device,
                            frame_limit));
  }
  out.mtu = frame_limit - header;
  if (facts.wanted_mtu != 0) {
    if (facts.wanted_mtu > out.mtu) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("port {}: mtu = {} is more than the {} bytes that the port carries "
                              "as it is set up now: {}",
                              device, facts.wanted_mtu, out.mtu, raise));
    }
    out.mtu = facts.wanted_mtu;
  }
  if (out.mtu < kMinMtu) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("port {}: its MTU of {} is too small for a full acknowledgement: raise "
                            "it to {} or more",
                            device, out.mtu, kMinMtu));
  }
  if (out.mtu > 65535) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("port {}: mtu = {} is more than 65535, the largest IP packet", device,
                            out.mtu));
  }
  out.frame_bytes = out.mtu + header;
  out.buffer_bytes = buffer_bytes;
  return out;
}

}  // namespace gradwire::port
