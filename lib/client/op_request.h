// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a caller asks of an op, checked, and where its memory lies: in memory that the daemon has,
/// or copied through staging. The client's lock guards the memory; functions that take the lock may
/// let it go meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/collective_call.h"
#include "base/result.h"
#include "client/connection.h"
#include "client/daemon_memory.h"
#include "client/handles.h"

namespace gradwire::client {

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
  const float* residual_in = nullptr;          ///< of an op with a format; nullptr: none
  float* residual_out = nullptr;               ///< likewise
  /// [processes] each, in elements, or nullptr: `call.count` for each.
  const std::uint64_t* input_counts = nullptr;
  const std::uint64_t* output_counts = nullptr;
  bool up_to = false;             ///< of a receive: whatever is sent of at most so many elements
  std::uint32_t pair_stream = 0;  ///< of a send or a receive
  bool more = false;              ///< others follow at once: a lane that sleeps is woken by them
  /// Bytes of memory that there are at `input` and `output`, if the caller said so.
  std::optional<BufferSizes> sizes = std::nullopt;
};

/// What `arguments` ask for, if a group's process may ask for it.
[[nodiscard]] Result<std::shared_ptr<gw_work>> make_work(const gw_group& group,
                                                         const PostArguments& arguments);

/// Whether a call has blocks of different sizes.
[[nodiscard]] bool has_splits(const gw_group& group, const PostArguments& arguments);

/// Fills in what the command says of the op's memory and its splits.
[[nodiscard]] Result<void> place(DaemonMemory& memory, Lock& lock, gw_work& work,
                                 const PostArguments& arguments, ipc::CommandEntry& command,
                                 ipc::CommandExtra& extra);
/// If the group has one rank, nothing travels, so nothing is lost or added: what is kept stays. Of
/// an op that is placed, and whose memory no unfinished one uses.
void keep_residuals(gw_work& work) noexcept;
/// The input's copy, if it needs one, and the mark on its stream. Without the lock.
[[nodiscard]] Result<void> feed(gw_work& work);
/// Gives back what an op has that is not posted after all.
void give_up(DaemonMemory& memory, gw_work& work);

}  // namespace gradwire::client
