// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What is behind the handles of gradwire.h beside the client: memory, groups, ops. Plain data,
/// which the client's lock guards; how each changes its parts know (client.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/collective_call.h"
#include "base/result.h"
#include "base/types.h"
#include "client/control_socket.h"
#include "client/gradwire.h"
#include "client/group_config.h"
#include "client/staging.h"
#include "client/stream_copies.h"
#include "ipc/command_queue.h"
#include "ipc/control_messages.h"
#include "ipc/message_socket.h"

namespace gradwire::client {

class Client;

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
  ipc::CommandExtra extra;
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
  bool abort_unreported = false;  ///< counted by CompletionPoll
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
  const std::byte* residual_in =
      nullptr;  ///< in gradient memory, as many bytes as `residual_bytes`
  std::byte* residual_out = nullptr;
  std::uint64_t residual_bytes = 0;
  std::byte* fed = nullptr;           ///< shared memory that the input is copied to, if it is
  const std::byte* result = nullptr;  ///< shared memory that the output is copied from, if it is
  gradwire::client::Clock::time_point posted_at;
  std::size_t in_flight_index = 0;  ///< in Works::in_flight(), while posting or posted
  State state = State::kPosting;
  bool copy_out = false;    ///< `result` has to be copied to `output`
  bool unreported = false;  ///< counted by CompletionPoll
  bool awaited = false;     ///< counted by Works
  gradwire::client::StagingSlot staging;
  std::shared_ptr<gradwire::client::Mapping> input_mapping;
  std::shared_ptr<gradwire::client::Mapping> output_mapping;
  std::shared_ptr<gradwire::client::Mapping> residual_in_mapping;
  std::shared_ptr<gradwire::client::Mapping> residual_out_mapping;
  gradwire::client::StagingSlot splits;  ///< the table of a call with splits
  std::optional<void*> stream;           ///< that the input is computed on
  gradwire::client::ReadyEvent ready;
  std::optional<gradwire::client::StreamOp>
      copies;  ///< on a stream, in gradient memory of the host
  gradwire::ErrorCode code = gradwire::ErrorCode::kOk;
  bool up_to = false;             ///< a receive that may get less than it has room for
  std::uint64_t moved_bytes = 0;  ///< of a send or a receive that is done well
  std::uint64_t op_seq = 0;
  std::string text;
};

namespace gradwire::client {

/// What an op that is done has written to its output.
[[nodiscard]] inline std::uint64_t written_bytes(const gw_work& work) noexcept {
  return work.up_to ? work.moved_bytes : work.extent.output;
}

/// By the daemon's handle.
using Groups = std::map<std::uint64_t, std::shared_ptr<gw_group>>;

/// Whether the daemon is done with the op.
[[nodiscard]] inline bool is_over(const gw_work& work) noexcept {
  return work.state == gw_work::State::kFinished || work.state == gw_work::State::kReturning ||
         work.state == gw_work::State::kReported;
}

}  // namespace gradwire::client
