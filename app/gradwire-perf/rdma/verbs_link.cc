// SPDX-License-Identifier: BSD-3-Clause
// Reliable-connected queue pairs and one completion queue for all of them. Whatever comes in takes
// a receive request that names no memory: writes bring their address, words have no bytes.
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "rdma/rdma_link.h"
#include "rdma/verbs_device.h"

namespace gradwire::perf {
namespace {

constexpr std::uint8_t kRetries = 7;         ///< the most that there are
constexpr std::uint8_t kRetriesForever = 7;  ///< of receivers that are not ready
constexpr std::uint8_t kHops = 64;
/// SoftRoCE's, which no hardware has.
constexpr std::uint32_t kSoftwareVendor = 0xffffff;

/// The name says what is freed, the deleter how.
template <auto Free>
struct FreeBy {
  template <class Thing>
  void operator()(Thing* thing) const noexcept {
    Free(thing);
  }
};
using ProtectionDomain = std::unique_ptr<ibv_pd, FreeBy<ibv_dealloc_pd>>;
using MemoryRegion = std::unique_ptr<ibv_mr, FreeBy<ibv_dereg_mr>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, FreeBy<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, FreeBy<ibv_destroy_cq>>;
using QueuePair = std::unique_ptr<ibv_qp, FreeBy<ibv_destroy_qp>>;

enum Request : std::uint64_t { kReceive = 0, kSend = 1 };  ///< and twice the end in a request's id

/// Verbs have 4.096 us x 2^n, of 5 bits. @return the least n whose time is not shorter.
std::uint8_t timeout_exponent(std::uint32_t retry_ms) {
  const std::uint64_t units = std::uint64_t{retry_ms} * 1'000'000 / 4096;
  return static_cast<std::uint8_t>(std::clamp<int>(std::bit_width(units), 1, 31));
}

class VerbsLink final : public RdmaLink {
 public:
  explicit VerbsLink(const RdmaLinkOptions& options) : options_(options) {}

  Result<void> open();

  RdmaEndInfo info_of(RdmaEnd end) const override;
  Result<void> accept(RdmaEnd end, const RdmaEndInfo& neighbor) override;
  Result<void> start(RdmaEnd end) override;
  std::uint64_t largest_write() const noexcept override {
    return device_.port_attributes.max_msg_sz;
  }
  std::string description() const override;
  std::vector<std::string> slower_paths() const override;
  Counters counters() const override;

  Result<void> write(RdmaEnd end, const RdmaWrite& write) override;
  Result<void> tell(RdmaEnd end, std::uint32_t word) override;
  std::size_t inline_bytes() const noexcept override { return inline_bytes_; }
  Result<std::size_t> poll(std::span<RdmaEvent> events) override;
  void sleep() override;
  Result<void> look_after_neighbors() override;

 private:
  struct End {
    QueuePair queue_pair;
    std::uint32_t first_packet = 0;
    RdmaEndInfo neighbor;
  };
  [[nodiscard]] std::uint32_t requests() const noexcept { return options_.depth + options_.words; }
  [[nodiscard]] std::uint32_t rank_of(std::size_t end) const noexcept {
    return options_.ranks[end];
  }
  Result<void> make_queue_pair(End& end);
  Result<void> post_receive(std::size_t end, std::uint32_t count);
  Result<void> post(RdmaEnd end, ibv_send_wr& request);
  [[nodiscard]] tl::unexpected<Error> broken(const ibv_wc& completion) const;
  [[nodiscard]] tl::unexpected<Error> refused(const std::string& what, int error) const {
    return fail(ErrorCode::kSystem,
                fmt::format("RDMA device {}: {}: {}", device_.name, what, std::strerror(error)));
  }

