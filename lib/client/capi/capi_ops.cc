// SPDX-License-Identifier: BSD-3-Clause
// The C interface: ops.
#include "client/capi/capi_support.h"

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
  std::optional<double> factor = std::nullopt;
  const std::uint64_t* input_counts = nullptr;
  const std::uint64_t* output_counts = nullptr;
  bool more = false;
  bool up_to = false;
  std::uint32_t pair_stream = 0;
  std::optional<BufferSizes> sizes = std::nullopt;
  gw_wire wire = GW_WIRE_SAME;
  const float* residual_in = nullptr;
  float* residual_out = nullptr;
};

/// A call that is refused ends those that follow each other at once, as one that is posted does.
gw_status ended(gw_group* group, bool more, gw_status status) noexcept {
  if (status != GW_OK && !more && group != nullptr && !is_forked(group)) group->client->flush();
  return status;
}

Result<void> check_wire(const Given& given) {
  if (given.wire < 0 || given.wire > GW_WIRE_INT8) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("wire is {}: it must be 0 to {}, a gw_wire", given.wire,
                            static_cast<int>(GW_WIRE_INT8)));
  }
  const auto wire = static_cast<WireFormat>(given.wire);
  const auto redop = static_cast<RedOp>(given.redop);
  const auto datatype = static_cast<DataType>(given.datatype);
  if (fits(wire, given.collective, redop, datatype)) return {};
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("{} {} of {} cannot travel as {}: {}", name_of(given.collective), name_of(redop),
                  name_of(datatype), name_of(wire), misfit_of(wire, given.collective, redop)));
}

gw_status post(gw_group* group, const Given& given, gw_work** work) {
  const gw_status status = guarded([&]() -> Result<void> {
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
                  fmt::format("redop {} {}: {} cannot be reduced by it", name_of(redop),
                              misfit_of(redop), name_of(static_cast<DataType>(given.datatype))));
    }
    if (given.redop == GW_PREMUL_SUM && !given.factor) {
      return fail(ErrorCode::kInvalidArgument,
                  "redop premul_sum has a factor: call gw_post(), with it in gw_call");
    }
    if (auto travels = check_wire(given); !travels) return travels;
    if (is_forked(group)) return forked();
    const CollectiveCall call{given.collective,
                              static_cast<DataType>(given.datatype),
                              static_cast<RedOp>(given.redop),
                              given.count,
                              given.root,
                              given.tag,
                              static_cast<WireFormat>(given.wire)};
    PostArguments arguments{static_cast<const std::byte*>(given.input),
                            static_cast<std::byte*>(given.output), call};
    arguments.stream = given.stream;
    arguments.factor = given.factor.value_or(1);
    arguments.residual_in = given.residual_in;
    arguments.residual_out = given.residual_out;
    arguments.input_counts = given.input_counts;
    arguments.output_counts = given.output_counts;
    arguments.up_to = given.up_to;
    arguments.pair_stream = given.pair_stream;
    arguments.more = given.more;
    arguments.sizes = given.sizes;
    auto result = group->client->post(group->self, arguments);
    if (!result) return tl::unexpected(result.error());
    *work = result->get();
    return {};
  });
  return ended(group, given.more, status);
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

gw_status gw_send(gw_group* group, const void* input, uint64_t count, gw_datatype datatype,
                  uint32_t destination, uint32_t tag, gw_work** work) {
  return post(group,
              {.collective = Collective::kSend,
               .input = input,
               .count = count,
               .datatype = datatype,
               .root = destination,
               .tag = tag},
              work);
}

gw_status gw_recv(gw_group* group, void* output, uint64_t count, gw_datatype datatype,
                  uint32_t source, uint32_t tag, gw_work** work) {
  return post(group,
              {.collective = Collective::kRecv,
               .output = output,
               .count = count,
               .datatype = datatype,
               .root = source,
               .tag = tag},
              work);
}

gw_status gw_all_to_all(gw_group* group, const void* input, void* output, uint64_t count,
                        gw_datatype datatype, uint32_t tag, gw_work** work) {
  return post(group,
              {.collective = Collective::kAllToAll,
               .input = input,
               .output = output,
               .count = count,
               .datatype = datatype,
               .tag = tag},
              work);
}

gw_status gw_gather(gw_group* group, const void* input, void* output, uint64_t count,
                    gw_datatype datatype, uint32_t root, uint32_t tag, gw_work** work) {
  return post(group,
              {.collective = Collective::kGather,
               .input = input,
               .output = output,
               .count = count,
               .datatype = datatype,
               .root = root,
               .tag = tag},
              work);
}

gw_status gw_scatter(gw_group* group, const void* input, void* output, uint64_t count,
                     gw_datatype datatype, uint32_t root, uint32_t tag, gw_work** work) {
  return post(group,
              {.collective = Collective::kScatter,
               .input = input,
               .output = output,
               .count = count,
               .datatype = datatype,
               .root = root,
               .tag = tag},
              work);
}

}  // extern "C"

