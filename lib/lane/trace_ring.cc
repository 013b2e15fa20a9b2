// SPDX-License-Identifier: BSD-3-Clause
#include "lane/trace_ring.h"

namespace gradwire::lane {

const char* name_of(TraceType type) noexcept {
  switch (type) {
    case TraceType::kPosted:
      return "posted";
    case TraceType::kFirstChunk:
      return "first_chunk";
    case TraceType::kDone:
      return "done";
    case TraceType::kAborted:
      return "aborted";
  }
  return "event?";
}

}  // namespace gradwire::lane