  const RdmaLinkOptions options_;
  // Freed in reverse order: each needs those above it.
  VerbsDevice device_;
  ProtectionDomain domain_;
  MemoryRegion region_;
  CompletionChannel channel_;
  CompletionQueue queue_;
  std::array<End, kRdmaEnds> ends_;
  std::size_t inline_bytes_ = 0;
  bool armed_ = false;  ///< the next completion makes an event
};

Result<void> VerbsLink::open() {
  auto device = find_verbs_device(options_.rdma);
  if (!device) return tl::unexpected(device.error());
  device_ = std::move(*device);
  domain_.reset(ibv_alloc_pd(device_.context.get()));
  if (!domain_) return refused("a protection domain", errno);
  region_.reset(ibv_reg_mr(domain_.get(), options_.memory.data(), options_.memory.size(),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  if (!region_) {
    return refused(fmt::format("registering {} bytes of memory, which locks them (ulimit -l says "
                               "how many KiB may be)",
                               options_.memory.size()),
                   errno);
  }
  channel_.reset(ibv_create_comp_channel(device_.context.get()));
  if (!channel_) return refused("a completion channel", errno);
  const int most = static_cast<int>(2 * requests() * options_.ends);
  queue_.reset(ibv_create_cq(device_.context.get(), most, nullptr, channel_.get(), 0));
  if (!queue_) return refused(fmt::format("a completion queue of {}", most), errno);
  std::random_device random;
  for (std::size_t i = 0; i < options_.ends; ++i) {
    if (auto made = make_queue_pair(ends_[i]); !made) return made;
    ends_[i].first_packet = random() & 0xffffff;
    if (auto posted = post_receive(i, requests()); !posted) return posted;
  }
  return {};
}

Result<void> VerbsLink::make_queue_pair(End& end) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue_.get();
  wanted.qp_type = IBV_QPT_RC;
  // What a device can copy into a request differs from device to device.
  for (const std::uint32_t inline_bytes : {220u, 64u, 0u}) {
    wanted.cap = {requests(), requests(), 1, 1, inline_bytes};
    end.queue_pair.reset(ibv_create_qp(domain_.get(), &wanted));
    if (end.queue_pair) break;
  }
  if (!end.queue_pair) {
    return refused(fmt::format("a queue pair of {} requests each way", requests()), errno);
  }
  inline_bytes_ = wanted.cap.max_inline_data;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device_.port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int error =
      ibv_modify_qp(end.queue_pair.get(), &attributes,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return refused("a new queue pair", error);
  return {};
}

RdmaEndInfo VerbsLink::info_of(RdmaEnd end) const {
  const End& own = ends_[static_cast<std::size_t>(end)];
  RdmaEndInfo info;
  info.queue_pair = own.queue_pair->qp_num;
  info.first_packet = own.first_packet;
  info.remote_key = region_->rkey;
  info.mtu_bytes = bytes_of(device_.port_attributes.active_mtu);
  std::memcpy(info.gid.data(), device_.gid.raw, info.gid.size());
  info.memory = reinterpret_cast<std::uintptr_t>(options_.memory.data());
  info.memory_bytes = options_.memory.size();
  return info;
}

Result<void> VerbsLink::accept(RdmaEnd end, const RdmaEndInfo& neighbor) {
  const auto at = static_cast<std::size_t>(end);
  ends_[at].neighbor = neighbor;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_256;
  for (const ibv_mtu mtu : {IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (bytes_of(mtu) <= neighbor.mtu_bytes && mtu <= device_.port_attributes.active_mtu) {
      attributes.path_mtu = mtu;
    }
  }
  ends_[at].neighbor.mtu_bytes = bytes_of(attributes.path_mtu);
  attributes.dest_qp_num = neighbor.queue_pair;
  attributes.rq_psn = neighbor.first_packet & 0xffffff;
  attributes.min_rnr_timer = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = device_.port;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, neighbor.gid.data(), neighbor.gid.size());
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device_.gid_index);
  attributes.ah_attr.grh.hop_limit = kHops;
  const int error =
      ibv_modify_qp(ends_[at].queue_pair.get(), &attributes,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) return {};
  ibv_gid gid{};
  std::memcpy(gid.raw, neighbor.gid.data(), sizeof(gid.raw));
  return refused(fmt::format("no path from {} to rank {} at {}", options_.rdma.address, rank_of(at),
                             text_of(gid)),
                 error);
}

Result<void> VerbsLink::start(RdmaEnd end) {
  const auto at = static_cast<std::size_t>(end);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = ends_[at].first_packet;
  attributes.timeout = timeout_exponent(options_.rdma.retry_ms);
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kRetriesForever;
  const int error = ibv_modify_qp(ends_[at].queue_pair.get(), &attributes,
                                  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return refused(fmt::format("the queue pair to rank {}", rank_of(at)), error);
  return {};
}

std::string VerbsLink::description() const {
  return fmt::format("{} port {}, RoCEv2 {}, path MTU {}", device_.name, device_.port,
                     text_of(device_.gid), ends_[0].neighbor.mtu_bytes);
}

std::vector<std::string> VerbsLink::slower_paths() const {
  std::vector<std::string> reasons;
  if (device_.attributes.vendor_id == kSoftwareVendor) {
    reasons.push_back(
        fmt::format("{} is SoftRoCE: the kernel does its work on the CPU, so that "
                    "this says nothing of an RDMA NIC",
                    device_.name));
  }
  for (std::size_t i = 0; i < options_.ends; ++i) {
    const std::uint32_t mtu = ends_[i].neighbor.mtu_bytes;
    if (mtu >= 4096) continue;
    reasons.push_back(
        fmt::format("to rank {} a packet carries {} bytes: an interface MTU of 4200 "
                    "or more at both ends makes that 4096",
                    rank_of(i), mtu));
  }
  return reasons;
}

Counters VerbsLink::counters() const {
  Counters counters;
  namespace fs = std::filesystem;
  const fs::path folder =
      fmt::format("/sys/class/infiniband/{}/ports/{}", device_.name, device_.port);
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder / "hw_counters", error)) {
    std::uint64_t value = 0;
    std::ifstream text(file.path());
    const std::string name = file.path().filename();
    if (name == "lifespan" || !(text >> value)) continue;
    counters.push_back({"hw_" + name, value});
    // SoftRoCE's; hardware has counters of the port.
    if (name == "sent_pkts") counters.push_back({kTxPackets, value});
    if (name == "rcvd_pkts") counters.push_back({kRxPackets, value});
  }
  for (const auto& [name, file] : {std::pair(kTxPackets, "counters/port_xmit_packets"),
                                   std::pair(kRxPackets, "counters/port_rcv_packets")}) {
    std::uint64_t value = 0;
    if (std::ifstream(folder / file) >> value) counters.push_back({name, value});
  }
  return counters;
}

Result<void> VerbsLink::post_receive(std::size_t end, std::uint32_t count) {
  ibv_recv_wr request{};
  request.wr_id = 2 * end + kReceive;
  for (std::uint32_t i = 0; i < count; ++i) {
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_recv(ends_[end].queue_pair.get(), &request, &bad);
    if (error != 0) {
      return refused(fmt::format("a receive request for rank {}", rank_of(end)), error);
    }
  }
  return {};
}

Result<void> VerbsLink::post(RdmaEnd end, ibv_send_wr& request) {
  const auto at = static_cast<std::size_t>(end);
  request.wr_id = 2 * at + kSend;
  request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(ends_[at].queue_pair.get(), &request, &bad);
  if (error != 0) return refused(fmt::format("a request to rank {}", rank_of(at)), error);
  return {};
}

Result<void> VerbsLink::write(RdmaEnd end, const RdmaWrite& write) {
  const RdmaEndInfo& neighbor = ends_[static_cast<std::size_t>(end)].neighbor;
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(write.bytes.data()),
                static_cast<std::uint32_t>(write.bytes.size()), region_->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  if (write.bytes.size() <= inline_bytes_) request.send_flags = IBV_SEND_INLINE;
  request.imm_data = write.immediate;
  request.wr.rdma.remote_addr = neighbor.memory + write.offset;
  request.wr.rdma.rkey = neighbor.remote_key;
  return post(end, request);
}

Result<void> VerbsLink::tell(RdmaEnd end, std::uint32_t word) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = word;
  return post(end, request);
}

Result<std::size_t> VerbsLink::poll(std::span<RdmaEvent> events) {
  std::array<ibv_wc, 16> completions;
  const int most = static_cast<int>(std::min(events.size(), completions.size()));
  const int count = ibv_poll_cq(queue_.get(), most, completions.data());
  if (count < 0) return refused("polling for completions", errno == 0 ? EIO : errno);
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
    if (completion.status != IBV_WC_SUCCESS) return broken(completion);
    const std::size_t end = completion.wr_id / 2;
    RdmaEvent& event = events[static_cast<std::size_t>(i)];
    event = {.end = static_cast<RdmaEnd>(end)};
    if (completion.wr_id % 2 == kSend) continue;
    event.kind = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? RdmaEvent::Kind::kArrived
                                                                : RdmaEvent::Kind::kTold;
    event.bytes = completion.byte_len;
    event.immediate = completion.imm_data;
    if (auto posted = post_receive(end, 1); !posted) return tl::unexpected(posted.error());
  }
  return static_cast<std::size_t>(count);
}

