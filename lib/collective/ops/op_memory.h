// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A chunk's place in its members' memory, by collective: which inputs are folded or copied, which
/// outputs get it, and at what offset. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/process_layout.h"
#include "collective/ops/op_spec.h"
#include "collective/shapes/partition.h"

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
/// @param processes  of the group: chunks go by processes' places, memory by their numbers.
[[nodiscard]] inline ChunkMemory memory_of(const OpSpec& spec, const ChunkSpan& span,
                                           std::uint16_t members,
                                           const GroupProcesses& processes) noexcept {
  ChunkMemory memory{spec.inputs.data(), spec.outputs.data(), members, members,
                     span.first_element, span.first_element};
  switch (spec.collective) {
    default:
      break;
    case Collective::kReduce:
      memory.outputs += processes.member_of(spec.root);
      memory.output_count = 1;
      break;
    case Collective::kBroadcast:
      memory.inputs += processes.member_of(spec.root);
      memory.input_count = 1;
      break;
    case Collective::kAllGather: {
      const std::uint32_t process = processes.process_at(span.segment);
      memory.inputs += processes.member_of(process);
      memory.input_count = 1;
      memory.first_input -= span.segment * spec.count;
      memory.first_output = memory.first_input + process * spec.count;
      break;
    }
    case Collective::kReduceScatter: {
      const std::uint32_t process = processes.process_at(span.segment);
      memory.outputs += processes.member_of(process);
      memory.output_count = 1;
      memory.first_output -= span.segment * spec.count;
      memory.first_input = memory.first_output + process * spec.count;
      break;
    }
  }
  return memory;
}

}  // namespace gradwire::collective
