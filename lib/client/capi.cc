// SPDX-License-Identifier: BSD-3-Clause
// The C interface: checks what C callers pass, keeps exceptions inside, keeps the last error.
#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <new>

#include "client/client.h"
#include "client/gradwire.h"
#include "client/version.h"

using namespace gradwire;
using client::Client;

struct gw_client {
  std::shared_ptr<Client> client;
};

static_assert(GW_RANK_INFO_BYTES == sizeof(ipc::RankInfo));
static_assert(GW_MAX_RANKS == kMaxRanks && GW_MAX_MEMBERS == kMaxMembers);
static_assert(GW_MAX_OUTSTANDING <= ipc::kCommandEntries);
static_assert(GW_MAX_OUTSTANDING <= ipc::kCompletionEntries);
static_assert(GW_INTERNAL == static_cast<int>(ErrorCode::kInternal));
static_assert(GW_ABORTED == static_cast<int>(ErrorCode::kAborted));
static_assert(GW_UINT8 == static_cast<int>(DataType::kUint8));
static_assert(GW_BFLOAT16 == static_cast<int>(DataType::kBfloat16));
static_assert(GW_PROD == static_cast<int>(RedOp::kProd));
static_assert(GW_BXOR == static_cast<int>(RedOp::kBxor));

namespace {

constexpr std::uint32_t kMaxTimeoutMs = 3'600'000;

/// A plain array, because reporting that memory is short must not need memory.
thread_local char last_error[1024];

gw_status report(ErrorCode code, std::string_view text) noexcept {
  const std::size_t size = std::min(text.size(), sizeof(last_error) - 1);
  std::memcpy(last_error, text.data(), size);
  last_error[size] = '\0';
  return static_cast<gw_status>(code);
}

gw_status report(const Error& error) noexcept { return report(error.code, error.message); }

/// Runs `body`, which returns Result<void>, and turns its result, or an exception, into a status.
template <class Body>
gw_status guarded(Body body) noexcept {
  try {
    const Result<void> result = body();
    return result ? GW_OK : report(result.error());
  } catch (const std::bad_alloc&) {
    return report(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& exception) {
    return report(ErrorCode::kInternal, exception.what());
  } catch (...) {
    return report(ErrorCode::kInternal, "an exception without a text");
  }
}

tl::unexpected<Error> null_argument(const char* name) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{} is NULL", name));
}

tl::unexpected<Error> forked() {
  return fail(ErrorCode::kUnavailable,
              "this handle was opened by the parent process before fork(): open your own");
}

/// Copies the caller's struct, which may be longer or shorter than this library's, into this
/// library's.
/// @param first_bytes  size of the struct in the first version of the interface.
template <class T>
Result<T> read_struct(const T* given, std::size_t first_bytes, const char* name) {
  T known{};
  if (given == nullptr) return known;
  if (given->struct_bytes < first_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}.struct_bytes is {}: set it to sizeof({})", name,
                            given->struct_bytes, name));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < given->struct_bytes; ++i) {
    if (bytes[i] != 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} sets a field that this library, gradwire {}, does not know: "
                              "leave it 0, or install a newer one",
                              name, GRADWIRE_VERSION));
    }
  }
  std::memcpy(&known, given, std::min<std::size_t>(sizeof(T), given->struct_bytes));
  return known;
}

template <class T>
Result<void> write_struct(T value, T* target, const char* name) {
  if (target == nullptr) return null_argument(name);
  const std::uint32_t bytes = target->struct_bytes;
  if (bytes < sizeof(std::uint32_t)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}.struct_bytes is {}: set it to sizeof({})", name, bytes, name));
  }
  value.struct_bytes = bytes;
  std::memcpy(target, &value, std::min<std::size_t>(sizeof(T), bytes));
  return {};
}

Result<std::uint32_t> bounded(std::uint32_t value, std::uint32_t otherwise, std::uint32_t most,
                              const char* name) {
  if (value == 0) return otherwise;
  if (value > most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is {}: at most {}", name, value, most));
  }
  return value;
}

Result<client::OpenOptions> read_options(const gw_open_options* given) {
  const auto known = read_struct(given, sizeof(gw_open_options), "gw_open_options");
  if (!known) return tl::unexpected(known.error());
  const auto connect =
      bounded(known->connect_timeout_ms, 5000, kMaxTimeoutMs, "connect_timeout_ms");
  const auto request =
      bounded(known->request_timeout_ms, 10000, kMaxTimeoutMs, "request_timeout_ms");
  const auto spin = bounded(known->spin_us, 20, 1'000'000, "spin_us");
  for (const auto* value : {&connect, &request, &spin}) {
    if (!*value) return tl::unexpected(value->error());
  }
  client::OpenOptions options;
  options.connect_timeout = std::chrono::milliseconds(*connect);
  options.request_timeout = std::chrono::milliseconds(*request);
  options.spin = std::chrono::microseconds(*spin);
  if (known->staging_cache_bytes != 0) options.staging_cache_bytes = known->staging_cache_bytes;
  return options;
}

