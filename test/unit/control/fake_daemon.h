// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A manager between a sink and lanes that are both in the test's hand: nothing answers unless the
/// test (or a rule that it set) says so.
#pragma once

#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/manager.h"
#include "fake_lanes.h"
#include "table_support.h"

namespace gradwire::control::test {

/// Counts how many of its kind there are.
class CountedEvent final : public reduce::ReadyEvent {
 public:
  explicit CountedEvent(int& count) : count_(count) { ++count_; }
  ~CountedEvent() override { --count_; }
  State state() noexcept override { return State::kReady; }

 private:
  int& count_;
};

class FakeMemory final : public ClientMemory {
 public:
  bool is_registered() const override { return registers; }
  Result<void> register_host(std::byte* address, std::uint64_t bytes) override {
    if (!register_error.empty()) return fail(ErrorCode::kResourceExhausted, register_error);
    REQUIRE(registered.emplace(address, bytes).second);
    return {};
  }
  void unregister_host(std::byte* address) override { REQUIRE(registered.erase(address) == 1); }
  bool is_on_gpu() const override { return on_gpu; }
  Result<reduce::SharedReadyEvent> make_ready_event() override {
    if (!on_cuda) return fail(ErrorCode::kUnsupported, "there is no GPU");
    reduce::SharedReadyEvent made;
    made.event = std::make_unique<CountedEvent>(ready_events);
    made.handle.bytes[0] = static_cast<unsigned char>(ready_events);
    return made;
  }
  Result<reduce::SharedGpuMemory> allocate_on_gpu(std::uint64_t bytes) override {
    reduce::SharedGpuMemory memory;
    memory.bytes = bytes;
    if (on_cuda) {
      memory.cuda.emplace();
      memory.cuda->uuid.bytes[3] = 0xab;
      memory.cuda->handle.bytes[63] = 0xcd;
      memory.address = reinterpret_cast<std::byte*>(std::uintptr_t{0x7000} << 32);
      gpu_memory.insert(memory.address);
      return memory;
    }
    memory.fd = ::memfd_create("fake_gpu", MFD_CLOEXEC);
    REQUIRE(::ftruncate(memory.fd, static_cast<off_t>(bytes)) == 0);
    // An address that nobody here may touch, as a GPU's is.
    memory.address = reinterpret_cast<std::byte*>(std::uintptr_t{0x7000} << 32) + gpu_memory.size();
    gpu_memory.insert(memory.address);
    return memory;
  }
  void free_on_gpu(std::byte* address) override { REQUIRE(gpu_memory.erase(address) == 1); }

  bool registers = true;
  std::string register_error;
  std::map<std::byte*, std::uint64_t> registered;
  bool on_gpu = false;
  bool on_cuda = false;  ///< then that GPU is a CUDA device
  int ready_events = 0;
  std::set<std::byte*> gpu_memory;
};

class FakeReports final : public LaneReports {
 public:
  explicit FakeReports(const FakeLanes& lanes) : lanes_(lanes) {}
  collective::ShardCounters shard_totals(std::uint8_t lane) const override {
    return lane == 0 ? gone : collective::ShardCounters{};
  }
  std::vector<lane::TraceEvent> trace(std::uint8_t lane) const override {
    return lane == 0 ? traces : std::vector<lane::TraceEvent>{};
  }
  std::vector<command::PublishedStatus> published(std::uint8_t lane) const override {
    std::vector<command::PublishedStatus> out;
    for (const command::GroupPlan* plan : lanes_.plans) {
      if (lane >= plan->shards.size()) continue;
      out.push_back({plan->group_handle, statuses[lane], {}});
      if (lane == 0 && members) out.back().members = *members;
    }
    return out;
  }
  status::Lane lane_status(std::uint8_t lane) const override {
    status::Lane out;
    out.lcore = lane + 1u;
    return out;
  }
  std::vector<ReduceTotal> reduce_totals() const override { return totals; }
  std::vector<status::Port> ports_status() const override { return {}; }
  std::vector<PortFaults> port_faults() const override { return {{"net_a", {}}, {"net_b", {}}}; }
  const port::FaultCounters& fault_counters(std::uint16_t port, std::uint8_t) const override {
    return fault_counts[port];
  }

