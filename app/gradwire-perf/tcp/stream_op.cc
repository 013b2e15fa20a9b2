// SPDX-License-Identifier: BSD-3-Clause
#include "tcp/stream_op.h"

#include <algorithm>
#include <cstdlib>

namespace gradwire::perf {

Folder::Folder() : backend_(reduce::make_cpu_backend(1)) {}

void Folder::fold(const OpSpec& spec, const std::byte* first, const std::byte* second,
                  std::byte* output, std::uint64_t count, bool final) noexcept {
  const std::uint32_t element = element_bytes(spec.datatype);
  // An entry counts its elements in 32 bits.
  constexpr std::uint64_t kMost = 1u << 30;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t part = std::min(count - done, kMost);
    reduce::Entry entry;
    entry.kind = reduce::Kind::kReduceToOutput;  // what was received is left alone
    entry.datatype = spec.datatype;
    entry.redop = spec.redop;
    entry.finalize = final;
    entry.count = static_cast<std::uint32_t>(part);
    entry.divisor = spec.nranks;
    entry.packet = const_cast<std::byte*>(first) + done * element;
    entry.inputs = &second;
    entry.outputs = &output;
    entry.offset_bytes = done * element;
    reduce::Completion completion;
    const bool folded = backend_->submit({&entry, 1}) == 1 &&
                        backend_->poll({&completion, 1}) == 1 && completion.ok;
    // The entry is well-formed and the CPU backend empty: anything else is a bug.
    if (!folded) std::abort();
    done += part;
  }
}

}  // namespace gradwire::perf