namespace {

/// Whether the fields that say where, on which stream and by which factor are those that the call
/// takes. What it would not look at may be what its caller relies on.
Result<void> check_taken(const gw_call& call) {
  const auto collective = static_cast<Collective>(call.collective);
  const auto refuse = [&](const char* field, auto value, const char* why) -> Result<void> {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} of {} is {}: {}", field, name_of(collective), value, why));
  };
  const bool has_elements = collective != Collective::kBarrier;
  if (call.input != nullptr && (!has_elements || collective == Collective::kRecv)) {
    return refuse("input", call.input, "it reads nothing here, so input must be NULL");
  }
  if (call.output != nullptr && (!has_elements || collective == Collective::kSend)) {
    return refuse("output", call.output, "it writes nothing here, so output must be NULL");
  }
  if (call.factor != 0 && call.redop != GW_PREMUL_SUM) {
    return refuse("factor", call.factor,
                  "only a redop of GW_PREMUL_SUM multiplies, so with any other it must be 0");
  }
  if (call.stream != nullptr && call.on_stream == 0) {
    return refuse("stream", call.stream,
                  "on_stream is 0, so nobody waits for it: set on_stream to 1, or stream to NULL");
  }
  if (call.up_to != 0 && collective != Collective::kRecv) {
    return refuse("up_to", call.up_to,
                  "only a recv may get less than it has room for, so of others it must be 0");
  }
  if (call.pair_stream != 0 && !has_partner(collective)) {
    return refuse("pair_stream", call.pair_stream,
                  "only sends and recvs have streams, so of others it must be 0");
  }
  if (call.on_stream != 0 && !has_elements) {
    return refuse("on_stream", call.on_stream,
                  "it reads nothing that a stream computes, so on_stream must be 0");
  }
  if (call.count != 0 && call.input_counts != nullptr && call.output_counts != nullptr) {
    return refuse("count", call.count, "both sides have counts of their own, so count must be 0");
  }
  return {};
}

gw_status post_call(gw_group* group, const gw_call* call, bool more, gw_work** work) {
  Given given;
  given.more = more;
  const gw_status read = guarded([&]() -> Result<void> {
    if (call == nullptr) return null_argument("call");
    const auto known = read_struct(call, offsetof(gw_call, input_counts), "gw_call");
    if (!known) return tl::unexpected(known.error());
    if (known->collective < 0 || known->collective > UINT8_MAX ||
        !is_valid(static_cast<Collective>(known->collective))) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("collective is {}: it must be a gw_collective", known->collective));
    }
    if (known->on_stream > 1) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("on_stream is {}: it must be 0 or 1", known->on_stream));
    }
    if (known->has_sizes > 1 || known->reserved_sizes != 0) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("has_sizes is {} and reserved_sizes is {}: they must be 0 or 1, and 0",
                      known->has_sizes, known->reserved_sizes));
    }
    if (known->up_to > 1 || known->pair_stream >= GW_MAX_STREAMS) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("up_to is {} and pair_stream is {}: they must be 0 or 1, and below {}",
                      known->up_to, known->pair_stream, GW_MAX_STREAMS));
    }
    if (known->has_sizes == 0 && (known->input_bytes != 0 || known->output_bytes != 0)) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("input_bytes is {} and output_bytes is {}, but has_sizes is 0: set it "
                      "to 1, or leave them 0",
                      known->input_bytes, known->output_bytes));
    }
    given.collective = static_cast<Collective>(known->collective);
    const bool folds = reduces(given.collective);
    const bool has_elements = given.collective != Collective::kBarrier;
    const bool names_one = has_root(given.collective) || has_partner(given.collective);
    if ((!folds && known->redop != 0) || (!names_one && known->root != 0) ||
        (!has_elements && (known->count != 0 || known->datatype != 0))) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("redop {}, root {}, count {}, datatype {}: what {} does not take must "
                      "be 0",
                      known->redop, known->root, known->count, known->datatype,
                      name_of(given.collective)));
    }
    if (auto taken = check_taken(*known); !taken) return taken;
    if ((known->input_counts != nullptr && given.collective != Collective::kAllToAll &&
         given.collective != Collective::kScatter) ||
        (known->output_counts != nullptr && given.collective != Collective::kAllToAll &&
         given.collective != Collective::kGather)) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("input_counts and output_counts of {} must be NULL: an all-to-all has "
                      "both, a scatter the first, a gather the second",
                      name_of(given.collective)));
    }
    given.input_counts = known->input_counts;
    given.output_counts = known->output_counts;
    given.input = known->input;
    given.output = known->output;
    given.count = known->count;
    given.datatype = known->datatype;
    given.redop = known->redop;
    given.root = known->root;
    given.tag = known->tag;
    given.factor = known->factor;
    given.wire = known->wire;
    given.residual_in = known->residual_in;
    given.residual_out = known->residual_out;
    given.up_to = known->up_to == 1;
    given.pair_stream = known->pair_stream;
    if (known->on_stream == 1) given.stream = known->stream;
    if (known->has_sizes == 1) given.sizes = {known->input_bytes, known->output_bytes};
    return {};
  });
  return read == GW_OK ? post(group, given, work) : ended(group, more, read);
}

}  // namespace

extern "C" {

gw_status gw_post(gw_group* group, const gw_call* call, gw_work** work) {
  return post_call(group, call, false, work);
}

gw_status gw_post_more(gw_group* group, const gw_call* call, gw_work** work) {
  return post_call(group, call, true, work);
}

}  // extern "C"