  collective::ShardStatus statuses[2];
  collective::ShardCounters gone;
  std::vector<lane::TraceEvent> traces;
  std::optional<command::MembersWait> members;
  std::vector<ReduceTotal> totals;
  port::FaultCounters fault_counts[2];

 private:
  const FakeLanes& lanes_;
};

class FakeSink final : public ipc::MessageSink {
 public:
  struct Sent {
    ipc::MessageHeader header;
    std::vector<std::byte> body;
    std::vector<ipc::UniqueFd> fds;
    ErrorCode code() const { return static_cast<ErrorCode>(header.error_code); }
    std::string error() const {
      const auto e = ipc::error_of(header, body);
      return e ? e->message : std::string();
    }
  };
  void send(ipc::ConnectionId connection, const ipc::MessageHeader& header,
            std::span<const std::byte> body, std::vector<ipc::UniqueFd> fds) override {
    sent[connection].push_back({header, {body.begin(), body.end()}, std::move(fds)});
  }
  void hang_up(ipc::ConnectionId connection) override { hung_up.insert(connection); }
  void keep(ipc::ConnectionId connection) override { kept.insert(connection); }

  std::map<ipc::ConnectionId, std::deque<Sent>> sent;
  std::set<ipc::ConnectionId> hung_up;
  std::set<ipc::ConnectionId> kept;
};

/// Does what it is given when the test says so.
class FakeWorker final : public ipc::Worker {
 public:
  void submit_first(Work work, Done done) override {
    jobs.push_back({std::move(work), std::move(done)});
  }
  void submit_in_turn(uid_t /*user*/, Work work, Done done) override {
    jobs.push_back({std::move(work), std::move(done)});
  }
  /// One piece of the first job. @return whether it was the last.
  bool run_piece() {
    REQUIRE_FALSE(jobs.empty());
    if (!jobs.front().first()) return false;
    const auto done = std::move(jobs.front().second);
    jobs.pop_front();
    done();
    return true;
  }
  /// The first job, to its end.
  void run() {
    std::rotate(jobs.begin(), jobs.begin() + (jobs.empty() ? 0 : 1), jobs.end());
    run_last();
  }
  void run_last() {
    REQUIRE_FALSE(jobs.empty());
    auto [work, done] = std::move(jobs.back());
    jobs.pop_back();
    while (!work()) {
    }
    done();
  }
  std::deque<std::pair<Work, Done>> jobs;
};

/// Daemon 100, rank 0 of every table of table_support.h.
struct FakeDaemon {
  explicit FakeDaemon(const Limits& limits = {}, ipc::Worker* worker = nullptr) : worker(worker) {
    spdlog::set_level(spdlog::level::off);
    options.daemon = daemon_info(100);
    options.limits = limits;
    options.pages = ipc::PageKind::kOrdinaryForTests;
    make();
  }
  void make() {
    manager.reset();
    manager = std::make_unique<Manager>(options, lanes, memory, reports, sink, now, worker);
  }
  void poll(int rounds = 3) {
    for (int i = 0; i < rounds; ++i) manager->poll(now);
  }
  void advance(TimeNs ns) {
    now += ns;
    poll();
  }

  /// Sends a request; connection n is process 1000 + n. @return its request id.
  std::uint32_t send(ipc::ConnectionId connection, ipc::MessageType type,
                     std::span<const std::byte> body, uid_t uid = 500,
                     std::optional<std::uint32_t> number = std::nullopt) {
    ipc::Message message;
    message.header.type = static_cast<std::uint16_t>(type);
    message.header.request_id = number.value_or(++last_request);
    message.body.assign(body.begin(), body.end());
    manager->on_message(connection, {static_cast<pid_t>(1000 + connection), uid}, message, now);
    poll();
    return last_request;
  }
  template <class T>
  std::uint32_t send(ipc::ConnectionId connection, ipc::MessageType type, const T& body) {
    return send(connection, type, ipc::bytes_of(body));
  }
  std::size_t waiting(ipc::ConnectionId connection) { return sink.sent[connection].size(); }
  /// The next message to `connection`.
  FakeSink::Sent take(ipc::ConnectionId connection) {
    auto& queue = sink.sent[connection];
    REQUIRE_FALSE(queue.empty());
    FakeSink::Sent first = std::move(queue.front());
    queue.pop_front();
    return first;
  }
  /// The next message, which must be the error `code` with a text that has `says`.
  void refused(ipc::ConnectionId connection, ErrorCode code, const std::string& says) {
    const auto sent = take(connection);
    INFO("expected: " << says);
    CHECK(sent.code() == code);
    CHECK_THAT(sent.error(), Catch::Contains(says));
  }

