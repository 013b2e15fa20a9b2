// SPDX-License-Identifier: BSD-3-Clause
// Compiled in place of the others here if there is no CUDA compiler.
#include "reduce/gpu/executor.h"

namespace gradwire::reduce {

Result<std::unique_ptr<Executor>> make_cuda_executor(const QueueMemory& /*memory*/,
                                                     const ExecutorOptions& /*options*/) {
  return fail(ErrorCode::kUnsupported,
              "this build has no CUDA kernels: install CUDA's compiler (nvcc) and build again with "
              "-Dcuda=enabled");
}

}  // namespace gradwire::reduce
