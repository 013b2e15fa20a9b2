// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Two ranks whose payloads are in the memory of an emulated GPU. One thread.
#pragma once

#include <rte_ethdev.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "collective/shapes/shape.h"
#include "port/payload_split.h"
#include "reduce/gpu/device.h"
#include "reduce/gpu/gpu_backend.h"
#include "support/plugged_gpu.h"
#include "two_ranks.h"

namespace gradwire::lane::test {

using gradwire::test::AllReduceCase;

inline constexpr std::uint32_t kPayload = 1024;

struct Gpu {
  explicit Gpu(const std::string& arguments = "guard=1") : plugged("gpu_emu6", arguments) {
    REQUIRE(plugged.result() == 0);
    reduce::GpuOptions options;
    options.device = "gpu_emu6";
    options.staging = reduce::Staging::kGpuDirect;
    options.why_no_gpudirect = "";
    auto opened = reduce::GpuDevice::open(options);
    INFO((opened ? "" : opened.error().message));
    REQUIRE(opened);
    device = std::move(*opened);
    CHECK(device->path() == reduce::PayloadPath::kGpuDirect);
  }
  /// @return bytes of its memory that are in use.
  [[nodiscard]] bool gives(std::size_t mib) const {
    auto memory = device->allocate(mib << 20, 4096);
    if (memory) device->free(*memory);
    return memory.has_value();
  }
  gradwire::test::PluggedGpu plugged;
  std::unique_ptr<reduce::GpuDevice> device;
};

/// A wire between two ports, with a NIC at each end.
class SplitWire {
 public:
  std::uint32_t lose_every = 0;
  std::uint32_t corrupt_every = 0;  ///< a bit of a chunk's payload
  std::uint64_t corrupted = 0;
  std::uint64_t control_tails = 0;  ///< ends of frames that are no chunks, put into GPU memory

  void carry(TwoRanks& ranks) {
    move(ranks, ranks.ports().from_a(), 0, ranks.ports().to_b(), 1);
    move(ranks, ranks.ports().from_b(), 1, ranks.ports().to_a(), 0);
  }

 private:
  static constexpr std::size_t kHeader = port::split_header_bytes(false, 4);

  void move(TwoRanks& ranks, rte_ring* from, std::uint16_t sender, rte_ring* to,
            std::uint16_t receiver) {
    const port::PayloadPool& sent = *ranks.rank(sender).datapath->payloads(0);
    const port::PayloadPool& received = *ranks.rank(receiver).datapath->payloads(0);
    void* object = nullptr;
    while (rte_ring_dequeue(from, &object) == 0) {
      auto* frame = static_cast<rte_mbuf*>(object);
      std::vector<std::byte> bytes;
      for (const rte_mbuf* s = frame; s != nullptr; s = s->next) {
        const void* data = rte_pktmbuf_mtod(s, const void*);
        if (RTE_MBUF_HAS_EXTBUF(s)) data = sent.for_cpu(data, s->data_len);
        REQUIRE(data != nullptr);
        const auto* first = static_cast<const std::byte*>(data);
        bytes.insert(bytes.end(), first, first + s->data_len);
      }
      const bool chunk = frame->nb_segs == 2;
      CHECK(bytes.size() == frame->pkt_len);
      rte_pktmbuf_free(frame);
      ++frames_;
      if (lose_every != 0 && frames_ % lose_every == 0) continue;
      if (corrupt_every != 0 && chunk && frames_ % corrupt_every == 0) {
        bytes[kHeader + frames_ % (bytes.size() - kHeader)] ^= std::byte{4};
        ++corrupted;
      }
      rte_mbuf* head = rte_pktmbuf_alloc(ranks.rank(receiver).datapath->pools(0).packet());
      REQUIRE(head != nullptr);
      head->data_len = static_cast<std::uint16_t>(std::min(bytes.size(), kHeader));
      head->pkt_len = static_cast<std::uint32_t>(bytes.size());
      std::memcpy(rte_pktmbuf_mtod(head, void*), bytes.data(), head->data_len);
      if (bytes.size() > kHeader) {
        rte_mbuf* tail = rte_pktmbuf_alloc(received.mempool());
        REQUIRE(tail != nullptr);
        tail->data_off = 0;
        tail->data_len = static_cast<std::uint16_t>(bytes.size() - kHeader);
        std::memcpy(received.for_cpu(rte_pktmbuf_mtod(tail, void*), tail->data_len),
                    bytes.data() + kHeader, tail->data_len);
        head->next = tail;
        head->nb_segs = 2;
        control_tails += chunk ? 0 : 1;
      }
      if (rte_ring_enqueue(to, head) != 0) rte_pktmbuf_free(head);
    }
  }