bool is_forked(const gw_client* handle) noexcept { return handle->client->is_forked(); }
template <class Handle>
bool is_forked(const Handle* handle) noexcept {
  return handle->client->is_forked();
}

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

uint32_t gw_abi_version(void) { return GW_ABI_VERSION; }

const char* gw_version(void) { return GRADWIRE_VERSION; }

const char* gw_status_name(gw_status status) {
  static constexpr const char* kNames[] = {"GW_OK",
                                           "GW_INVALID_ARGUMENT",
                                           "GW_NOT_FOUND",
                                           "GW_PERMISSION",
                                           "GW_BUSY",
                                           "GW_TIMED_OUT",
                                           "GW_ABORTED",
                                           "GW_UNAVAILABLE",
                                           "GW_RESOURCE_EXHAUSTED",
                                           "GW_MISMATCH",
                                           "GW_UNSUPPORTED",
                                           "GW_SYSTEM",
                                           "GW_INTERNAL"};
  const auto index = static_cast<unsigned>(status);
  return index < std::size(kNames) ? kNames[index] : "gw_status?";
}

const char* gw_last_error(void) { return last_error; }

gw_status gw_open(const char* socket_path, const gw_open_options* options, gw_client** handle) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    auto known = read_options(options);
    if (!known) return tl::unexpected(known.error());
    auto opened = Client::open(client::resolve_socket_path(socket_path), *known);
    if (!opened) return tl::unexpected(opened.error());
    *handle = new gw_client{std::move(*opened)};
    return {};
  });
}

void gw_close(gw_client* handle) {
  if (handle == nullptr || is_forked(handle)) return;
  guarded([&]() -> Result<void> {
    handle->client->close();
    delete handle;
    return {};
  });
}

gw_status gw_client_get_info(const gw_client* handle, gw_client_info* info) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    if (is_forked(handle)) return forked();
    const ipc::OpenReply& reply = handle->client->open_reply();
    gw_client_info value{};
    value.client_id = reply.client_id;
    value.incarnation = reply.incarnation;
    value.lanes = reply.lanes;
    value.max_payload_bytes = reply.max_payload_bytes;
    value.numa_node = reply.numa_node;
    return write_struct(value, info, "gw_client_info");
  });
}

gw_status gw_client_get_counters(const gw_client* handle, gw_counters* counters) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    if (is_forked(handle)) return forked();
    gw_counters value{};
    const client::Counters known = handle->client->counters(&value.staging_bytes);
    value.ops_posted = known.ops_posted;
    value.ops_done = known.ops_done;
    value.ops_failed = known.ops_failed;
    value.copies = known.copies;
    value.copied_bytes = known.copied_bytes;
    value.sleeps = known.sleeps;
    value.doorbells = known.doorbells;
    return write_struct(value, counters, "gw_counters");
  });
}

gw_status gw_client_get_completion_fd(gw_client* handle, int* fd) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    if (fd == nullptr) return null_argument("fd");
    if (is_forked(handle)) return forked();
    const auto result = handle->client->completion_fd();
    if (!result) return tl::unexpected(result.error());
    *fd = *result;
    return {};
  });
}

gw_status gw_client_describe(gw_client* handle, void* info, size_t info_bytes) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    if (info == nullptr) return null_argument("info");
    if (info_bytes < GW_RANK_INFO_BYTES) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("info_bytes is {}: it must be at least GW_RANK_INFO_BYTES, {}",
                              info_bytes, GW_RANK_INFO_BYTES));
    }
    if (is_forked(handle)) return forked();
    const auto result = handle->client->describe();
    if (!result) return tl::unexpected(result.error());
    std::memcpy(info, &*result, sizeof(*result));
    return {};
  });
}

gw_status gw_daemon_status(const char* socket_path, uint32_t timeout_ms, char* text,
                           size_t text_bytes, size_t* needed_bytes) {
  return guarded([&]() -> Result<void> {
    if (needed_bytes == nullptr) return null_argument("needed_bytes");
    if (text == nullptr && text_bytes > 0) return null_argument("text");
    const auto timeout = bounded(timeout_ms, 5000, kMaxTimeoutMs, "timeout_ms");
    if (!timeout) return tl::unexpected(timeout.error());
    const auto status =
        client::daemon_status(client::resolve_socket_path(socket_path),
                              client::Clock::now() + std::chrono::milliseconds(*timeout));
    if (!status) return tl::unexpected(status.error());
    *needed_bytes = status->size() + 1;
    if (text_bytes < *needed_bytes) {
      return fail(
          ErrorCode::kResourceExhausted,
          fmt::format(
              "the status has {} bytes with its NUL, and text_bytes is {}: call again with more",
              *needed_bytes, text_bytes));
    }
    std::memcpy(text, status->c_str(), *needed_bytes);
    return {};
  });
}

