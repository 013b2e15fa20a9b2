// SPDX-License-Identifier: BSD-3-Clause
#include "fake_daemon.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "ipc/doorbell.h"
#include "ipc/join_message.h"
#include "sim/reference/collective_reference.h"

namespace gradwire::test {

using ipc::MessageType;

/// The primary context of CUDA's device 0.
struct FakeGpu {
  const gpu::CudaApi* api = nullptr;
  gpu::CuContext context = nullptr;
  std::shared_ptr<gpu::Device> device;

  FakeGpu() {
    std::string why;
    api = gpu::load_cuda(why);
    if (api == nullptr) throw std::runtime_error(why);
    if (api->primary_context_retain(&context, 0) != gpu::kCuSuccess) {
      throw std::runtime_error("no primary context");
    }
    device = gpu::Device::of_context(reinterpret_cast<std::uintptr_t>(context)).value();
  }
  ~FakeGpu() {
    device.reset();
    api->primary_context_release(0);
  }
};

FakeMemory::~FakeMemory() {
  if (gpu_ == nullptr) return;
  const gpu::CurrentContext current(*gpu_->api, gpu_->context);
  gpu_->api->mem_free(reinterpret_cast<std::uintptr_t>(address_));
}

namespace {

/// What each process gets, one after the other or all of them: see sim::output_of().
std::span<const double> factors_of(const CollectiveCall& call, const std::vector<double>& all) {
  return call.redop == RedOp::kPremulSum ? std::span(all) : std::span<const double>{};
}

std::vector<std::byte> results_of(const sim::CollectiveCall& call,
                                  const std::vector<std::vector<std::byte>>& inputs) {
  std::vector<const std::byte*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  return sim::collective_results(call, sources);
}

}  // namespace

FakeDaemon::FakeDaemon(const std::vector<std::string>& paths) {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    ipc::ControlServerOptions options;
    options.path = paths[i];
    auto server = ipc::ControlServer::create(options);
    if (!server) throw std::runtime_error(server.error().message);
    ipc::ControlCallbacks callbacks;
    callbacks.on_message = [this, i](ipc::ConnectionId connection, const ipc::PeerCredentials&,
                                     ipc::Message& message) {
      on_message({i, connection}, std::move(message));
    };
    callbacks.on_hangup = [this, i](ipc::ConnectionId connection) { on_hangup({i, connection}); };
    (*server)->set_callbacks(std::move(callbacks));
    servers_.push_back(std::move(*server));
  }
  thread_ = std::thread([this] { run(); });
}

FakeDaemon::~FakeDaemon() {
  stop_ = true;
  thread_.join();
}

void FakeDaemon::run() {
  while (!stop_) {
    for (auto& server : servers_) server->poll(0);
    bool busy = take_commands();
    for (auto& [key, group] : groups_) {
      busy |= run_ops(group);
      busy |= run_transfers(group);
    }
    if (forge_completion.exchange(false)) {
      ipc::CompletionEntry forged;
      forged.request_id = 77;
      for (auto& [place, client] : clients_) push(client, forged);
    }
    if (cut_off.exchange(false)) {
      ipc::MessageHeader header;
      header.type = static_cast<std::uint16_t>(ipc::MessageType::kCutOff);
      for (const auto& [place, client] : clients_) {
        ipc::ControlServer& server = *servers_[place.rank_index];
        server.send(place.connection, header, ipc::bytes_of(ipc::error_body("wore a hat")), {});
        server.hang_up(place.connection);
      }
    }
    if (!busy) wait_for_doorbell();
  }
}

