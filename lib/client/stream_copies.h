// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Copies between a GPU's memory and gradient memory of the host, in the order of the streams of
/// whoever posts. An op's input is copied when its stream has come to the op, on a stream beside
/// it, so that what the caller's stream is given next does not wait for the copy; the result is
/// copied back on another. Any thread, without the client's lock: CUDA may wait for its own.
/// Allocates; one for each group that has such ops.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "client/staging.h"
#include "gpu/cuda_device.h"
#include "ipc/unique_fd.h"

namespace gradwire::client {

/// What to do instead of posting, or of waiting, on a stream that is captured.
inline constexpr auto kPostElsewhere =
    "post the op before or after the capture, or on a stream that is not captured";
inline constexpr auto kWaitElsewhere =
    "wait for the op before or after the capture, or on a stream that is not captured; it goes on";

/// What an op has of CUDA's.
struct StreamOp {
  using EventPtr = std::shared_ptr<gpu::Event>;
  int ordinal = -1;
  EventPtr before;  ///< what its stream had been given when it was posted
  EventPtr fed;     ///< the input is in gradient memory; nullptr: nothing waits for it
  EventPtr back;    ///< the result is in the GPU's memory; nullptr: no copy was begun
  /// Results of earlier ops in memory that this op uses too: it copies nothing before them.
  std::vector<EventPtr> after;

  /// The copy that was begun last; nullptr if none was.
  [[nodiscard]] const EventPtr& last() const noexcept { return back != nullptr ? back : fed; }
};

/// Memory that is still copied to or from when its op is over for the caller.
struct LeavingMemory {
  StagingSlot slot;
  std::shared_ptr<Mapping> mapping;
  StreamOp::EventPtr until;
  const std::byte* output;  ///< where a result is copied to until then
  std::uint64_t output_bytes;
};

/// Between two looks at a stream, for whoever waits for it.
inline constexpr std::chrono::microseconds kStreamPauseMost{200};

/// Whether CUDA may still read or write for `event`'s sake. After an error it does not.
[[nodiscard]] bool is_pending(const StreamOp::EventPtr& event);

/// Keeps what a client leaves behind until CUDA is through with it, and lets go of what earlier
/// clients left. Any thread; does not wait.
/// @param end  the client's end of its completion socket: the daemon takes the memory back when it
///             is closed
void leave_behind(std::vector<LeavingMemory> memory, ipc::UniqueFd end);

class StreamCopies {
 public:
  /// What a copy has on both sides. `in` is gradient memory in `mapping`.
  struct Sides {
    Mapping* mapping;
    std::byte* in;
    const std::byte* on_gpu;
    std::uint64_t bytes;
  };

  /// Marks `stream`, which must not be captured into a graph, and begins the input's copy if
  /// `input.mapping` is not nullptr.
  /// @param copied  the input and the output, each if it is copied; if neither is, one of them
  /// @param is_read the op has an input, copied or not, which the stream may still compute
  [[nodiscard]] Result<void> begin(StreamOp& op, gpu::CuStream stream,
                                   std::array<const void*, 2> copied, const Sides& input,
                                   bool is_read);
  /// Begins the copy of the result.
  [[nodiscard]] Result<void> bring_back(StreamOp& op, std::byte* to, const std::byte* from,
                                        Mapping& mapping, std::uint64_t bytes);

 private:
  struct Streams {
    std::shared_ptr<gpu::Device> device;
    std::unique_ptr<gpu::SideStream> in;
    std::unique_ptr<gpu::SideStream> out;
  };
  [[nodiscard]] Result<Streams*> streams_of(int ordinal);
  [[nodiscard]] static Result<void> come_after(gpu::SideStream& stream, const StreamOp& op);

  std::mutex mutex_;
  std::map<int, Streams> streams_;  ///< by CUDA's number of the GPU
};

}  // namespace gradwire::client
