// SPDX-License-Identifier: BSD-3-Clause
// In place of verbs_link.cc and verbs_device.cc where libibverbs was not there.
#include "rdma/rdma_link.h"

namespace gradwire::perf {

Result<std::unique_ptr<RdmaLink>> make_rdma_link(const RdmaLinkOptions& /*options*/) {
  return fail(ErrorCode::kUnsupported,
              "this gradwire-perf was built without libibverbs, which --transport rdma needs: "
              "install libibverbs-dev and build again");
}

}  // namespace gradwire::perf