gw_status gw_memory_alloc(gw_client* handle, uint64_t bytes, gw_memory** memory) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    if (memory == nullptr) return null_argument("memory");
    if (is_forked(handle)) return forked();
    auto result = handle->client->allocate(bytes);
    if (!result) return tl::unexpected(result.error());
    *memory = result->release();
    return {};
  });
}

// A handle on GPU memory has no mapping any more after freeing it timed out.
void* gw_memory_address(const gw_memory* memory) {
  return memory == nullptr || memory->mapping == nullptr ? nullptr : memory->mapping->address;
}

uint64_t gw_memory_bytes(const gw_memory* memory) {
  return memory == nullptr || memory->mapping == nullptr ? 0 : memory->mapping->bytes;
}

int32_t gw_memory_numa_node(const gw_memory* memory) {
  return memory == nullptr || memory->mapping == nullptr ? -1 : memory->mapping->numa_node;
}

int32_t gw_memory_device(const gw_memory* memory) {
  if (memory == nullptr || memory->mapping == nullptr || memory->mapping->on_gpu == nullptr) {
    return -1;
  }
  return memory->mapping->on_gpu->device().ordinal();
}

gw_status gw_memory_free(gw_memory* memory) {
  if (memory == nullptr || is_forked(memory)) return GW_OK;
  return guarded([&]() -> Result<void> {
    auto result = memory->client->free(*memory);
    if (result) delete memory;
    return result;
  });
}

gw_status gw_group_join(gw_client* handle, const gw_group_config* config, gw_group** group) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    if (config == nullptr) return null_argument("config");
    if (group == nullptr) return null_argument("group");
    if (is_forked(handle)) return forked();
    const auto given = read_struct(config, sizeof(gw_group_config), "gw_group_config");
    if (!given) return tl::unexpected(given.error());
    if (given->reserved != 0) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("gw_group_config.reserved is {}: gradwire {} has no use for it: set it to 0",
                      given->reserved, GRADWIRE_VERSION));
    }
    if (given->rank_infos == nullptr) return null_argument("rank_infos");
    if (given->rank_infos_bytes != std::uint64_t{given->nranks} * GW_RANK_INFO_BYTES) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "rank_infos_bytes is {}: for nranks = {} it must be nranks x GW_RANK_INFO_BYTES, {}",
              given->rank_infos_bytes, given->nranks,
              std::uint64_t{given->nranks} * GW_RANK_INFO_BYTES));
    }
    const auto timeout = bounded(given->timeout_ms, 30000, kMaxTimeoutMs, "timeout_ms");
    if (!timeout) return tl::unexpected(timeout.error());
    // Copied, because the caller's bytes need not be aligned like the struct.
    std::vector<ipc::RankInfo> infos(given->nranks);
    if (!infos.empty()) {
      std::memcpy(infos.data(), given->rank_infos, infos.size() * sizeof(ipc::RankInfo));
    }
    client::GroupConfig known;
    known.key = GroupKey{given->group_id, given->epoch};
    known.rank = given->rank;
    known.nranks = given->nranks;
    known.member = given->member;
    known.member_count = given->member_count == 0 ? std::uint16_t{1} : given->member_count;
    known.timeout = std::chrono::milliseconds(*timeout);
    known.rank_infos = infos;
    auto result = handle->client->join(known);
    if (!result) return tl::unexpected(result.error());
    (*result)->self = *result;
    *group = result->get();
    return {};
  });
}

gw_status gw_group_leave(gw_group* group) {
  return guarded([&]() -> Result<void> {
    if (group == nullptr) return null_argument("group");
    if (is_forked(group)) return forked();
    return group->client->leave(*group);
  });
}

gw_status gw_group_abort(gw_group* group, const char* reason) {
  return guarded([&]() -> Result<void> {
    if (group == nullptr) return null_argument("group");
    if (is_forked(group)) return forked();
    return group->client->abort(*group, reason == nullptr ? "" : reason);
  });
}

gw_status gw_group_error(gw_group* group) {
  return guarded([&]() -> Result<void> {
    if (group == nullptr) return null_argument("group");
    if (is_forked(group)) return forked();
    return group->client->group_error(*group);
  });
}

void gw_group_free(gw_group* group) {
  if (group == nullptr || is_forked(group)) return;
  guarded([&]() -> Result<void> {
    const std::shared_ptr<gw_group> last = std::move(group->self);
    last->client->release(*last);
    return {};
  });
}

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
