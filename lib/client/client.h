// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What is behind the handles of gradwire.h: a connection to the daemon, its groups, its ops. Any
/// thread; one mutex per client guards everything. No thread of its own: of the threads that wait,
/// one (the leader) sleeps in poll() on the daemon's descriptors and takes in what comes for all;
/// the others sleep until it has.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/collective_call.h"
#include "base/process_layout.h"
#include "base/result.h"
#include "base/types.h"
#include "client/control_socket.h"
#include "client/gradwire.h"
#include "client/group_config.h"
#include "client/staging.h"
#include "client/stream_copies.h"
#include "client/wait_policy.h"
#include "ipc/command_queue.h"
#include "ipc/control_messages.h"
#include "ipc/message_socket.h"
#include "ipc/unique_fd.h"

namespace gradwire::client {

class Client;

struct OpenOptions {
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds request_timeout{10000};
  std::chrono::microseconds spin{20};
  std::uint64_t staging_cache_bytes = 256u << 20;
};

/// Counters of gw_counters, under the client's lock.
struct Counters {
  std::uint64_t ops_posted = 0;
  std::uint64_t ops_done = 0;
  std::uint64_t ops_failed = 0;
  std::uint64_t copies = 0;
  std::uint64_t copied_bytes = 0;
  std::uint64_t sleeps = 0;
  std::uint64_t doorbells = 0;
};

/// Request whose reply has not been taken yet.
struct PendingRequest {
  ipc::MessageType type = ipc::MessageType::kOpen;
  bool done = false;
  bool abandoned = false;  ///< nobody waits for it any more
  ipc::Message reply;
  /// Called under the lock when a reply without error comes; the flag says `abandoned`.
  std::function<void(ipc::Message&, bool)> on_reply;
};

/// A command that may not go to the daemon yet: its input, or that of one before it, is still to
/// come from a GPU.
struct HeldCommand {
  std::shared_ptr<gw_work> work;
  ipc::CommandEntry command;
  double factor = 1;
};

}  // namespace gradwire::client

// The handles of the C interface are these objects; `self` is the caller's ownership.

struct gw_memory {
  std::shared_ptr<gradwire::client::Client> client;
  std::shared_ptr<gradwire::client::Mapping> mapping;
  std::uint32_t handle = 0;                                        ///< the daemon's
  std::shared_ptr<gradwire::client::PendingRequest> free_request;  ///< sent, not answered yet
};

struct gw_group {
  std::shared_ptr<gw_group> self;
  std::shared_ptr<gradwire::client::Client> client;
  gradwire::client::GroupConfig config;
  std::uint64_t handle = 0;
  std::uint64_t posted = 0;     ///< ops that this client posted on it
  std::uint64_t transfers = 0;  ///< likewise: sends, receives, all-to-alls, gathers, scatters
  bool aborted = false;
  bool abort_unreported = false;  ///< counted in the client's unreported_
  bool left = false;
  bool freed = false;  ///< nobody asks for its error any more
  std::string abort_text;
  std::shared_ptr<gradwire::client::PendingRequest> leave_request;
  /// Of collectives, in their order, and of transfers: neither waits for the other's streams.
  gradwire::client::StreamCopies copies;
  gradwire::client::StreamCopies transfer_copies;
  std::deque<gradwire::client::HeldCommand> held;
  std::deque<gradwire::client::HeldCommand> held_transfers;

  [[nodiscard]] gradwire::client::StreamCopies& copies_of(gradwire::Collective collective) {
    return gradwire::is_transfer(collective) ? transfer_copies : copies;
  }
};

namespace gradwire::client {

/// A daemon's event, opened here, to be recorded before the command that names it.
struct ReadyEvent {
  std::uint32_t handle = 0;
  std::unique_ptr<gpu::Event> event;
};

}  // namespace gradwire::client

struct gw_work {
  /// Held: its command waits for a stream. Finished: the daemon is done with it. Copying: a thread
  /// copies its result, or asks CUDA to. Returning: CUDA copies its result.
  enum class State : std::uint8_t {
    kPosting,
    kHeld,
    kPosted,
    kFinished,
    kCopying,
    kReturning,
    kReported
  };