tl::unexpected<Error> VerbsLink::broken(const ibv_wc& completion) const {
  const std::uint32_t rank = rank_of(completion.wr_id / 2);
  const char* const status = ibv_wc_status_str(completion.status);
  if (completion.status == IBV_WC_RETRY_EXC_ERR) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("rank {} does not acknowledge what was sent, after {} tries of some {} "
                            "ms ({}): has it ended, or is the link down?",
                            rank, kRetries + 1, options_.rdma.retry_ms, status));
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("the queue pair to rank {} is broken: {} (vendor's code {})", rank,
                          status, completion.vendor_err));
}

void VerbsLink::sleep() {
  if (!armed_) {
    // What came before the queue was armed makes no event: the caller polls once more.
    armed_ = ibv_req_notify_cq(queue_.get(), 0) == 0;
    return;
  }
  std::array<pollfd, 1 + kRdmaEnds> watched{};
  watched[0] = {channel_->fd, POLLIN, 0};
  for (std::size_t i = 0; i < options_.ends; ++i) {
    watched[1 + i] = {options_.sockets[i]->fd(), POLLRDHUP, 0};
  }
  if (::poll(watched.data(), 1 + options_.ends, kSleepMs) <= 0 || watched[0].revents == 0) return;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_.get(), &queue, &context) != 0) return;
  ibv_ack_cq_events(queue, 1);
  armed_ = false;
}

Result<void> VerbsLink::look_after_neighbors() {
  for (std::size_t i = 0; i < options_.ends; ++i) {
    char byte = 0;
    const ssize_t got =
        ::recv(options_.sockets[i]->fd(), &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) {
      continue;
    }
    return fail(ErrorCode::kUnavailable,
                fmt::format("rank {} has ended: its TCP connection is closed{}{}", rank_of(i),
                            got < 0 ? ", " : "", got < 0 ? std::strerror(errno) : ""));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<RdmaLink>> make_rdma_link(const RdmaLinkOptions& options) {
  auto link = std::make_unique<VerbsLink>(options);
  if (auto opened = link->open(); !opened) return tl::unexpected(opened.error());
  return link;
}

}  // namespace gradwire::perf
