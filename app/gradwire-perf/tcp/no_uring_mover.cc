// SPDX-License-Identifier: BSD-3-Clause
// In place of uring_mover.cc where liburing was not there.
#include "tcp/stream_mover.h"

namespace gradwire::perf {

Result<std::unique_ptr<StreamMover>> make_uring_mover(const StreamEnds& /*ends*/,
                                                      const WaitOptions& /*wait*/,
                                                      const UringOptions& /*options*/) {
  return fail(ErrorCode::kUnsupported,
              "this gradwire-perf was built without liburing, which --tcp-io uring needs: install "
              "liburing-dev and build again");
}

}  // namespace gradwire::perf
