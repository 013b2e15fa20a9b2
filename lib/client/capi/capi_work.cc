// SPDX-License-Identifier: BSD-3-Clause
// The C interface: what is asked of an op that was posted.
#include "client/capi/capi_support.h"

using namespace gradwire;
using namespace gradwire::client;

extern "C" {

gw_status gw_test(gw_work* work, int* done) {
  return guarded([&]() -> Result<void> {
    if (work == nullptr) return null_argument("work");
    if (done == nullptr) return null_argument("done");
    *done = 0;
    if (is_forked(work)) return forked();
    const auto result = work->client->test(*work);
    *done = result ? *result : 1;
    if (!result) return tl::unexpected(result.error());
    return {};
  });
}

gw_status gw_wait(gw_work* work, uint32_t timeout_ms) {
  return guarded([&]() -> Result<void> {
    if (work == nullptr) return null_argument("work");
    if (is_forked(work)) return forked();
    return work->client->wait(*work, std::chrono::milliseconds(timeout_ms));
  });
}

gw_status gw_wait_on_stream(gw_work* work, uint32_t timeout_ms, void* stream) {
  return guarded([&]() -> Result<void> {
    if (work == nullptr) return null_argument("work");
    if (is_forked(work)) return forked();
    return work->client->wait(*work, std::chrono::milliseconds(timeout_ms), stream);
  });
}

int gw_work_is_done(const gw_work* work) {
  if (work == nullptr || is_forked(work)) return 0;
  return work->client->is_reported(*work) ? 1 : 0;
}

uint64_t gw_work_op_seq(const gw_work* work) {
  if (work == nullptr || is_forked(work)) return 0;
  return work->client->op_seq(*work);
}

uint64_t gw_work_bytes(const gw_work* work) {
  if (work == nullptr || is_forked(work)) return 0;
  return work->client->moved_bytes(*work);
}

void gw_work_free(gw_work* work) {
  if (work == nullptr || is_forked(work)) return;
  guarded([&]() -> Result<void> {
    work->client->release(*work);
    return {};
  });
}

}  // extern "C"
