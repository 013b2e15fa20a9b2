// SPDX-License-Identifier: BSD-3-Clause
#include "port/driver_table.h"

#include <fmt/format.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::port {

namespace {

// Facts of DPDK 22.11.11, each read in the driver and, but for the physical row, seen by
// test/unit/port, test/unit/lane or test/system.
constexpr std::array<DriverRow, 6> kRows = {{
    // Frames are copied into and out of a shared region, so a received mbuf is always fresh and a
    // sent one is free when tx_burst returns. A frame above `bsize` would be spread over several
    // ring slots, and the driver never removes that mark from a slot, so frames must stay below.
    // tx_burst takes nothing while no peer is connected. Both ends always poll (their rings mask
    // interrupts), and the driver has no rx interrupt call. Queue i is paired with the peer's.
    {.driver = "net_memif",
     .rx_exclusive = true,
     .rx_interrupts = false,
     .tx_copies = true,
     .tx_chains = true,
     .tx_indirect = true,
     .tx_may_block = false,
     .sets_mtu = false,
     .keeps_rx_mbufs = false,
     .bursts_need_link = true,
     .in_memory = true,
     .tx_burst = 64,
     .held_mbufs = 32,
     .rx_copies = 1,
     .tx_copies_count = 1,
     .limit = FrameLimitRule::kMemifBuffer,
     .steering = Steering::kPaired,
     .payload_split = PayloadSplit::kNone,
     .why_no_split = "the CPU copies its frames to and from shared memory",
     .why = "copies frames through shared memory; no interrupts; bsize limits a frame"},
    // The mempool is the UMEM. A frame from this pool is sent without a copy, and the kernel holds
    // it until it has completed the transmission; a frame from another pool is copied. The driver
    // gives the kernel only the first segment's address, computed from the address of the mbuf
    // itself, but the length of the whole frame: chained and attached mbufs go out as garbage. The
    // fill ring takes 2,048 mbufs. There is no rx interrupt call. tx_burst repeats the kick while
    // the kernel says EAGAIN.
    {.driver = "net_af_xdp",
     .rx_exclusive = true,
     .rx_interrupts = false,
     .tx_copies = false,
     .tx_chains = false,
     .tx_indirect = false,
     .tx_may_block = true,
     .sets_mtu = false,
     .keeps_rx_mbufs = true,
     .bursts_need_link = false,
     .in_memory = false,
     .tx_burst = 32,
     .held_mbufs = 2048,
     .rx_copies = 1,
     .tx_copies_count = 1,
     .limit = FrameLimitRule::kXdpChunk,
     .steering = Steering::kNone,
     .payload_split = PayloadSplit::kNone,
     .why_no_split = "its buffers are shared with the kernel, and a frame must be one segment",
     .why = "shares its mempool with the kernel, which holds sent frames; a frame must be one "
            "segment"},
    // Frames are copied between mbufs and two rings shared with the kernel. When the transmit ring
    // is full, tx_burst calls poll() without a bound: bursts are short, so that the ring is never
    // filled by one round. An oversized frame is dropped without a word. Received VLAN tags are put
    // back by the driver. `framesz` has to divide `blocksz`.
    {.driver = "net_af_packet",
     .rx_exclusive = true,
     .rx_interrupts = false,
     .tx_copies = true,
     .tx_chains = true,
     .tx_indirect = true,
     .tx_may_block = true,
     .sets_mtu = false,
     .keeps_rx_mbufs = false,
     .bursts_need_link = false,
     .in_memory = false,
     .tx_burst = 16,
     .held_mbufs = 0,
     .rx_copies = 2,
     .tx_copies_count = 2,
     .limit = FrameLimitRule::kPacketFrame,
     .steering = Steering::kNone,
     .payload_split = PayloadSplit::kNone,
     .why_no_split = "the CPU copies its frames to and from the kernel's rings",
     .why = "uses a packet socket of the kernel; sending into a full ring waits without a limit"},
    // A virtual machine's NIC, taken from the kernel by vfio. The host spreads packets over queues
    // as it likes, and there is no rte_flow. Seen by test/vm.
    {.driver = "net_virtio",
     .rx_exclusive = false,
     .rx_interrupts = true,
     .tx_copies = false,
     .tx_chains = false,
     .tx_indirect = false,
     .tx_may_block = false,
     .sets_mtu = true,
     .keeps_rx_mbufs = true,
     .bursts_need_link = false,
     .in_memory = false,
     .tx_burst = 64,
     .held_mbufs = 64,
     .rx_copies = 0,
     .tx_copies_count = 0,
     .limit = FrameLimitRule::kDeviceInfo,
     .steering = Steering::kNone,
     .payload_split = PayloadSplit::kNone,
     .why_no_split = "a virtual machine's NIC reaches only the memory of that machine",
     .why = "is a virtual machine's NIC: the host copies each frame and offers no flow steering"},
    // The receiver gets the sender's mbuf itself, so both share its references, and reads the bytes
    // long after tx_burst has returned.
    {.driver = "net_ring",
     .rx_exclusive = false,
     .rx_interrupts = false,
     .tx_copies = false,
     .tx_chains = true,
     .tx_indirect = true,
     .tx_may_block = false,
     .sets_mtu = false,
     .keeps_rx_mbufs = false,
     .bursts_need_link = false,
     .in_memory = true,
     .tx_burst = 64,
     .held_mbufs = 0,
     .rx_copies = 0,
     .tx_copies_count = 0,
     .limit = FrameLimitRule::kWhateverMbufs,
     .steering = Steering::kPaired,
     .payload_split = PayloadSplit::kAsSent,
     .why_no_split = nullptr,
     .why = "passes mbufs by pointer within one process"},
    // Frees what is sent; receives mbufs with arbitrary bytes, or none with no-rx=1.
    {.driver = "net_null",
     .rx_exclusive = true,
     .rx_interrupts = false,
     .tx_copies = true,
     .tx_chains = true,
     .tx_indirect = true,
     .tx_may_block = false,
     .sets_mtu = false,
     .keeps_rx_mbufs = false,
     .bursts_need_link = false,
     .in_memory = false,
     .tx_burst = 64,
     .held_mbufs = 32,
     .rx_copies = 0,
     .tx_copies_count = 0,
     .limit = FrameLimitRule::kWhateverMbufs,
     .steering = Steering::kPaired,
     .payload_split = PayloadSplit::kNone,
     .why_no_split = "it receives nothing",
     .why = "drops what it is given to send and receives nothing useful"},
}};

// A NIC may read a frame until its descriptor is recycled. Only the refcnt says whether a received
// mbuf is shared: some drivers (mlx5 with its multi-packet queue) give slices of a shared buffer.
// Chains and attached mbufs need offloads and registrations that gradwire does not request.
constexpr DriverRow kPhysical = {
    .driver = "",
    .rx_exclusive = false,
    .rx_interrupts = true,
    .tx_copies = false,
    .tx_chains = false,
    .tx_indirect = false,
    .tx_may_block = false,
    .sets_mtu = true,
    .keeps_rx_mbufs = true,
    .bursts_need_link = false,
    .in_memory = false,
    .tx_burst = 64,
    .held_mbufs = 64,
    .rx_copies = 0,
    .tx_copies_count = 0,
    .limit = FrameLimitRule::kDeviceInfo,
    .steering = Steering::kFlow,
    .payload_split = PayloadSplit::kNone,
    .why_no_split = "gradwire supports this only with the driver mlx5_pci",
    .why = "is treated as a NIC that reads and writes mbufs by DMA"};

// Like any other NIC; besides, it can access any memory registered with it, including GPU memory
// (by nvidia-peermem or dma-buf). This comes from reading the driver of DPDK 22.11; it has not been
// run.
constexpr DriverRow kMlx5 = [] {
  DriverRow row = kPhysical;
  row.driver = "mlx5_pci";
  row.payload_split = PayloadSplit::kDevice;
  row.why_no_split = nullptr;
  return row;
}();

// The clouds' NICs, from the guides of DPDK 22.11 (doc.dpdk.org/guides-22.11/nics/ena.html,
// gve.html and netvsc.html, and the tables of features there). None of them has been run. No driver
// of the three lists the flow API, so none can bring a UDP port to a queue: they support one lane.

// "Jumbo frames up to 9K", "MTU configuration", "Rx interrupts" (with vfio-pci; igb_uio has none,
// and then configuring them fails and the lane polls).
constexpr DriverRow kEna = [] {
  DriverRow row = kPhysical;
  row.driver = "net_ena";
  row.steering = Steering::kNone;
  row.why = "hashes flows to queues and has no flow rules: one lane for each port";
  return row;
}();

// Google Cloud offers this release the queue format GQI_QPL alone, in which the driver copies each
// frame to and from memory that is registered with the device. Jumbo frames and rx interrupts are
// not in its list.
constexpr DriverRow kGve = [] {
  DriverRow row = kPhysical;
  row.driver = "net_gve";
  row.rx_interrupts = false;
  row.rx_copies = 1;
  row.tx_copies_count = 1;
  row.steering = Steering::kNone;
  row.why =
      "copies frames to and from the device's own pages; no interrupts, no flow rules: one "
      "lane for each port";
  return row;
}();

// "VLAN tags are always stripped", so a port on a VLAN would receive nothing that it takes for its
// own; "does not use or support interrupts"; received data is copied to mbufs unless the device
// argument rx_extmbuf_enable says otherwise, sent frames up to tx_copybreak (512 bytes) are.
constexpr DriverRow kNetvsc = [] {
  DriverRow row = kPhysical;
  row.driver = "net_netvsc";
  row.rx_interrupts = false;
  row.rx_copies = 1;
  row.strips_vlan = true;
  row.steering = Steering::kNone;
  row.why =
      "copies received frames; no interrupts, no VLAN tags, no flow rules: one lane for each "
      "port";
  return row;
}();

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

const DriverRow& driver_row(std::string_view driver_name) noexcept {
  for (const DriverRow& row : kRows) {
    if (row.driver == driver_name) return row;
  }
  for (const DriverRow* row : {&kMlx5, &kEna, &kGve, &kNetvsc}) {
    if (row->driver == driver_name) return *row;
  }
  return kPhysical;
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
  if (facts.vlan && row.strips_vlan) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("port {}: the driver {} takes VLAN tags off received frames, so a port "
                            "on a VLAN would hear nobody: leave out vlan in [[port]]",
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
      frame_limit = std::min(mtu, facts.wanted_mtu != 0 ? facts.wanted_mtu : kJumboMtu) + header;
      // Some NICs deliver the CRC and a second VLAN tag. virtio always adds room for a tag and for
      // its own header of 12 bytes, and refuses a queue whose mbufs are smaller.
      buffer_bytes = std::max<std::uint32_t>(2048, frame_limit + 20);
      raise = fmt::format("the device supports {} at most", mtu);
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