bool FakeDaemon::take_commands() {
  if (hold_ops) return false;
  bool any = false;
  for (auto& [place, client] : clients_) {
    ipc::CommandEntry command;
    ipc::CommandExtra extra;
    while (client.queue.pop_command(command, extra) == ipc::PopResult::kEntry) {
      any = true;
      if (command.event() != 0 && !client.events.contains(command.event())) {
        complete(place, command, 0, ErrorCode::kNotFound, "no such event");
        continue;
      }
      Group* group = group_by_handle(command.group_handle);
      const auto at =
          std::find_if(group->all.begin(), group->all.end(),
                       [&where = place](const Member& member) { return member.place == where; });
      if (at->left) {
        complete(place, command, 0, ErrorCode::kNotFound, "the group is not open");
      } else if (!group->aborted.empty()) {
        complete(place, command, 0, ErrorCode::kAborted, group->aborted);
      } else if (has_partner(command.collective)) {
        at->transfers.push_back(command);
      } else {
        at->commands.push_back(command);
        at->factors.push_back(extra.factor);
      }
    }
  }
  return any;
}

bool FakeDaemon::run_ops(Group& group) {
  bool any = false;
  while (group.formed && std::all_of(group.all.begin(), group.all.end(), [](const Member& member) {
           return !member.commands.empty();
         })) {
    if (!std::all_of(group.all.begin(), group.all.end(), [this](const Member& member) {
          return is_ready(clients_.at(member.place), member.commands.front());
        })) {
      break;
    }
    std::vector<ipc::CommandEntry> commands;
    std::vector<double> factors;
    for (Member& member : group.all) {
      commands.push_back(member.commands.front());
      member.commands.pop_front();
      factors.push_back(member.factors.front());
      member.factors.pop_front();
    }
    run_op(group, commands, factors);
    any = true;
  }
  return any;
}

bool FakeDaemon::is_ready(Client& client, const ipc::CommandEntry& command) const {
  return command.event() == 0 ||
         client.events.at(command.event())->state() == gpu::Event::State::kPassed;
}

void FakeDaemon::run_op(Group& group, const std::vector<ipc::CommandEntry>& commands,
                        const std::vector<double>& factors) {
  ++group.op_seq;
  const ipc::CommandEntry& first = commands.front();
  for (std::size_t i = 1; i < commands.size(); ++i) {
    const ipc::CommandEntry& other = commands[i];
    if (other.call() == first.call()) continue;
    const std::string text =
        fmt::format("op {}: rank 0 called {}, rank {} called {}", group.op_seq,
                    text_of(first.call()).text, group.ranks[i], text_of(other.call()).text);
    for (std::size_t j = 0; j < commands.size(); ++j) {
      complete(group.all[j].place, commands[j], group.op_seq, ErrorCode::kMismatch, text);
    }
    return abort(group, text);
  }
  const CollectiveCall call = first.call();
  const auto processes = static_cast<std::uint32_t>(commands.size());
  // Whole inputs before any output is written: some are in place.
  std::vector<std::vector<std::byte>> inputs(processes);
  std::vector<CollectiveExtent> extents;
  for (std::uint32_t i = 0; i < processes; ++i) {
    extents.push_back(extent_of(call, {i, processes}).value());
    if (extents[i].input == 0) continue;
    const auto& memory = clients_.at(group.all[i].place).memories.at(commands[i].input_memory);
    const std::byte* start = memory.data() + commands[i].input_offset;
    inputs[i].assign(start, start + extents[i].input);
  }
  const sim::CollectiveCall judged{.collective = call.collective,
                                   .datatype = call.datatype,
                                   .redop = call.redop,
                                   .count = call.count,
                                   .root = call.root,
                                   .width = element_bytes(call.datatype),
                                   .nranks = group.nranks,
                                   .ranks = group.ranks,
                                   .factors = factors_of(call, factors),
                                   .wire = call.wire};
  const std::vector<std::byte> results = results_of(judged, inputs);
  for (std::uint32_t i = 0; i < processes; ++i) {
    const Place& place = group.all[i].place;
    if (extents[i].output != 0) {
      const auto& memory = clients_.at(place).memories.at(commands[i].output_memory);
      const auto result = sim::output_of(judged, results, i);
      std::memcpy(memory.data() + commands[i].output_offset, result.data(), result.size());
    }
    complete(place, commands[i], group.op_seq, ErrorCode::kOk, "");
  }
}