  std::shared_ptr<gw_work> self;
  std::shared_ptr<gradwire::client::Client> client;
  std::shared_ptr<gw_group> group;
  std::uint64_t number = 0;  ///< this client's count of ops, or of transfers, in the group, from 1
  std::uint64_t request_id = 0;
  gradwire::CollectiveCall call;
  gradwire::CollectiveExtent extent;  ///< of `input` and `output`
  const std::byte* input = nullptr;   ///< the caller's; nullptr if this process reads nothing
  std::byte* output = nullptr;
  std::byte* fed = nullptr;           ///< shared memory that the input is copied to, if it is
  const std::byte* result = nullptr;  ///< shared memory that the output is copied from, if it is
  gradwire::client::Clock::time_point posted_at;
  std::size_t in_flight_index = 0;  ///< in the client's in_flight_, while posting or posted
  State state = State::kPosting;
  bool copy_out = false;    ///< `result` has to be copied to `output`
  bool unreported = false;  ///< counted in the client's unreported_
  bool awaited = false;     ///< counted in the client's awaited_
  gradwire::client::StagingSlot staging;
  std::shared_ptr<gradwire::client::Mapping> input_mapping;
  std::shared_ptr<gradwire::client::Mapping> output_mapping;
  gradwire::client::StagingSlot splits;  ///< the table of a call with splits
  std::optional<void*> stream;           ///< that the input is computed on
  gradwire::client::ReadyEvent ready;
  std::optional<gradwire::client::StreamOp>
      copies;  ///< on a stream, in gradient memory of the host
  gradwire::ErrorCode code = gradwire::ErrorCode::kOk;
  std::uint64_t op_seq = 0;
  std::string text;
};

