// SPDX-License-Identifier: BSD-3-Clause
#include "port/driver_table.h"

#include <array>

namespace gradwire::port {

namespace {

// Facts of DPDK 22.11.11, each read in the driver and, but for the physical row, seen by
// test/unit/port, test/unit/lane or test/system. They were read again in 24.11.6, and the tests run
// with 24.11.8: what differs there is said.
constexpr std::array<DriverRow, 6> kRows = {{
    // Frames are copied into and out of a shared region, so a received mbuf is always fresh and a
    // sent one is free when tx_burst returns. A frame above `bsize` would be spread over several
    // ring slots, and the driver never removes that mark from a slot, so frames must stay below.
    // tx_burst takes nothing while no peer is connected. Queue i is paired with the peer's, if the
    // peer has it. The driver has no rx interrupt call and masks the rings' interrupts; they are
    // unmasked without it (memif_queues.h).
    // 24.11: rx_burst takes 32 mbufs at once or receives nothing, and gives back what it does not
    // need. It copies a frame into one mbuf, whatever the frame's length: a peer whose `bsize` is
    // larger and that sends such a frame writes behind the mbuf. A frame of several segments may
    // take a slot for each, and before 24.11.5 the marks of such frames stayed on their slots, so
    // that later frames were glued together: such releases are refused (memif_release.h). Frames of
    // gradwire are one segment on this driver.
    {.driver = "net_memif",
     .rx_exclusive = true,
     .rx_interrupts = false,
     .tx_copies = true,
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
     .why = "copies frames through shared memory; bsize limits a frame"},
    // The mempool is the UMEM. A frame from this pool is sent without a copy, and the kernel holds
    // it until it has completed the transmission; a frame from another pool is copied. The driver
    // gives the kernel only the first segment's address, computed from the address of the mbuf
    // itself, but the length of the whole frame: chained and attached mbufs go out as garbage. The
    // fill ring takes 2,048 mbufs. There is no rx interrupt call, but a lane can sleep on the
    // socket (wake_socket.h). tx_burst repeats the kick while the kernel says EAGAIN.
    // 24.11: attached mbufs are copied, and the mempool must be one piece of virtual memory.
    {.driver = "net_af_xdp",
     .rx_exclusive = true,
     .rx_interrupts = false,
     .tx_copies = false,
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
    // back by the driver. `framesz` has to divide `blocksz`. A lane can sleep on the socket, as
    // with net_af_xdp. 24.11: the link is that of the interface, no longer always up.
    {.driver = "net_af_packet",
     .rx_exclusive = true,
     .rx_interrupts = false,
     .tx_copies = true,
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
// run. Nor has it been read again in 24.11.
constexpr DriverRow kMlx5 = [] {
  DriverRow row = kPhysical;
  row.driver = "mlx5_pci";
  row.payload_split = PayloadSplit::kDevice;
  row.why_no_split = nullptr;
  return row;
}();

// The clouds' NICs, from the drivers of DPDK 22.11.11 and their guides
// (doc.dpdk.org/guides-22.11/nics/ena.html, gve.html and netvsc.html). None of them has been run.
// No driver of the three has a flow API (flow_ops_get), so none can bring a UDP port to a queue:
// they support one lane. That is so in 24.11 too, where ENA is as before. What is said of the other
// two is of 22.11: the driver of gve knows the format DQO_RDA besides, and that of netvsc tells the
// host its MTU. Until somebody runs them, the rows stay at what the older driver can do.

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
// frame to and from memory that is registered with the device. It has no rx interrupts. The device
// may say 8,896 bytes, but "setting MTU with value larger than 1460 is not supported": each
// descriptor is received as a frame of its own (gve_rx_burst()).
constexpr DriverRow kGve = [] {
  DriverRow row = kPhysical;
  row.driver = "net_gve";
  row.max_mtu = 1460;
  row.rx_interrupts = false;
  row.rx_copies = 1;
  row.tx_copies_count = 1;
  row.steering = Steering::kNone;
  row.why =
      "copies frames to and from the device's own pages; no interrupts, no flow rules: one "
      "lane for each port";
  return row;
}();

// The tag of a frame to be sent is cut out of the mbuf itself (hn_xmit_pkts()), which the transport
// may have to send again. The host is told an MTU of 1500, whatever is configured
// (eth_hn_dev_init()), and the driver says that it takes frames of 2,048 bytes. "Does not use or
// support interrupts"; received data is copied to mbufs unless the device argument
// rx_extmbuf_enable says otherwise, sent frames up to tx_copybreak (512 bytes) are.
constexpr DriverRow kNetvsc = [] {
  DriverRow row = kPhysical;
  row.driver = "net_netvsc";
  row.rx_interrupts = false;
  row.rx_copies = 1;
  row.moves_vlan = true;
  row.max_mtu = 1500;
  row.steering = Steering::kNone;
  row.why =
      "copies received frames; no interrupts, no VLAN tags, no flow rules: one lane for each "
      "port";
  return row;
}();

}  // namespace

const DriverRow& driver_row(std::string_view driver_name) noexcept {
  for (const DriverRow& row : kRows) {
    if (row.driver == driver_name) return row;
  }
  for (const DriverRow* row : {&kMlx5, &kEna, &kGve, &kNetvsc}) {
    if (row->driver == driver_name) return *row;
  }
  return kPhysical;
}

}  // namespace gradwire::port