void FakeDaemon::complete(const Place& place, const ipc::CommandEntry& command,
                          std::uint64_t op_seq, ErrorCode code, const std::string& text,
                          std::uint64_t bytes) {
  const auto client = clients_.find(place);
  if (client == clients_.end()) return;
  ipc::CompletionEntry entry;
  entry.request_id = command.request_id;
  entry.op_seq = op_seq;
  entry.status = static_cast<std::uint32_t>(code);
  entry.bytes = bytes;
  ipc::copy_text(entry.text, text);
  push(client->second, entry);
}

void FakeDaemon::push(Client& client, const ipc::CompletionEntry& entry) {
  if (!client.queue.push_completion(entry)) throw std::logic_error("no room for a completion");
  if (client.queue.take_client_waits()) {
    const std::uint64_t one = 1;
    (void)!::send(client.completion.get(), &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void FakeDaemon::abort(Group& group, const std::string& text) {
  group.aborted = text;
  for (Member& member : group.all) {
    for (const auto& command : member.commands) {
      complete(member.place, command, 0, ErrorCode::kAborted, text);
    }
    for (const auto& command : member.transfers) {
      complete(member.place, command, 0, ErrorCode::kAborted, text);
    }
    member.commands.clear();
    member.transfers.clear();
    if (member.left || !member.joined || !clients_.contains(member.place)) continue;
    ipc::GroupAbortedEvent event;
    event.group_handle = group.handle;
    ipc::copy_text(event.text, text);
    ipc::MessageHeader header;
    header.type = static_cast<std::uint16_t>(MessageType::kGroupAborted);
    servers_[member.place.rank_index]->send(member.place.connection, header, ipc::bytes_of(event),
                                            {});
  }
}

void FakeDaemon::wait_for_doorbell() {
  std::vector<pollfd> entries;
  bool has_command = false;
  for (auto& [place, client] : clients_) {
    client.queue.set_daemon_sleeps(true);
    has_command |= client.queue.has_command();
    entries.push_back({client.doorbell.get(), POLLIN, 0});
  }
  // Short: the control sockets are not among the entries.
  ::poll(entries.data(), entries.size(), has_command && !hold_ops ? 0 : 1);
  for (auto& [place, client] : clients_) {
    client.queue.set_daemon_sleeps(false);
    std::uint64_t rings = 0;
    if (::read(client.doorbell.get(), &rings, sizeof(rings)) > 0) doorbells += rings;
  }
}

void FakeDaemon::on_hangup(const Place& place) {
  for (auto& [key, group] : groups_) {
    for (const Member& member : group.all) {
      if (member.joined && member.place == place && !member.left && group.aborted.empty()) {
        abort(group, fmt::format("a client of rank {} died", place.rank_index));
        break;
      }
    }
  }
  clients_.erase(place);
}

void FakeDaemon::open(const Place& place, const ipc::Message& message) {
  Client client;
  ipc::SharedMemoryOptions options;
  options.bytes = sizeof(ipc::QueueRegion);
  options.pages = ipc::PageKind::kOrdinaryForTests;
  auto memory = ipc::SharedMemory::create(options);
  if (!memory) return refuse(place, message.header, memory.error().code, memory.error().message);
  client.queue_memory = std::move(*memory);
  client.queue = ipc::DaemonQueue(
      ipc::create_queue_region(client.queue_memory.data(), client.queue_memory.bytes()));
  client.id = next_id_++;
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(client.queue_memory.duplicate_fd());
  client.doorbell = ipc::make_doorbell();
  fds.push_back(client.doorbell.duplicate());
  int pair[2];
  if (!client.doorbell ||
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    return refuse(place, message.header, ErrorCode::kSystem, "descriptors");
  }
  client.completion = ipc::UniqueFd(pair[0]);
  fds.emplace_back(pair[1]);
  ipc::OpenReply body;
  body.incarnation = place.rank_index + 1000;
  body.client_id = client.id;
  body.lanes = 1;
  body.max_payload_bytes = 8192;
  body.queue_region_bytes = client.queue_memory.bytes();
  clients_.emplace(place, std::move(client));
  // As the daemon does: else it hangs up once nothing was sent for some seconds.
  servers_[place.rank_index]->keep(place.connection);
  reply(place, message.header, ipc::bytes_of(body), std::move(fds));
}

void FakeDaemon::allocate(const Place& place, const ipc::Message& message) {
  if (on_gpu) return allocate_on_gpu(place, message);
  Client& client = clients_.at(place);
  ipc::SharedMemoryOptions options;
  options.bytes = ipc::body_as<ipc::AllocateRequest>(message.body)->bytes;
  options.pages = ipc::PageKind::kOrdinaryForTests;
  if (options.bytes > memory_limit - client.memory_bytes) {
    return refuse(place, message.header, ErrorCode::kResourceExhausted,
                  fmt::format("{} bytes wanted, {} are left", options.bytes,
                              memory_limit - client.memory_bytes));
  }
  auto memory = ipc::SharedMemory::create(options);
  if (!memory) return refuse(place, message.header, memory.error().code, memory.error().message);
  ipc::AllocateReply body;
  body.bytes = memory->bytes();
  body.memory = next_id_++;
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(memory->duplicate_fd());
  client.memory_bytes += body.bytes;
  client.memories.emplace(body.memory, FakeMemory(std::move(*memory)));
  reply(place, message.header, ipc::bytes_of(body), std::move(fds));
}

void FakeDaemon::allocate_on_gpu(const Place& place, const ipc::Message& message) {
  Client& client = clients_.at(place);
  if (gpu_ == nullptr) gpu_ = std::make_unique<FakeGpu>();
  constexpr std::uint64_t kUnit = gpu::Device::kExportBytes;
  const std::uint64_t bytes =
      (ipc::body_as<ipc::AllocateRequest>(message.body)->bytes + kUnit - 1) / kUnit * kUnit;
  const gpu::CurrentContext current(*gpu_->api, gpu_->context);
  gpu::CuDevicePtr address = 0;
  if (const auto got = gpu_->api->mem_alloc(&address, bytes); got != gpu::kCuSuccess) {
    return refuse(place, message.header, ErrorCode::kResourceExhausted,
                  gpu::describe(*gpu_->api, got));
  }
  auto* start = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
  gpu_->api->memset_d8(address, 0, bytes);
  ipc::CudaAllocateReply body;
  body.memory.bytes = lie == Lie::kTooLarge ? bytes + 1 : bytes;
  body.memory.memory = next_id_++;
  auto handle = gpu_->device->export_memory(start).value();
  if (lie == Lie::kBadHandle) handle.bytes[0] ^= 0xff;
  auto uuid = gpu_->device->uuid();
  if (lie == Lie::kOtherGpu) uuid.bytes[0] ^= 0xff;
  std::memcpy(body.device_uuid, uuid.bytes, sizeof body.device_uuid);
  std::memcpy(body.handle, handle.bytes, sizeof body.handle);
  client.memory_bytes += bytes;
  client.memories.emplace(body.memory.memory, FakeMemory(*gpu_, start, bytes));
  reply(place, message.header, ipc::bytes_of(body));
}

void FakeDaemon::make_event(const Place& place, const ipc::Message& message) {
  if (gpu_ == nullptr) {
    return refuse(place, message.header, ErrorCode::kUnsupported, "there is no GPU");
  }
  auto event = gpu_->device->make_event().value();
  ipc::MakeEventReply body;
  body.event = next_id_++;
  const auto handle = event->handle().value();
  std::memcpy(body.handle, handle.bytes, sizeof body.handle);
  clients_.at(place).events.emplace(body.event, std::move(event));
  reply(place, message.header, ipc::bytes_of(body));
}

}  // namespace gradwire::test
