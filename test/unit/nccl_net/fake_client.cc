// SPDX-License-Identifier: BSD-3-Clause
#include "fake_client.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "client/gradwire.h"

struct gw_client {};
struct gw_memory {
  std::vector<char> bytes;
};
struct gw_group {
  std::uint32_t process = 0;
  bool aborted = false;
};
struct gw_work {
  gw_group* group = nullptr;
  bool receives = false;
  std::uint32_t stream = 0;
  char* memory = nullptr;
  std::uint64_t bytes = 0;
  gw_status status = GW_OK;
  bool over = false;
};

namespace gradwire::nccl_net::fake {
namespace {

struct World {
  std::mutex mutex;
  std::uint32_t refused = UINT32_MAX;
  bool keeps_memory = false;
  std::vector<gw_work*> works;  // in the order of their posting
  std::set<gw_group*> groups;
  std::size_t memories = 0;
};
World& world() {
  static World* one = new World;
  return *one;
}

thread_local std::string g_error;

gw_status fail(gw_status status, const char* text) {
  g_error = text;
  return status;
}

bool is_of(const gw_work& work, std::uint32_t stream) {
  return !work.over && work.receives && work.stream == stream;
}

void end(gw_work& work, gw_status status) {
  work.status = status;
  work.over = true;
}

}  // namespace

void reset() {
  const std::lock_guard lock(world().mutex);
  world().refused = UINT32_MAX;
  world().keeps_memory = false;
}
void refuse_join(std::uint32_t process) {
  const std::lock_guard lock(world().mutex);
  world().refused = process;
}
void keep_memory(bool keep) {
  const std::lock_guard lock(world().mutex);
  world().keeps_memory = keep;
}

bool finish_receive(std::uint32_t stream, const std::string& bytes) {
  const std::lock_guard lock(world().mutex);
  for (gw_work* work : world().works) {
    if (!is_of(*work, stream)) continue;
    if (work->bytes < bytes.size()) return false;
    std::memcpy(work->memory, bytes.data(), bytes.size());
    work->bytes = bytes.size();
    end(*work, GW_OK);
    return true;
  }
  return false;
}
void finish_ops(std::size_t count) {
  const std::lock_guard lock(world().mutex);
  for (gw_work* work : world().works) {
    if (!work->over && count > 0) {
      end(*work, GW_OK);
      --count;
    }
  }
}
void abort_receives(std::uint32_t stream) {
  const std::lock_guard lock(world().mutex);
  for (gw_work* work : world().works) {
    if (is_of(*work, stream)) end(*work, GW_ABORTED);
  }
}
void abort_groups() {
  const std::lock_guard lock(world().mutex);
  for (gw_group* group : world().groups) group->aborted = true;
  for (gw_work* work : world().works) {
    if (!work->over) end(*work, GW_ABORTED);
  }
}

std::size_t posted() {
  const std::lock_guard lock(world().mutex);
  return static_cast<std::size_t>(std::count_if(world().works.begin(), world().works.end(),
                                                [](const gw_work* work) { return !work->over; }));
}
std::size_t groups() {
  const std::lock_guard lock(world().mutex);
  return world().groups.size();
}
std::size_t memories() {
  const std::lock_guard lock(world().mutex);
  return world().memories;
}

namespace {

gw_status post(gw_group* group, bool receives, void* memory, std::uint64_t bytes,
               std::uint32_t stream, gw_work** work) {
  const std::lock_guard lock(world().mutex);
  if (group->aborted) return fail(GW_ABORTED, "the group was aborted");
  *work = new gw_work{group, receives, stream, static_cast<char*>(memory), bytes, GW_OK, false};
  world().works.push_back(*work);
  return GW_OK;
}

}  // namespace
}  // namespace gradwire::nccl_net::fake

namespace fake = gradwire::nccl_net::fake;

extern "C" {

const char* gw_last_error(void) { return fake::g_error.c_str(); }

gw_status gw_open(const char*, const gw_open_options*, gw_client** client) {
  *client = new gw_client;
  return GW_OK;
}
void gw_close(gw_client* client) { delete client; }

gw_status gw_client_describe(gw_client*, void* info, size_t bytes) {
  std::memset(info, 0, bytes);
  return GW_OK;
}
gw_status gw_client_get_info(const gw_client*, gw_client_info* info) {
  info->incarnation = 1;
  return GW_OK;
}
gw_status gw_daemon_status(const char*, uint32_t, char* text, size_t bytes, size_t* needed) {
  const std::string status = R"({"ports": []})";
  *needed = status.size() + 1;
  if (bytes < *needed) return fake::fail(GW_RESOURCE_EXHAUSTED, "too small");
  std::memcpy(text, status.c_str(), *needed);
  return GW_OK;
}

gw_status gw_memory_alloc(gw_client*, uint64_t bytes, gw_memory** memory) {
  *memory = new gw_memory{std::vector<char>(bytes)};
  const std::lock_guard lock(fake::world().mutex);
  ++fake::world().memories;
  return GW_OK;
}
void* gw_memory_address(const gw_memory* memory) { return const_cast<char*>(memory->bytes.data()); }
int32_t gw_memory_device(const gw_memory*) { return -1; }
gw_status gw_memory_free(gw_memory* memory) {
  if (memory == nullptr) return GW_OK;
  const std::lock_guard lock(fake::world().mutex);
  if (fake::world().keeps_memory) return fake::fail(GW_BUSY, "an op uses the memory");
  --fake::world().memories;
  delete memory;
  return GW_OK;
}

gw_status gw_group_join_processes(gw_client*, const gw_processes_config* config, gw_group** group) {
  const std::lock_guard lock(fake::world().mutex);
  if (config->process == fake::world().refused) {
    return fake::fail(GW_RESOURCE_EXHAUSTED, "there is no group left");
  }
  *group = new gw_group{config->process, false};
  fake::world().groups.insert(*group);
  return GW_OK;
}
gw_status gw_group_leave(gw_group*) { return GW_OK; }
void gw_group_free(gw_group* group) {
  if (group == nullptr) return;
  const std::lock_guard lock(fake::world().mutex);
  for (gw_work* work : fake::world().works) {
    if (work->group == group && !work->over) fake::end(*work, GW_ABORTED);
  }
  fake::world().groups.erase(group);
  delete group;
}

gw_status gw_post_more(gw_group* group, const gw_call* call, gw_work** work) {
  const bool receives = call->collective == GW_RECV;
  if (call->root == group->process || call->up_to != (receives ? 1u : 0u)) {
    return fake::fail(GW_INVALID_ARGUMENT, "this is no call of a link");
  }
  void* const memory = receives ? call->output : const_cast<void*>(call->input);
  return fake::post(group, receives, memory, call->count, call->pair_stream, work);
}
gw_status gw_flush(gw_client*) { return GW_OK; }
uint64_t gw_work_bytes(const gw_work* work) { return work->status == GW_OK ? work->bytes : 0; }
gw_status gw_all_reduce(gw_group* group, const void*, void* output, uint64_t count, gw_datatype,
                        gw_redop, uint32_t, gw_work** work) {
  return fake::post(group, false, output, count, 0, work);
}
gw_status gw_test(gw_work* work, int* done) {
  const std::lock_guard lock(fake::world().mutex);
  *done = work->over ? 1 : 0;
  return work->status == GW_OK ? GW_OK : fake::fail(work->status, "the group was aborted");
}
void gw_work_free(gw_work* work) {
  if (work == nullptr) return;
  const std::lock_guard lock(fake::world().mutex);
  std::erase(fake::world().works, work);
  delete work;
}
}