  std::uint32_t open(ipc::ConnectionId connection, uid_t uid = 500) {
    send(connection, ipc::MessageType::kOpen, ipc::bytes_of(ipc::OpenRequest{}), uid);
    const auto sent = take(connection);
    INFO(sent.error());
    REQUIRE(sent.code() == ErrorCode::kOk);
    return ipc::body_as<ipc::OpenReply>(sent.body).value().client_id;
  }
  std::uint32_t allocate(ipc::ConnectionId connection, std::uint64_t bytes = 8192) {
    send(connection, ipc::MessageType::kAllocate, ipc::AllocateRequest{bytes});
    const auto sent = take(connection);
    INFO(sent.error());
    REQUIRE(sent.code() == ErrorCode::kOk);
    return ipc::body_as<ipc::AllocateReply>(sent.body).value().memory;
  }
  void join(ipc::ConnectionId connection, const ipc::JoinBody& body, uid_t uid = 500) {
    send(connection, ipc::MessageType::kJoin,
         ipc::encode_join(body.request, body.table, body.ranks), uid);
  }
  void all_lanes_formed(std::uint64_t handle) {
    lanes.formed(handle, 0);
    lanes.formed(handle, 1);
    poll();
  }
  std::uint64_t take_join_reply(ipc::ConnectionId connection) {
    const auto sent = take(connection);
    INFO(sent.error());
    REQUIRE(sent.code() == ErrorCode::kOk);
    return ipc::body_as<ipc::JoinReply>(sent.body).value().group_handle;
  }
  /// A formed group of `nranks` with the members' `connections`, opened before.
  std::uint64_t form(const std::vector<ipc::ConnectionId>& connections, std::size_t nranks = 2,
                     std::uint64_t group_id = 0xfeed) {
    const auto count = static_cast<std::uint16_t>(connections.size());
    for (std::uint16_t member = 0; member < count; ++member) {
      auto body = join_body(0, table_of(nranks), member, count);
      body.request.group_id = group_id;
      join(connections[member], body);
    }
    const std::uint64_t expected = ++groups_made;
    all_lanes_formed(expected);
    for (const ipc::ConnectionId connection : connections) {
      REQUIRE(take_join_reply(connection) == expected);
    }
    return expected;
  }
  void leave(ipc::ConnectionId connection, std::uint64_t handle) {
    send(connection, ipc::MessageType::kLeave, ipc::GroupRequest{handle});
  }
  void hang_up(ipc::ConnectionId connection) {
    manager->on_hangup(connection, now);
    poll();
  }
  /// Takes the event that `connection` must have next. @return its text.
  std::string take_abort_event(ipc::ConnectionId connection, std::uint64_t handle) {
    const auto sent = take(connection);
    REQUIRE(sent.header.type == static_cast<std::uint16_t>(ipc::MessageType::kGroupAborted));
    CHECK(sent.header.request_id == 0);
    const auto event = ipc::body_as<ipc::GroupAbortedEvent>(sent.body).value();
    CHECK(event.group_handle == handle);
    return ipc::text_of(event.text);
  }
  /// As root gets it.
  nlohmann::json status_json() const { return manager->status(now); }
  nlohmann::json group_json(std::size_t index = 0) const {
    return manager->status(now).groups.at(index);
  }

  TimeNs now = 1'000'000'000'000;
  FakeLanes lanes;
  FakeMemory memory;
  FakeReports reports{lanes};
  FakeSink sink;
  ManagerOptions options;
  ipc::Worker* worker;
  std::unique_ptr<Manager> manager;
  std::uint32_t last_request = 0;
  std::uint64_t groups_made = 0;
};

/// @return whether the page at `data` is mapped here.
inline bool is_mapped(void* data) {
  unsigned char resident = 0;
  return ::mincore(data, 4096, &resident) == 0;
}

}  // namespace gradwire::control::test
