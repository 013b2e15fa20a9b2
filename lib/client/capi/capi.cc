// SPDX-License-Identifier: BSD-3-Clause
// The C interface: library, clients, memory.
#include "client/capi/capi_support.h"

using namespace gradwire;
using namespace gradwire::client;

static_assert(GW_RANK_INFO_BYTES == sizeof(ipc::RankInfo));
static_assert(GW_MAX_RANKS == kMaxRanks && GW_MAX_MEMBERS == kMaxMembers);
static_assert(GW_MAX_PROCESSES == kMaxProcesses);
static_assert(GW_MAX_OUTSTANDING == ipc::kOpCommands);
static_assert(GW_MAX_TRANSFERS == ipc::kTransferCommands);
static_assert(GW_INTERNAL == static_cast<int>(ErrorCode::kInternal));
static_assert(GW_ABORTED == static_cast<int>(ErrorCode::kAborted));
// test/words.py compares each of these.
static_assert(GW_UINT8 == static_cast<int>(DataType::kUint8));
static_assert(GW_PREMUL_SUM == static_cast<int>(RedOp::kPremulSum));
static_assert(GW_BARRIER == static_cast<int>(Collective::kBarrier));

namespace {

/// A plain array, because reporting that memory is short must not need memory.
thread_local char last_error[1024];

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

}  // namespace

namespace gradwire::client {

gw_status report(ErrorCode code, std::string_view text) noexcept {
  const std::size_t size = std::min(text.size(), sizeof(last_error) - 1);
  std::memcpy(last_error, text.data(), size);
  last_error[size] = '\0';
  return static_cast<gw_status>(code);
}

}  // namespace gradwire::client

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
  return gw_client_describe_for(handle, nullptr, info, info_bytes);
}

gw_status gw_client_describe_for(gw_client* handle, const gw_describe_options* options, void* info,
                                 size_t info_bytes) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    if (info == nullptr) return null_argument("info");
    if (info_bytes < GW_RANK_INFO_BYTES) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("info_bytes is {}: it must be at least GW_RANK_INFO_BYTES, {}",
                              info_bytes, GW_RANK_INFO_BYTES));
    }
    if (is_forked(handle)) return forked();
    const auto given = read_struct(options, sizeof(gw_describe_options), "gw_describe_options");
    if (!given) return tl::unexpected(given.error());
    const auto wants = JobWants::of(given->security, given->job_key, given->job_key_bytes);
    if (!wants) return tl::unexpected(wants.error());
    const auto result = handle->client->describe(*wants);
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

gw_status gw_flush(gw_client* client) {
  return guarded([&]() -> Result<void> {
    if (client == nullptr) return null_argument("client");
    if (is_forked(client)) return forked();
    client->client->flush();
    client->client->take_in();
    return {};
  });
}

}  // extern "C"
