// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A command lane with clients, memory and rings, and no shards: the test plays the lanes.
#pragma once

#include <rte_ring.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command/command_lane.h"
#include "command/create_ring.h"
#include "ipc/command_queue.h"

namespace gradwire::command {

struct TestClient {
  explicit TestClient(std::uint32_t id)
      : raw(std::aligned_alloc(64, (sizeof(ipc::QueueRegion) + 63) / 64 * 64)),
        region(ipc::create_queue_region(raw, sizeof(ipc::QueueRegion))),
        queue(region) {
    port.client_id = id;
    port.queue = ipc::DaemonQueue(region);
    int pair[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) != 0) std::abort();
    port.completion_fd = pair[0];
    completion_fd = pair[1];
  }
  ~TestClient() {
    close(port.completion_fd);
    close(completion_fd);
    std::free(raw);
  }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  std::optional<ipc::CompletionEntry> completion() {
    ipc::CompletionEntry entry;
    if (queue.pop_completion(entry) != ipc::PopResult::kEntry) return std::nullopt;
    return entry;
  }

  void* raw;
  ipc::QueueRegion* region;
  ipc::ClientQueue queue;
  ClientPort port;
  int completion_fd = -1;  ///< the client's end
};

struct CommandFixture {
  static constexpr std::uint64_t kGroup = 0x1001;
  static constexpr std::uint64_t kBytes = 1 << 20;
  static constexpr OpLimits kLimits{
      .shape = {.nranks = 2, .payload_bytes = 1024}, .lanes = 2, .max_chunks = 4096};

  explicit CommandFixture(unsigned lane_count = 2, unsigned ring_entries = 64) {
    static int instance = 0;
    ++instance;
    for (unsigned i = 0; i < lane_count; ++i) {
      bells.push_back(std::make_unique<WakeBell>());
      LaneRings rings;
      rings.bell = bells.back().get();
      const std::string name = "ops" + std::to_string(instance) + "_" + std::to_string(i);
      rings.ops = create_ring(name, sizeof(LaneOps), ring_entries, RING_F_SP_ENQ | RING_F_SC_DEQ);
      REQUIRE(rings.ops != nullptr);
      rings.transfers = create_ring("trans" + name, sizeof(LaneTransfer), ring_entries,
                                    RING_F_SP_ENQ | RING_F_SC_DEQ);
      REQUIRE(rings.transfers != nullptr);
      lanes.push_back(rings);
    }
    commands = std::make_unique<CommandLane>(lanes, counters);
  }
  ~CommandFixture() {
    for (const LaneRings& rings : lanes) {
      rte_ring_free(rings.ops);
      rte_ring_free(rings.transfers);
    }
  }

  TestClient& add_client(std::uint32_t id, std::uint32_t user = 0) {
    clients.push_back(std::make_unique<TestClient>(id));
    clients.back()->port.user = user;
    commands->add_client(&clients.back()->port);
    add_memory(id, 1);
    add_memory(id, 2);
    return *clients.back();
  }
  std::byte* add_memory(std::uint32_t client_id, std::uint32_t handle) {
    memories.push_back(std::make_unique<std::vector<std::byte>>(kBytes));
    commands->add_memory({client_id, handle, memories.back()->data(), kBytes});
    return memories.back()->data();
  }
  void add_group(std::vector<std::uint32_t> members, std::uint64_t handle = kGroup,
                 bool formed = true) {
    OpLimits limits = kLimits;
    limits.lanes = static_cast<std::uint8_t>(lanes.size());
    commands->add_group(handle, members, 1, limits);
    if (!formed) return;
    for (std::uint8_t lane = 0; lane < lanes.size(); ++lane) {
      report(lane, collective::EventType::kFormed, 0, handle);
    }
  }
  /// What a lane would say.
  void report(std::uint8_t lane, collective::EventType type, std::uint64_t op_seq = 0,
              std::uint64_t handle = kGroup, AbortReason reason = {}) {
    commands->on_report({handle, op_seq, type, lane, reason});
  }
  void op_done(std::uint64_t op_seq) {
    for (std::uint8_t lane = 0; lane < lanes.size(); ++lane) {
      report(lane, collective::EventType::kOpDone, op_seq);
    }
  }
  /// The last message in a lane's ring; nothing if it is empty.
  std::optional<LaneOps> ops(std::size_t lane) {
    std::optional<LaneOps> last;
    LaneOps each;
    while (rte_ring_sc_dequeue_elem(lanes[lane].ops, &each, sizeof each) == 0) last = each;
    return last;
  }
  Request* finished() {
    commands->poll();
    Request* request = nullptr;
    return commands->pop_finished(request) ? request : nullptr;
  }

  static ipc::CommandEntry command(std::uint64_t request_id = 1) {
    ipc::CommandEntry entry;
    entry.request_id = request_id;
    entry.group_handle = kGroup;
    entry.count = 256;
    entry.input_memory = 1;
    entry.output_memory = 2;
    return entry;
  }

  CommandCounters counters;
  std::vector<std::unique_ptr<WakeBell>> bells;
  std::vector<LaneRings> lanes;
  std::vector<std::unique_ptr<TestClient>> clients;
  std::vector<std::unique_ptr<std::vector<std::byte>>> memories;
  std::unique_ptr<CommandLane> commands;
};

inline ErrorCode status_of(const std::optional<ipc::CompletionEntry>& entry) {
  REQUIRE(entry);
  return static_cast<ErrorCode>(entry->status);
}

inline AbortReason silence() {
  AbortReason reason;
  reason.code = AbortCode::kSilence;
  reason.culprit_rank = 3;
  reason.reporter_rank = 1;
  reason.duration_ns = 2'000'000'000;
  return reason;
}

}  // namespace gradwire::command