namespace gradwire::client {

class Client : public std::enable_shared_from_this<Client> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Client>> open(const std::string& path,
                                                            const OpenOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// This process is a fork's child, and the connection its parent's.
  [[nodiscard]] bool is_forked() const noexcept { return forked_.load(std::memory_order_relaxed); }
  /// In the child of a fork: lets go of the connection. Async-signal-safe.
  void abandon_after_fork() noexcept;

  void close();
  [[nodiscard]] const ipc::OpenReply& open_reply() const noexcept { return open_reply_; }
  [[nodiscard]] Counters counters(std::uint64_t* staging_bytes);
  [[nodiscard]] Result<int> completion_fd();
  [[nodiscard]] Result<ipc::RankInfo> describe();

  [[nodiscard]] Result<std::unique_ptr<gw_memory>> allocate(std::uint64_t bytes);
  /// On success the memory is unmapped and the caller deletes the handle.
  [[nodiscard]] Result<void> free(gw_memory& memory);

  [[nodiscard]] Result<std::shared_ptr<gw_group>> join(const GroupConfig& config);
  [[nodiscard]] Result<void> leave(gw_group& group);
  [[nodiscard]] Result<void> abort(gw_group& group, const std::string& reason);
  [[nodiscard]] Result<void> group_error(gw_group& group);
  void release(gw_group& group);

  struct BufferSizes {
    std::uint64_t input;
    std::uint64_t output;
  };
  struct PostArguments {
    const std::byte* input;
    std::byte* output;
    CollectiveCall call;
    std::optional<void*> stream = std::nullopt;  ///< CUDA's; nullptr is its default stream
    double factor = 1;                           ///< of a premul-sum
    /// [processes] each, in elements, or nullptr: `call.count` for each.
    const std::uint64_t* input_counts = nullptr;
    const std::uint64_t* output_counts = nullptr;
    bool more = false;  ///< others follow at once: a lane that sleeps is woken by them
    /// Bytes of memory that there are at `input` and `output`, if the caller said so.
    std::optional<BufferSizes> sizes = std::nullopt;
  };
  [[nodiscard]] Result<std::shared_ptr<gw_work>> post(const std::shared_ptr<gw_group>& group,
                                                      const PostArguments& arguments);
  /// Wakes the lane for commands of which others were to follow.
  void flush() noexcept;
  /// Takes in what made completion_fd() readable.
  void take_in();
  /// Whether the op is done; its own error once it is.
  [[nodiscard]] Result<bool> test(gw_work& work);
  /// @param stream  has the result when it comes to what it is given next, and nobody waits for the
  ///                copy of the result; without one it has been copied on success
  [[nodiscard]] Result<void> wait(gw_work& work, std::chrono::milliseconds timeout,
                                  std::optional<void*> stream = std::nullopt);
  [[nodiscard]] bool is_reported(const gw_work& work);
  [[nodiscard]] std::uint64_t op_seq(const gw_work& work);
  void release(gw_work& work);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using RequestPtr = std::shared_ptr<PendingRequest>;

  explicit Client(std::string path, const OpenOptions& options)
      : path_(std::move(path)),
        options_(options),
        wait_policy_(options.spin),
        staging_(options.staging_cache_bytes) {}

  // client.cc
  [[nodiscard]] Result<void> finish_open(ipc::Message reply);
  [[nodiscard]] Result<std::shared_ptr<Mapping>> map_reply(ipc::Message& reply);
  [[nodiscard]] Result<std::shared_ptr<Mapping>> open_on_gpu(const ipc::CudaAllocateReply& reply);

  // client_wait.cc: all with the lock held; those that take it may let it go meanwhile.
  [[nodiscard]] Result<void> check_alive() const;
  void die(ErrorCode code, std::string text);
  bool drain_completions();
  bool drain_control();
  void drain_control_sometimes();
  void dispatch(ipc::Message message);
  void wake_leader() noexcept;
  void empty_completion_fd() noexcept;
  [[nodiscard]] Result<ipc::SocketStatus> send(ipc::MessageType type, std::uint32_t request_id,
                                               std::span<const std::byte> body,
                                               std::span<const int> fds = {});
  [[nodiscard]] std::uint32_t next_request_id() noexcept;
  template <class Predicate>
  bool wait_until(Lock& lock, Deadline deadline, Predicate is_done);
  void sleep_as_leader(Lock& lock, Deadline deadline);
  [[nodiscard]] Result<RequestPtr> begin_request(
      Lock& lock, ipc::MessageType type, std::span<const std::byte> body, Deadline deadline,
      std::function<void(ipc::Message&, bool)> on_reply = {}, std::span<const int> fds = {});
  [[nodiscard]] Result<void> await_request(Lock& lock, const RequestPtr& request, Deadline deadline,
                                           bool abandon);
  /// Sends and does not wait for the answer. What cannot be sent now is lost with the connection.
  void send_and_forget(ipc::MessageType type, std::span<const std::byte> body);
  void forget_memory(std::uint32_t handle);
  void forget_mapping(std::shared_ptr<Mapping> mapping);

  // client_streams.cc: ops on a GPU's stream, where gradient memory is the host's
  [[nodiscard]] static bool must_wait(const gw_work& work);
  void hold(const std::shared_ptr<gw_work>& work, const ipc::CommandEntry& command, double factor);
  void advance_streams();
  void push_held(gw_group& group, std::deque<HeldCommand>& queue);
  void fail_held(gw_group& group, ErrorCode code, const std::string& text);
  void drop_staging(gw_work& work);
  void take_back_leaving();
  /// @param before  came_back_ as it was
  /// @return whether memory has come back since, and before `deadline`.
  [[nodiscard]] bool await_leaving(Lock& lock, Deadline deadline, std::uint64_t before);
  void settle_return(gw_work& work);
  [[nodiscard]] Result<void> await_return(Lock& lock, gw_work& work, Deadline deadline,
                                          std::optional<void*> stream);
  [[nodiscard]] static Result<void> begin_copies(gw_work& work);

  // client_op_memory.cc, client_ops.cc
  [[nodiscard]] Result<std::shared_ptr<Mapping>> allocate_mapping(Lock& lock, std::uint64_t bytes);
  [[nodiscard]] Result<StagingSlot> take_staging(Lock& lock, std::uint64_t bytes);
  void give_back_staging(StagingSlot slot);
  void give_back_event(ReadyEvent ready);
  [[nodiscard]] Result<std::shared_ptr<Mapping>> find_shared(const std::byte* start,
                                                             std::uint64_t bytes,
                                                             const char* what) const;
  [[nodiscard]] Result<void> check_overlap(const gw_work& work) const;
  /// Of ops that are over, results that are still copied to memory which `work` uses.
  [[nodiscard]] std::vector<StreamOp::EventPtr> results_under(const gw_work& work) const;
  /// What `arguments` ask for, if a group's process may ask for it.
  [[nodiscard]] static Result<std::shared_ptr<gw_work>> make_work(const gw_group& group,
                                                                  const PostArguments& arguments);
  /// The table of a call with splits, if it needs one.
  [[nodiscard]] Result<void> place_splits(Lock& lock, gw_work& work, const PostArguments& arguments,
                                          ipc::CommandEntry& command);
  [[nodiscard]] Result<void> place_memory(Lock& lock, gw_work& work, ipc::CommandEntry& command);
  /// The input's copy, if it needs one, and the mark on its stream. Without the lock.
  [[nodiscard]] static Result<void> feed(gw_work& work);
  [[nodiscard]] Result<void> take_event(Lock& lock, gw_work& work);
  [[nodiscard]] Result<void> claim_slot(const std::shared_ptr<gw_work>& work);
  void release_slot(gw_work& work);
  void give_up_posting(gw_work& work);
  void send_command(gw_work& work, const ipc::CommandEntry& command, double factor,
                    bool more = false);
  void finish(gw_work& work, ErrorCode code, std::string text, std::uint64_t op_seq);
  void fail_all_work(ErrorCode code, const std::string& text);
  void report(Lock& lock, gw_work& work);
  void end_copy(gw_work& work, const Result<void>& copied);
  void conclude(gw_work& work);
  [[nodiscard]] static Result<void> outcome(const gw_work& work);
  [[nodiscard]] std::string describe(const gw_work& work) const;
  [[nodiscard]] std::string who_is_waited_for(Lock& lock, const gw_group& group);
  void ring_if_due() noexcept;
  void add_unreported();
  void remove_unreported();
  void stop_awaiting(gw_work& work) noexcept;
  /// Takes in what has come, if somebody polls completion_fd().
  void look_for_poller();
  /// Keeps what nobody can report out of completion_fd().
  void choose_sources() noexcept;
  void mark_aborted(gw_group& group, std::string text);

  const std::string path_;
  const OpenOptions options_;
  std::atomic<bool> forked_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  ipc::UniqueFd socket_;
  ipc::UniqueFd doorbell_;
  ipc::UniqueFd completion_fd_;
  ipc::UniqueFd wake_fd_;    ///< gets the leader out of poll()
  ipc::UniqueFd notify_fd_;  ///< readable while unreported_ is not 0, once epoll_fd_ was handed out
  ipc::UniqueFd epoll_fd_;   ///< gw_client_get_completion_fd()
  ipc::OpenReply open_reply_;
  ipc::QueueRegion* region_ = nullptr;
  std::uint64_t region_bytes_ = 0;
  ipc::ClientQueue queue_;
  WaitPolicy wait_policy_;

  bool dead_ = false;
  Error dead_reason_;
  std::string cut_off_reason_;    ///< told by the daemon before it hangs up
  std::optional<Error> refusal_;  ///< the same, of a connection that was not taken
  bool has_leader_ = false;
  bool unrung_ = false;  ///< the last command was posted without waking the lane
  Clock::time_point last_control_check_;
  std::uint32_t next_request_id_ = 1;
  std::map<std::uint32_t, RequestPtr> pending_;
  std::map<std::uint64_t, std::shared_ptr<gw_group>> groups_;         ///< by the daemon's handle
  std::map<std::uintptr_t, std::shared_ptr<Mapping>> shared_memory_;  ///< by start address
  StagingPool staging_;
  std::shared_ptr<gpu::Device> gpu_;  ///< where shared memory is, if it is on one
  std::vector<ReadyEvent> free_events_;
  static constexpr std::uint64_t kSlots = GW_MAX_OUTSTANDING + GW_MAX_TRANSFERS;
  std::array<std::shared_ptr<gw_work>, kSlots> slots_;  ///< index = request_id % kSlots; those of
                                                        ///< transfers come last
  std::vector<std::uint16_t> free_slots_;
  std::vector<std::uint16_t> free_transfer_slots_;
  std::uint64_t next_sequence_ = 1;
  std::vector<gw_work*> in_flight_;  ///< the works of slots_
  std::vector<gw_work*> uncopied_;   ///< finished; the caller's output waits to be written
  std::uint64_t unreported_ = 0;
  std::uint64_t awaited_ = 0;  ///< unfinished ops whose handles are not freed
  // What completion_fd() looks at besides notify_fd_.
  bool sees_completions_ = true;
  bool sees_messages_ = true;
  std::uint64_t held_ = 0;              ///< commands of all groups that wait for streams
  std::vector<LeavingMemory> leaving_;  ///< until CUDA is through with it
  std::uint64_t came_back_ = 0;         ///< how many of these have, so far
  Counters counters_;
};

template <class Predicate>
bool Client::wait_until(Lock& lock, Deadline deadline, Predicate is_done) {
  while (true) {
    drain_completions();
    if (is_done()) return true;
    if (Clock::now() >= deadline) return false;
    if (has_leader_) {
      changed_.wait_until(lock, deadline);
    } else {
      sleep_as_leader(lock, deadline);
    }
  }
}

/// Keeps the list of open clients that a fork's child has to let go of.
void register_for_fork(Client* client);
void unregister_for_fork(Client* client) noexcept;

}  // namespace gradwire::client
