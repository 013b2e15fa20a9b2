// SPDX-License-Identifier: BSD-3-Clause
#include "client/client.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

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

Result<std::byte*> map_shared(int fd, std::uint64_t bytes) {
  struct stat info;
  // An access beyond the end of a file raises SIGBUS, so check the size that the daemon claims.
  if (::fstat(fd, &info) != 0 || static_cast<std::uint64_t>(info.st_size) < bytes) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format(
            "the daemon sent shared memory that is smaller than the {} bytes that it announced",
            bytes));
  }
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (address == MAP_FAILED) {
    return fail(ErrorCode::kSystem,
                fmt::format("{} bytes of the daemon's shared memory cannot be mapped: {}", bytes,
                            strerror(errno)));
  }
  return static_cast<std::byte*>(address);
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
  for (ipc::UniqueFd* fd :
       {&socket_, &doorbell_, &completion_fd_, &wake_fd_, &notify_fd_, &epoll_fd_}) {
    fd->reset();
  }
}

Client::~Client() {
  unregister_for_fork(this);
  leave_behind(std::move(leaving_), std::move(completion_fd_));
  if (region_ != nullptr) ::munmap(region_, region_bytes_);
}

Result<std::shared_ptr<Client>> Client::open(const std::string& path, const OpenOptions& options) {
  const Deadline deadline = Clock::now() + options.connect_timeout;
  std::shared_ptr<Client> client(new Client(path, options));
  auto socket = connect_to_daemon(path, deadline);
  if (!socket) return tl::unexpected(socket.error());
  client->socket_ = std::move(*socket);
  client->wake_fd_ = ipc::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!client->wake_fd_) {
    return fail(ErrorCode::kSystem, fmt::format("eventfd: {}", strerror(errno)));
  }
  register_for_fork(client.get());
  leave_behind({}, {});

  Lock lock(client->mutex_);
  ipc::OpenRequest body;
  body.abi_version = GW_ABI_VERSION;
  body.pid = static_cast<std::uint32_t>(::getpid());
  auto request =
      client->begin_request(lock, ipc::MessageType::kOpen, ipc::bytes_of(body), deadline);
  if (!request) return tl::unexpected(request.error());
  if (auto done = client->await_request(lock, *request, deadline, true); !done) {
    return tl::unexpected(done.error());
  }
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
  auto address = map_shared(reply.fds[0].get(), body->queue_region_bytes);
  if (!address) return tl::unexpected(address.error());
  ipc::QueueRegion* region = ipc::open_queue_region(*address, body->queue_region_bytes);
  if (region == nullptr) {
    ::munmap(*address, body->queue_region_bytes);
    return fail(ErrorCode::kUnsupported,
                fmt::format("this library does not know the layout of the daemon's queues, {} "
                            "bytes: install the library and the daemon of one release",
                            body->queue_region_bytes));
  }
  region_ = region;
  region_bytes_ = body->queue_region_bytes;
  queue_ = ipc::ClientQueue(region_);
  doorbell_ = std::move(reply.fds[1]);
  completion_fd_ = std::move(reply.fds[2]);
  for (std::uint16_t i = 0; i < GW_MAX_TRANSFERS; ++i) {
    free_transfer_slots_.push_back(static_cast<std::uint16_t>(kSlots - 1 - i));
  }
  for (std::uint16_t i = 0; i < GW_MAX_OUTSTANDING; ++i) {
    free_slots_.push_back(static_cast<std::uint16_t>(GW_MAX_OUTSTANDING - 1 - i));
  }
  in_flight_.reserve(kSlots);
  return {};
}

void Client::close() {
  const Lock lock(mutex_);
  send_and_forget(ipc::MessageType::kClose, {});
  die(ErrorCode::kUnavailable, "this client was closed");
}

Counters Client::counters(std::uint64_t* staging_bytes) {
  const Lock lock(mutex_);
  *staging_bytes = staging_.total_bytes();
  return counters_;
}

Result<int> Client::completion_fd() {
  const Lock lock(mutex_);
  if (auto alive = check_alive(); !alive) return tl::unexpected(alive.error());
  if (epoll_fd_) {
    look_for_poller();
    return epoll_fd_.get();
  }
  ipc::UniqueFd notify(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ipc::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {notify.get(), completion_fd_.get(), socket_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return fail(ErrorCode::kSystem, fmt::format("epoll_ctl: {}", strerror(errno)));
    }
  }
  notify_fd_ = std::move(notify);
  epoll_fd_ = std::move(epoll);
  if (unreported_ > 0) ::eventfd_write(notify_fd_.get(), 1);
  sees_completions_ = sees_messages_ = true;
  choose_sources();
  drain_completions();
  return epoll_fd_.get();
}

