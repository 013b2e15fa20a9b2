// SPDX-License-Identifier: BSD-3-Clause
// The C interface: ops.
#include "client/capi_support.h"

using namespace gradwire;
using namespace gradwire::client;

namespace {

/// The arguments of an op. Those that its function has no parameter for stay 0.
struct Given {
  Collective collective = Collective::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::uint64_t count = 0;
  gw_datatype datatype = GW_FLOAT32;
  gw_redop redop = GW_SUM;
  std::uint32_t root = 0;
  std::uint32_t tag = 0;
  std::optional<void*> stream = std::nullopt;
};

gw_status post(gw_group* group, const Given& given, gw_work** work) {
  return guarded([&]() -> Result<void> {
    if (group == nullptr) return null_argument("group");
    if (work == nullptr) return null_argument("work");
    if (static_cast<unsigned>(given.datatype) >= kDataTypeCount) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("datatype is {}: it must be 0 to {}, a gw_datatype",
                              static_cast<int>(given.datatype), kDataTypeCount - 1));
    }
    if (static_cast<unsigned>(given.redop) >= kRedOpCount) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("redop is {}: it must be 0 to {}, a gw_redop",
                              static_cast<int>(given.redop), kRedOpCount - 1));
    }
    if (const auto redop = static_cast<RedOp>(given.redop);
        !fits(redop, static_cast<DataType>(given.datatype))) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("redop {} combines the bits of integers: {} cannot be reduced by it",
                              name_of(redop), name_of(static_cast<DataType>(given.datatype))));
    }
    if (is_forked(group)) return forked();
    const CollectiveCall call{given.collective,
                              static_cast<DataType>(given.datatype),
                              static_cast<RedOp>(given.redop),
                              given.count,
                              given.root,
                              given.tag};
    auto result = group->client->post(group->self,
                                      {static_cast<const std::byte*>(given.input),
                                       static_cast<std::byte*>(given.output), call, given.stream});
    if (!result) return tl::unexpected(result.error());
    *work = result->get();
    return {};
  });
}

}  // namespace

extern "C" {

gw_status gw_all_reduce(gw_group* group, const void* input, void* output, uint64_t count,
                        gw_datatype datatype, gw_redop redop, uint32_t tag, gw_work** work) {
  return post(group,
              {.collective = Collective::kAllReduce,
               .input = input,
               .output = output,
               .count = count,
               .datatype = datatype,
               .redop = redop,
               .tag = tag},
              work);
}

gw_status gw_all_reduce_on_stream(gw_group* group, const void* input, void* output, uint64_t count,
                                  gw_datatype datatype, gw_redop redop, uint32_t tag, void* stream,
                                  gw_work** work) {
  return post(group,
              {.collective = Collective::kAllReduce,
               .input = input,
               .output = output,
               .count = count,
               .datatype = datatype,
               .redop = redop,
               .tag = tag,
               .stream = stream},
              work);
}

gw_status gw_reduce_scatter(gw_group* group, const void* input, void* output, uint64_t count,
                            gw_datatype datatype, gw_redop redop, uint32_t tag, gw_work** work) {
  return post(group,
              {.collective = Collective::kReduceScatter,
               .input = input,
               .output = output,
               .count = count,
               .datatype = datatype,
               .redop = redop,
               .tag = tag},
              work);
}

gw_status gw_all_gather(gw_group* group, const void* input, void* output, uint64_t count,
                        gw_datatype datatype, uint32_t tag, gw_work** work) {
  return post(group,
              {.collective = Collective::kAllGather,
               .input = input,
               .output = output,
               .count = count,
               .datatype = datatype,
               .tag = tag},
              work);
}

gw_status gw_broadcast(gw_group* group, const void* input, void* output, uint64_t count,
                       gw_datatype datatype, uint32_t root, uint32_t tag, gw_work** work) {
  return post(group,
              {.collective = Collective::kBroadcast,
               .input = input,
               .output = output,
               .count = count,
               .datatype = datatype,
               .root = root,
               .tag = tag},
              work);
}

gw_status gw_reduce(gw_group* group, const void* input, void* output, uint64_t count,
                    gw_datatype datatype, gw_redop redop, uint32_t root, uint32_t tag,
                    gw_work** work) {
  return post(group,
              {.collective = Collective::kReduce,
               .input = input,
               .output = output,
               .count = count,
               .datatype = datatype,
               .redop = redop,
               .root = root,
               .tag = tag},
              work);
}

gw_status gw_barrier(gw_group* group, uint32_t tag, gw_work** work) {
  return post(group, {.collective = Collective::kBarrier, .tag = tag}, work);
}

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

int gw_work_is_done(const gw_work* work) {
  if (work == nullptr || is_forked(work)) return 0;
  return work->client->is_reported(*work) ? 1 : 0;
}

uint64_t gw_work_op_seq(const gw_work* work) {
  if (work == nullptr || is_forked(work)) return 0;
  return work->client->op_seq(*work);
}

void gw_work_free(gw_work* work) {
  if (work == nullptr || is_forked(work)) return;
  guarded([&]() -> Result<void> {
    work->client->release(*work);
    return {};
  });
}

}  // extern "C"
