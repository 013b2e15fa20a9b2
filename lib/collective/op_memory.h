// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Where a chunk lies in its members' memory, by collective: which inputs are folded or copied,
/// which outputs get it, and at what offset. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/op_spec.h"
#include "collective/partition.h"

namespace gradwire::collective {

struct ChunkMemory {
  const std::byte* const* inputs = nullptr;
  std::byte* const* outputs = nullptr;
  std::uint16_t input_count = 1;
  std::uint16_t output_count = 1;
  std::uint64_t first_input = 0;   ///< element in each input
  std::uint64_t first_output = 0;  ///< element in each output
};

/// @param members  of this rank. Of what the collective does not have at this rank (the input of
///                 another rank's process) nothing is to be read.
[[nodiscard]] inline ChunkMemory memory_of(const OpSpec& spec, const ChunkSpan& span,
                                           std::uint16_t members) noexcept {
  ChunkMemory memory{spec.inputs.data(), spec.outputs.data(), members, members,
                     span.first_element, span.first_element};
  switch (spec.collective) {
    case Collective::kAllReduce:
    case Collective::kBarrier:
      break;
    case Collective::kReduce:
      memory.outputs += spec.root % members;
      memory.output_count = 1;
      break;
    case Collective::kBroadcast:
      memory.inputs += spec.root % members;
      memory.input_count = 1;
      break;
    case Collective::kAllGather:
      memory.inputs += span.segment % members;
      memory.input_count = 1;
      memory.first_input -= span.segment * spec.count;
      break;
    case Collective::kReduceScatter:
      memory.outputs += span.segment % members;
      memory.output_count = 1;
      memory.first_output -= span.segment * spec.count;
      break;
  }
  return memory;
}

}  // namespace gradwire::collective