Result<ipc::RankInfo> Client::describe() {
  Lock lock(mutex_);
  const Deadline deadline = Clock::now() + options_.request_timeout;
  auto request = begin_request(lock, ipc::MessageType::kDescribe, {}, deadline);
  if (!request) return tl::unexpected(request.error());
  if (auto done = await_request(lock, *request, deadline, true); !done) {
    return tl::unexpected(done.error());
  }
  const auto info = ipc::body_as<ipc::RankInfo>((*request)->reply.body);
  if (!info || info->magic != ipc::RankInfo::kMagic) {
    return fail(ErrorCode::kInternal,
                fmt::format("the daemon at {} described itself in {} bytes that are no rank info: "
                            "install the library and the daemon of one release",
                            path_, (*request)->reply.body.size()));
  }
  return *info;
}

Result<std::shared_ptr<Mapping>> Client::open_on_gpu(const ipc::CudaAllocateReply& reply) {
  gpu::CuUuid uuid;
  gpu::CuIpcHandle handle;
  std::memcpy(uuid.bytes, reply.device_uuid, sizeof uuid.bytes);
  std::memcpy(handle.bytes, reply.handle, sizeof handle.bytes);
  if (gpu_ == nullptr || gpu_->uuid() != uuid) {
    auto device = gpu::Device::find(uuid);
    if (!device) return tl::unexpected(device.error());
    gpu_ = std::move(*device);
  }
  auto memory = gpu_->import_memory(handle, reply.memory.bytes);
  if (!memory) return tl::unexpected(memory.error());
  return std::make_shared<Mapping>(std::move(*memory), reply.memory.bytes, reply.memory.memory,
                                   reply.memory.numa_node);
}

Result<std::shared_ptr<Mapping>> Client::map_reply(ipc::Message& reply) {
  if (const auto on_gpu = ipc::body_as<ipc::CudaAllocateReply>(reply.body);
      on_gpu && on_gpu->memory.memory != 0 && on_gpu->memory.bytes != 0) {
    auto mapping = open_on_gpu(*on_gpu);
    if (mapping) return mapping;
    forget_memory(on_gpu->memory.memory);
    return fail(mapping.error().code,
                "the daemon's gradient memory is on a GPU and cannot be opened here: " +
                    mapping.error().message);
  }
  const auto body = ipc::body_as<ipc::AllocateReply>(reply.body);
  if (!body || reply.fds.size() != 1 || body->memory == 0 || body->bytes == 0) {
    return fail(ErrorCode::kInternal,
                "the daemon's answer to 'allocate' makes no sense: it needs one descriptor, a "
                "region and a size");
  }
  auto address = map_shared(reply.fds[0].get(), body->bytes);
  if (!address) {
    forget_memory(body->memory);
    return tl::unexpected(address.error());
  }
  return std::make_shared<Mapping>(*address, body->bytes, body->memory, body->numa_node);
}

Result<std::unique_ptr<gw_memory>> Client::allocate(std::uint64_t bytes) {
  if (bytes == 0 || bytes > (std::uint64_t{1} << 48)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} bytes of shared memory were asked for: it must be 1 to 2^48", bytes));
  }
  Lock lock(mutex_);
  auto mapping = allocate_mapping(lock, bytes);
  if (!mapping && mapping.error().code == ErrorCode::kResourceExhausted) {
    // What is kept to copy later ops through is of the same memory.
    auto unused = staging_.drop_cache();
    if (!unused.empty()) {
      for (auto& piece : unused) forget_mapping(std::move(piece));
      mapping = allocate_mapping(lock, bytes);
    }
  }
  if (!mapping) return tl::unexpected(mapping.error());
  auto memory = std::make_unique<gw_memory>();
  memory->client = shared_from_this();
  memory->mapping = *mapping;
  memory->handle = (*mapping)->handle;
  shared_memory_[reinterpret_cast<std::uintptr_t>((*mapping)->address)] = std::move(*mapping);
  return memory;
}

Result<void> Client::free(gw_memory& memory) {
  Lock lock(mutex_);
  drain_completions();
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
    shared_memory_.erase(reinterpret_cast<std::uintptr_t>(mapping.address));
    // Memory on a GPU must be closed here before the daemon frees it.
    if (mapping.on_gpu != nullptr) memory.mapping.reset();
  }
  if (!dead_) {
    const Deadline deadline = Clock::now() + options_.request_timeout;
    if (memory.free_request == nullptr) {
      ipc::FreeRequest body;
      body.memory = memory.handle;
      auto request = begin_request(lock, ipc::MessageType::kFree, ipc::bytes_of(body), deadline);
      if (request) memory.free_request = *request;
      if (!request && !dead_) return tl::unexpected(request.error());
    }
    if (memory.free_request != nullptr) {
      auto done = await_request(lock, memory.free_request, deadline, false);
      if (!done && done.error().code == ErrorCode::kTimedOut && !dead_) return done;
      // After any other refusal the daemon does not have the memory, so there is nothing to wait
      // for.
    }
  }
  memory.mapping.reset();
  return {};
}

}  // namespace gradwire::client
