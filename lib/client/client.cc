// SPDX-License-Identifier: BSD-3-Clause
#include "client/client.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>

namespace gradwire::client {
namespace {

std::mutex g_registry_mutex;
std::vector<Client*>& registry() {
  static std::vector<Client*> clients;
  return clients;
}

void before_fork() { g_registry_mutex.lock(); }
void after_fork_in_parent() { g_registry_mutex.unlock(); }
void after_fork_in_child() {
  for (Client* client : registry()) client->abandon_after_fork();
  registry().clear();
  g_registry_mutex.unlock();
}

}  // namespace

void register_for_fork(Client* client) {
  static const int installed =
      ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)installed;
  const std::lock_guard lock(g_registry_mutex);
  registry().push_back(client);
}

void unregister_for_fork(Client* client) noexcept {
  const std::lock_guard lock(g_registry_mutex);
  std::erase(registry(), client);
}

void Client::abandon_after_fork() noexcept {
  forked_.store(true, std::memory_order_relaxed);
  connection_.abandon();
}

Client::~Client() {
  unregister_for_fork(this);
  leave_behind(memory_.take_leaving(), connection_.queues().take_completion_fd());
}

Result<std::shared_ptr<Client>> Client::open(const std::string& path, const OpenOptions& options) {
  const Deadline deadline = Clock::now() + options.connect_timeout;
  std::shared_ptr<Client> client(new Client(path, options));
  Connection& connection = client->connection_;
  if (auto connected = connection.connect(deadline); !connected) {
    return tl::unexpected(connected.error());
  }
  register_for_fork(client.get());
  leave_behind({}, {});

  Lock lock(client->mutex_);
  ipc::OpenRequest body;
  body.abi_version = GW_ABI_VERSION;
  body.pid = static_cast<std::uint32_t>(::getpid());
  const auto request =
      connection.request(lock, ipc::MessageType::kOpen, ipc::bytes_of(body), deadline);
  if (!request) return tl::unexpected(request.error());
  if (auto opened = client->finish_open(std::move((*request)->reply)); !opened) {
    return fail(opened.error().code,
                fmt::format("the daemon at {}: {}", path, opened.error().message));
  }
  return client;
}

Result<void> Client::finish_open(ipc::Message reply) {
  const auto body = ipc::body_as<ipc::OpenReply>(reply.body);
  if (!body || reply.fds.size() != 3) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("the daemon's answer to 'open' has {} bytes and {} descriptors, and this "
                    "library expects {} and 3: install the library and the daemon of one release",
                    reply.body.size(), reply.fds.size(), sizeof(ipc::OpenReply)));
  }
  open_reply_ = *body;
  return connection_.queues().open(reply.fds, body->queue_region_bytes);
}

void Client::close() {
  const Lock lock(mutex_);
  connection_.send_and_forget(ipc::MessageType::kClose, {});
  connection_.die(ErrorCode::kUnavailable, "this client was closed");
}

Counters Client::counters(std::uint64_t* staging_bytes) {
  const Lock lock(mutex_);
  *staging_bytes = memory_.staging_bytes();
  return counters_;
}

Result<int> Client::completion_fd() {
  const Lock lock(mutex_);
  if (auto alive = connection_.check_alive(); !alive) return tl::unexpected(alive.error());
  CompletionPoll& poll = connection_.poll();
  if (poll.is_open()) {
    connection_.drain_for_poller();
    return poll.fd();
  }
  if (auto opened = connection_.open_poll(); !opened) return tl::unexpected(opened.error());
  works_.choose_sources();
  connection_.drain_completions();
  return poll.fd();
}

Result<ipc::RankInfo> Client::describe(const JobWants& wants) {
  Lock lock(mutex_);
  const Deadline deadline = Clock::now() + options_.request_timeout;
  const auto request =
      connection_.request(lock, ipc::MessageType::kDescribe, wants.body(), deadline);
  if (!request) return tl::unexpected(request.error());
  const auto info = ipc::body_as<ipc::RankInfo>((*request)->reply.body);
  if (!info || info->magic != ipc::RankInfo::kMagic) {
    return fail(ErrorCode::kInternal,
                fmt::format("the daemon at {} described itself in {} bytes that are no rank info: "
                            "install the library and the daemon of one release",
                            connection_.path(), (*request)->reply.body.size()));
  }
  if (auto says = wants.check(*info); !says) return tl::unexpected(says.error());
  return *info;
}