  std::uint64_t frames_ = 0;
};

struct Totals {
  reduce::BackendCounters gpu;  ///< of both ranks
  collective::ShardCounters shards;
};

/// Two ranks reduce some ops on the GPU: the bits are the reference's.
class Pair {
 public:
  /// @param nranks  if they are more than two, the group does not form.
  Pair(Gpu& gpu, SplitWire* wire, std::uint64_t exchange_bytes = 0, std::uint64_t direct_bytes = 0,
       std::uint16_t nranks = 2)
      : gpu_(gpu), exchange_bytes_(exchange_bytes) {
    for (auto& queue : queues_) {
      auto made = reduce::GpuQueue::create(*gpu.device, kPayload);
      REQUIRE(made);
      queue = std::move(*made);
    }
    TwoRanksOptions options;
    options.payload_bytes = kPayload;
    options.payload_memory = gpu.device.get();
    options.batch_entries = 8;
    options.exchange_bytes = exchange_bytes;
    options.direct_bytes = direct_bytes;
    options.nranks = nranks;
    if (direct_bytes != 0) {
      options.direct_memory = [&device = *gpu.device](std::uint64_t bytes) {
        auto memory = device.allocate_host(bytes, "a test");
        REQUIRE(memory);
        return std::shared_ptr<std::byte[]>(static_cast<std::byte*>(*memory),
                                            [&device](std::byte* m) { device.free_host(m); });
      };
    }
    options.joined = wire == nullptr;
    if (wire != nullptr) {
      options.carry = [this, wire] {
        if (ranks_ != nullptr) wire->carry(*ranks_);
      };
    }
    options.backend = [this](std::uint16_t r) {
      return std::make_unique<reduce::GpuBackend>(*queues_[r]);
    };
    ranks_ = std::make_unique<TwoRanks>(options);
    if (nranks == 2) {
      REQUIRE(ranks_->form());
    } else {
      for (std::uint16_t r = 0; r < 2; ++r) ranks_->add_client_and_group(r);
      ranks_->round();
    }
  }
  ~Pair() {
    ranks_.reset();
    for (auto& c : cases_) {
      for (void* memory : c.registered) gpu_.device->unregister_host(memory);
    }
  }
  TwoRanks& ranks() { return *ranks_; }

  /// @return chunks of the op, each of which has one reducing hop, or two in an exchange.
  std::uint64_t reduce(std::uint64_t count, DataType datatype, RedOp redop, std::uint64_t seed) {
    Case& c = cases_.emplace_back();
    c.all_reduce = std::make_unique<AllReduceCase>(2, 1, count, datatype, redop, seed, false);
    const std::size_t bytes = count * element_bytes(datatype);
    for (std::uint16_t r = 0; r < 2; ++r) {
      const collective::OpSpec spec = c.all_reduce->spec(r, 1);
      for (void* memory : {const_cast<void*>(static_cast<const void*>(spec.inputs[0])),
                           static_cast<void*>(spec.outputs[0])}) {
        REQUIRE(gpu_.device->register_host(memory, bytes, "gradients"));
        c.registered.push_back(memory);
      }
      ranks_->post(r, *c.all_reduce);
    }
    // The GPU is as fast as it is: time is the clock's.
    int open = 2;
    auto before = std::chrono::steady_clock::now();
    const auto give_up = before + std::chrono::seconds(120);
    while (open > 0 && before < give_up) {
      const auto now = std::chrono::steady_clock::now();
      ranks_->round((now - before).count());
      before = now;
      for (std::uint16_t r = 0; r < 2; ++r) {
        const auto entry = ranks_->rank(r).client->completion();
        if (!entry) continue;
        CHECK(static_cast<ErrorCode>(entry->status) == ErrorCode::kOk);
        --open;
      }
    }
    REQUIRE(open == 0);
    CHECK(c.all_reduce->wrong(0) == "");
    CHECK(c.all_reduce->wrong(1) == "");
    return collective::plan_op({0, 2, 1, exchange_bytes_}, 0, 1, kPayload, count, datatype)
        .partition.total_chunks();
  }

  Totals result() {
    Totals sum;
    for (std::uint16_t r = 0; r < 2; ++r) {
      const collective::ShardStatus status =
          ranks_->rank(r).plan.shards[0].shard->status(ranks_->now);
      CHECK(std::string(status.backend_name) == "emu");
      CHECK(std::string(status.backend_path) == "gpudirect");
      sum.gpu.chunks_reduced += status.backend.chunks_reduced;
      sum.gpu.chunks_moved += status.backend.chunks_moved;
      sum.gpu.bytes += status.backend.bytes;
      sum.shards += status.counters;
    }
    return sum;
  }

 private:
  struct Case {
    std::unique_ptr<AllReduceCase> all_reduce;
    std::vector<void*> registered;
  };
  Gpu& gpu_;
  std::uint64_t exchange_bytes_;
  std::array<std::unique_ptr<reduce::GpuQueue>, 2> queues_;
  std::vector<Case> cases_;
  std::unique_ptr<TwoRanks> ranks_;
};

}  // namespace gradwire::lane::test
