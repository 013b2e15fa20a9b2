// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Daemons without a network, for tests of clients: one object is several ranks' daemons, each with
/// a control socket of its own, which speak the protocol of lib/ipc and sum in plain C++. One
/// thread of its own does everything. The faults of real daemons can be asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/types.h"
#include "gpu/cuda_device.h"
#include "ipc/command_queue.h"
#include "ipc/control_server.h"
#include "ipc/shared_memory.h"

namespace gradwire::test {

struct FakeGpu;

/// A client's memory, in the host's or on the CUDA device.
class FakeMemory {
 public:
  explicit FakeMemory(ipc::SharedMemory mapping) : mapping_(std::move(mapping)) {}
  FakeMemory(FakeGpu& gpu, std::byte* address, std::uint64_t bytes)
      : gpu_(&gpu), address_(address), bytes_(bytes) {}
  FakeMemory(FakeMemory&& other) noexcept
      : mapping_(std::move(other.mapping_)),
        gpu_(std::exchange(other.gpu_, nullptr)),
        address_(other.address_),
        bytes_(other.bytes_) {}
  FakeMemory& operator=(FakeMemory&&) = delete;
  ~FakeMemory();

  [[nodiscard]] std::byte* data() const { return gpu_ != nullptr ? address_ : mapping_.data(); }
  [[nodiscard]] std::uint64_t bytes() const { return gpu_ != nullptr ? bytes_ : mapping_.bytes(); }

 private:
  ipc::SharedMemory mapping_;
  FakeGpu* gpu_ = nullptr;
  std::byte* address_ = nullptr;
  std::uint64_t bytes_ = 0;
};

class FakeDaemon {
 public:
  /// Listens at every path, one rank each. Throws std::runtime_error where that fails.
  explicit FakeDaemon(const std::vector<std::string>& paths);
  /// Ends as a daemon that was killed does: the connections break.
  ~FakeDaemon();

  std::atomic<bool> hold_ops{false};         ///< commands are left where they are
  std::atomic<bool> abort_if_asked{false};   ///< all groups end when somebody asks for the status
  std::atomic<bool> ignore_requests{false};  ///< control messages are taken and not answered
  std::atomic<std::uint64_t> memory_limit{1u << 30};  ///< bytes of one client
  std::atomic<bool> no_formats{false};        ///< the status says that groups have no wire formats
  std::atomic<bool> forge_completion{false};  ///< writes one completion of no op to every client
  std::atomic<std::uint64_t> bytes_lie{0};    ///< that are told of receives more than came
  std::atomic<bool> is_old{false};            ///< it knows no keys
  std::atomic<std::size_t> described_bytes{0};  ///< of the last request for an entry
  /// What the last join wanted: the mode, and the first byte of the job's key.
  std::atomic<ipc::WantedMode> joined_mode{ipc::WantedMode::kDaemons};
  std::atomic<std::uint8_t> joined_job{0};
  std::atomic<bool> cut_off{false};  ///< hangs every client up, and says why
  /// Memory is on the CUDA device 0, and what is wrong with what is said of it.
  std::atomic<bool> on_gpu{false};
  enum class Lie : int { kNone, kTooLarge, kBadHandle, kOtherGpu };
  std::atomic<Lie> lie{Lie::kNone};
  std::atomic<std::uint64_t> refusals{0};   ///< requests refused
  std::atomic<std::uint64_t> frees{0};      ///< kFree requests seen
  std::atomic<std::uint64_t> leaves{0};     ///< kLeave requests seen
  std::atomic<std::uint64_t> doorbells{0};  ///< rings seen

 private:
  struct Client {
    ipc::SharedMemory queue_memory;
    ipc::DaemonQueue queue;
    ipc::UniqueFd doorbell;
    ipc::UniqueFd completion;
    std::map<std::uint32_t, FakeMemory> memories;
    std::map<std::uint32_t, std::unique_ptr<gpu::Event>> events;
    std::uint64_t memory_bytes = 0;
    std::uint32_t id = 0;
  };
  struct Place {
    std::size_t rank_index = 0;  ///< of servers_
    ipc::ConnectionId connection = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Member {
    bool joined = false;
    bool left = false;
    Place place;
    std::uint32_t join_request = 0;
    std::deque<ipc::CommandEntry> commands;
    std::deque<double> factors;               ///< of each
    std::deque<ipc::CommandEntry> transfers;  ///< sends and receives
  };
  struct Group {
    std::uint64_t handle = 0;
    std::uint32_t nranks = 0;
    std::vector<std::uint16_t> ranks;  ///< by process
    std::vector<Member> all;           ///< by process
    bool formed = false;
    std::string aborted;
    std::uint64_t op_seq = 0;
  };

  void run();
  bool take_commands();
  bool run_ops(Group& group);
  bool run_transfers(Group& group);
  void run_op(Group& group, const std::vector<ipc::CommandEntry>& commands,
              const std::vector<double>& factors);
  void complete(const Place& place, const ipc::CommandEntry& command, std::uint64_t op_seq,
                ErrorCode code, const std::string& text, std::uint64_t bytes = 0);
  void push(Client& client, const ipc::CompletionEntry& entry);
  void abort(Group& group, const std::string& text);
  void wait_for_doorbell();
  void on_message(const Place& place, ipc::Message&& message);
  void on_hangup(const Place& place);
  void open(const Place& place, const ipc::Message& message);
  void allocate(const Place& place, const ipc::Message& message);
  void allocate_on_gpu(const Place& place, const ipc::Message& message);
  void make_event(const Place& place, const ipc::Message& message);
  [[nodiscard]] bool is_ready(Client& client, const ipc::CommandEntry& command) const;
  void join(const Place& place, const ipc::Message& message);
  void status(const Place& place, const ipc::Message& message);
  void reply(const Place& place, const ipc::MessageHeader& to, std::span<const std::byte> body,
             std::vector<ipc::UniqueFd> fds = {});
  void refuse(const Place& place, const ipc::MessageHeader& to, ErrorCode code,
              const std::string& text);
  [[nodiscard]] Group* group_by_handle(std::uint64_t handle);

  std::vector<std::unique_ptr<ipc::ControlServer>> servers_;
  std::unique_ptr<FakeGpu> gpu_;  ///< outlives clients' memory
  std::map<Place, Client> clients_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, Group> groups_;  ///< by id and epoch
  std::uint32_t next_id_ = 1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace gradwire::test