Result<std::unique_ptr<gw_memory>> Client::allocate(std::uint64_t bytes) {
  if (bytes == 0 || bytes > (std::uint64_t{1} << 48)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} bytes of shared memory were asked for: it must be 1 to 2^48", bytes));
  }
  Lock lock(mutex_);
  auto mapping = memory_.allocate(lock, bytes);
  if (!mapping) return tl::unexpected(mapping.error());
  auto memory = std::make_unique<gw_memory>();
  memory->client = shared_from_this();
  memory->handle = (*mapping)->handle;
  memory->mapping = std::move(*mapping);
  return memory;
}

Result<void> Client::free(gw_memory& memory) {
  Lock lock(mutex_);
  connection_.drain_completions();
  if (memory.mapping != nullptr) {
    const Mapping& mapping = *memory.mapping;
    if (mapping.users > 0) {
      return fail(
          ErrorCode::kBusy,
          fmt::format("{} unfinished op{} the {} bytes of shared memory at {}: wait for {} first",
                      mapping.users, mapping.users == 1 ? " uses" : "s use", mapping.bytes,
                      fmt::ptr(mapping.address), mapping.users == 1 ? "it" : "them"));
    }
    // From here on no new op can use it, whatever the daemon answers.
    memory_.withdraw(mapping);
    // Memory on a GPU must be closed here before the daemon frees it.
    if (mapping.on_gpu != nullptr) memory.mapping.reset();
  }
  if (!connection_.dead()) {
    const Deadline deadline = Clock::now() + options_.request_timeout;
    if (memory.free_request == nullptr) {
      ipc::FreeRequest body;
      body.memory = memory.handle;
      auto request =
          connection_.begin_request(lock, ipc::MessageType::kFree, ipc::bytes_of(body), deadline);
      if (request) memory.free_request = *request;
      if (!request && !connection_.dead()) return tl::unexpected(request.error());
    }
    if (memory.free_request != nullptr) {
      auto done = connection_.await_request(lock, memory.free_request, deadline, false);
      if (!done && done.error().code == ErrorCode::kTimedOut && !connection_.dead()) return done;
      // After any other refusal the daemon does not have the memory, so there is nothing to wait
      // for.
    }
  }
  memory.mapping.reset();
  return {};
}

bool Client::on_completion(const ipc::CompletionEntry& entry) {
  gw_work* const work = works_.posted(entry.request_id);
  if (work == nullptr) return false;
  const bool known = entry.status <= static_cast<std::uint32_t>(ErrorCode::kInternal);
  const ErrorCode code = known ? static_cast<ErrorCode>(entry.status) : ErrorCode::kInternal;
  if (code == ErrorCode::kOk && work->up_to && entry.bytes > work->extent.output) {
    works_.finish(*work, ErrorCode::kInternal,
                  fmt::format("the daemon says that {} bytes came to a receive with room for {}",
                              entry.bytes, work->extent.output),
                  0);
    return true;
  }
  if (code == ErrorCode::kOk && has_partner(work->call.collective)) {
    work->moved_bytes =
        work->up_to ? entry.bytes : std::max(work->extent.input, work->extent.output);
  }
  works_.finish(*work, code, entry.text, entry.op_seq);
  return true;
}

void Client::on_group_aborted(const ipc::GroupAbortedEvent& event) {
  const auto it = groups_.find(event.group_handle);
  if (it == groups_.end()) return;
  const std::shared_ptr<gw_group> group = it->second;
  works_.mark_aborted(*group, ipc::text_of(event.text));
  held_.fail(*group, ErrorCode::kAborted, group->abort_text);
}

void Client::on_death(ErrorCode code, const std::string& text) {
  held_.drop_all();
  works_.fail_all(code, text);
  groups_.clear();
}

void Client::advance_streams() {
  if (held_.any() || memory_.has_leaving()) {
    memory_.take_back_leaving();
    held_.advance();
  }
}

}  // namespace gradwire::client
