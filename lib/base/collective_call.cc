// SPDX-License-Identifier: BSD-3-Clause
#include "base/collective_call.h"

#include <fmt/format.h>

namespace gradwire {

CallText text_of(const CollectiveCall& call) noexcept {
  CallText out;
  char* at = out.text;
  char* const end = out.text + sizeof out.text - 1;
  const auto add = [&](auto format, const auto&... arguments) noexcept {
    at =
        fmt::format_to_n(at, static_cast<std::size_t>(end - at), fmt::runtime(format), arguments...)
            .out;
    if (at > end) at = end;
  };
  add("{}", name_of(call.collective));
  if (reduces(call.collective)) add(" {}", name_of(call.redop));
  if (call.collective != Collective::kBarrier) {
    add(" of {} {}", call.count, name_of(call.datatype));
    if (call.wire != WireFormat::kSame) add(" as {}", name_of(call.wire));
  }
  if (has_root(call.collective) || has_partner(call.collective)) {
    const bool goes_there = call.collective == Collective::kReduce ||
                            call.collective == Collective::kGather ||
                            call.collective == Collective::kSend;
    add(goes_there ? " to process {}" : " from process {}", call.root);
  }
  add(" with tag {}", call.tag);
  *at = '\0';
  return out;
}

}  // namespace gradwire
