// SPDX-License-Identifier: BSD-3-Clause
// The control socket with everything behind it but lanes: clients connect to a real server and
// send whole, cut and senseless messages, with and without descriptors, while lanes (played here)
// form, abort and close groups. Every reply must be a message of the protocol. When all clients
// are gone, everything that they held must be freed.
//
// The input is a list of actions, a byte each and then their fields.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "control/manager.h"
#include "fuzz/input.h"
#include "ipc/control_server.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;
using namespace gradwire::control;
using ipc::MessageType;

constexpr std::size_t kSockets = 4;
std::unique_ptr<ipc::ControlServer> server;
std::string socket_path;
std::chrono::seconds rested{0};  ///< so that a user has its share again in each input
int null_fd = -1;

/// Lanes that answer at once, and say of groups what the input says.
class PlayedLanes final : public LaneControl {
 public:
  ~PlayedLanes() override { FUZZ_CHECK(plans.empty()); }
  std::uint8_t lanes() const override { return 2; }
  std::span<const LocalAddress> addresses() const override { return local_; }
  bool send(std::uint8_t lane, command::Request* request) override {
    if (request->type == command::RequestType::kAddGroup) groups.insert(request->group_handle);
    const FaultSettings& faults = request->faults;
    FUZZ_CHECK(faults.drop >= 0 && faults.drop <= 1 && faults.delay >= 0 && faults.delay <= 1);
    FUZZ_CHECK(faults.reorder_frames <= FaultSettings::kMaxReorderFrames);
    command::Notice notice;
    notice.lane = lane;
    notice.request = request;
    notices.push_back(notice);
    return true;
  }
  bool next_notice(command::Notice& out) override {
    if (notices.empty()) return false;
    out = notices.front();
    notices.pop_front();
    return true;
  }
  Resolution resolve(std::uint16_t, const wire::IpAddress& ip, Asking) override {
    if (ip.family != 4) return {ResolveState::kFailed, {}, "no such family"};
    if (ip.bytes[3] == 9) return {};
    return {ResolveState::kResolved, {2, 0, 0, 0, 0, ip.bytes[3]}, {}};
  }
  Result<command::GroupPlan*> create_plan(std::uint64_t handle,
                                          const PlanRequest& request) override {
    FUZZ_CHECK(request.nranks >= 1 && request.rank < request.nranks);
    FUZZ_CHECK(request.lanes >= 1 && request.lanes <= lanes());
    FUZZ_CHECK((request.nranks > 1) == !request.downstream.empty());
    FUZZ_CHECK((request.nranks > 1) == !request.upstream.empty());
    auto* plan = new command::GroupPlan;
    plan->group_handle = handle;
    plan->shards.resize(request.lanes);
    plans.insert(plan);
    return plan;
  }
  void destroy_plan(command::GroupPlan* plan) override {
    FUZZ_CHECK(plans.erase(plan) == 1);
    delete plan;
  }

  void say(command::NoticeType type, std::uint64_t handle, std::uint8_t lane,
           const AbortReason& reason = {}) {
    command::Notice notice;
    notice.type = type;
    notice.lane = lane;
    notice.group_handle = handle;
    notice.reason = reason;
    notices.push_back(notice);
  }

  std::deque<command::Notice> notices;
  std::set<std::uint64_t> groups;  // that the lanes ever had
  std::set<command::GroupPlan*> plans;

 private:
  std::vector<LocalAddress> local_ = {{0, *wire::parse_ip("10.0.0.1"), 24}};
};

/// Host memory that must be registered before use.
class PlayedMemory final : public ClientMemory {
 public:
  ~PlayedMemory() override { FUZZ_CHECK(registered.empty()); }
  bool is_registered() const override { return true; }
  Result<void> register_host(std::byte* address, std::uint64_t) override {
    FUZZ_CHECK(registered.insert(address).second);
    return {};
  }
  void unregister_host(std::byte* address) override { FUZZ_CHECK(registered.erase(address) == 1); }
  bool is_on_gpu() const override { return false; }
  Result<reduce::SharedGpuMemory> allocate_on_gpu(std::uint64_t) override { return no_gpu(); }
  void free_on_gpu(std::byte*) override { FUZZ_CHECK(false); }
  Result<reduce::SharedReadyEvent> make_ready_event() override { return no_gpu(); }

  std::set<std::byte*> registered;

 private:
  static tl::unexpected<Error> no_gpu() { return fail(ErrorCode::kUnsupported, "there is no GPU"); }
};

class PlayedReports final : public LaneReports {
 public:
  std::vector<command::PublishedStatus> published(std::uint8_t) const override { return {}; }
  status::Lane lane_status(std::uint8_t lane) const override {
    status::Lane out;
    out.lcore = lane + 1u;
    return out;
  }
  std::vector<status::Port> ports_status() const override { return {}; }
  std::vector<lane::TraceEvent> trace(std::uint8_t) const override { return {}; }
  std::vector<ReduceTotal> reduce_totals() const override { return {}; }
  collective::ShardCounters shard_totals(std::uint8_t) const override { return {}; }
  std::vector<PortFaults> port_faults() const override { return {{"net_fuzz0", {}}}; }
  const port::FaultCounters& fault_counters(std::uint16_t, std::uint8_t) const override {
    return fault_counts_;
  }

 private:
  port::FaultCounters fault_counts_;
};

ManagerOptions manager_options() {
  ManagerOptions options;
  options.daemon.version = "fuzz";
  options.daemon.incarnation = 100;
  options.daemon.max_payload_bytes = 8192;
  options.daemon.base_udp_port = 18515;
  options.limits.clients = 3;
  options.limits.bytes_per_client = 64 * 1024;
  options.limits.regions_per_client = 4;
  options.limits.groups = 3;
  options.limits.groups_per_client = 2;
  options.pages = ipc::PageKind::kOrdinaryForTests;
  return options;
}

ipc::RankInfo rank_info(std::size_t rank) {
  DaemonInfo daemon = manager_options().daemon;
  daemon.incarnation = 100 + rank;
  wire::IpAddress ip{.family = 4, .bytes = {10, 0, 0, static_cast<std::uint8_t>(rank + 1)}};
  const std::vector<LocalAddress> addresses = {{0, ip, 24}};
  ipc::RankInfo info = make_rank_info(daemon, 2, addresses);
  info.secret = secret_for(daemon.secret, ::geteuid());
  info.checksum = checksum_of(info);
  return info;
}

class Run {
 public:
  explicit Run(Input& input) : input_(input) {
    server->set_callbacks(
        {[this](ipc::ConnectionId id, const ipc::PeerCredentials& peer,
                const ipc::Message& message) { manager_->on_message(id, peer, message, now_); },
         [this](ipc::ConnectionId id) { manager_->on_hangup(id, now_); }});
    connect(0);
  }

  void act() {
    const std::size_t socket = input_.pick(kSockets);
    switch (input_.pick(14)) {
      case 0:
        return connect(socket);
      case 1:
        sockets_[socket].reset();
        return round();
      case 2:
        return message(socket, MessageType::kOpen, ipc::OpenRequest{});
      case 3:
        return message(socket, MessageType::kAllocate,
                       ipc::AllocateRequest{input_.pick(8) != 0 ? input_.u16() : input_.u64()});
      case 4:
        return message(socket, MessageType::kFree, ipc::FreeRequest{input_.u8(), 0});
      case 5:
      case 6:
        return join(socket);
      case 7:
        return message(socket, MessageType::kLeave, ipc::GroupRequest{handle()});
      case 8: {
        ipc::AbortRequest abort;
        abort.group_handle = handle();
        const auto text = input_.bytes(input_.u8() % sizeof abort.text);
        std::memcpy(abort.text, text.data(), text.size());
        return message(socket, MessageType::kAbort, abort);
      }
      case 9:
        return message(socket, input_.pick(2) != 0 ? MessageType::kStatus : MessageType::kDescribe,
                       std::span<const std::byte>());
      case 10:
        return input_.pick(4) != 0 ? any_message(socket) : inject(socket);
      case 11:
        return raw(socket);
      case 12:
        return lanes_say();
      default:
        now_ += static_cast<TimeNs>(input_.u8()) << input_.pick(36);
        if (input_.pick(64) == 63) manager_->begin_stop(now_);
        return round();
    }
  }

  void finish() {
    for (auto& socket : sockets_) socket.reset();
    for (int i = 0; i < 8; ++i) round();
    FUZZ_CHECK(server->connections() == 0 && manager_->client_count() == 0);
    FUZZ_CHECK(manager_->group_count() == 0 && lanes_.plans.empty() && memory_.registered.empty());
    server->set_callbacks({});
  }

 private:
  std::uint64_t handle() { return input_.pick(16) != 0 ? input_.pick(5) : input_.u64(); }

  void connect(std::size_t i) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
    sockets_[i] =
        ipc::UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    static_cast<void>(
        ::connect(sockets_[i].get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
    round();
  }

  void round() {
    server->poll(0);
    manager_->poll(now_);
    server->poll(0);
    for (auto& socket : sockets_) {
      ipc::Message reply;
      for (int i = 0; i < 100 && socket; ++i) {
        const auto status = ipc::receive_message(socket.get(), reply);
        FUZZ_CHECK(status.has_value());
        if (*status != ipc::SocketStatus::kDone) break;
        check_reply(reply);
      }
    }
  }

  static void check_reply(const ipc::Message& reply) {
    if (reply.header.error_code != 0) {
      FUZZ_CHECK(reply.body.size() == sizeof(ipc::ErrorBody));
      FUZZ_CHECK(!ipc::error_of(reply.header, reply.body)->message.empty());
    } else if (reply.type() == MessageType::kStatus || reply.type() == MessageType::kInject) {
      const auto text = ipc::status_text(reply);
      FUZZ_CHECK(text && nlohmann::json::accept(*text));
    }
  }

  void send(std::size_t i, std::span<const std::byte> bytes, std::size_t fds) {
    if (!sockets_[i]) return;
    alignas(cmsghdr) std::byte control[CMSG_SPACE(16 * sizeof(int))] = {};
    iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fds != 0) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds * sizeof(int));
      for (std::size_t n = 0; n < fds; ++n)
        std::memcpy(CMSG_DATA(c) + n * sizeof(int), &null_fd, sizeof(int));
    }
    static_cast<void>(::sendmsg(sockets_[i].get(), &message, MSG_NOSIGNAL));
    round();
  }

  void message(std::size_t i, MessageType type, std::span<const std::byte> body) {
    ipc::MessageHeader header;
    header.type = static_cast<std::uint16_t>(type);
    header.request_id = ++request_;
    header.bytes = static_cast<std::uint32_t>(sizeof header + body.size());
    std::vector<std::byte> bytes(header.bytes);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::copy(body.begin(), body.end(), bytes.begin() + sizeof header);
    send(i, bytes, 0);
  }
  template <class T>
  void message(std::size_t i, MessageType type, const T& body) {
    message(i, type, ipc::bytes_of(body));
  }

  /// A right header before any body.
  void any_message(std::size_t i) {
    const auto type = static_cast<MessageType>(input_.pick(12));
    message(i, type, input_.bytes(input_.u8()));
  }
  void inject(std::size_t i) {
    ipc::InjectRequest request;
    const auto bytes = input_.bytes(sizeof request.faults);
    std::memcpy(&request.faults, bytes.data(), bytes.size());
    if (input_.pick(4) == 0) ipc::copy_text(request.device, "net_fuzz0");
    message(i, MessageType::kInject, request);
  }
  void raw(std::size_t i) {
    const std::size_t fds = input_.pick(8) == 0 ? input_.pick(16) : 0;
    const auto bytes = input_.bytes(input_.u16() % 4096);
    if (!bytes.empty()) send(i, bytes, fds);
  }

  void join(std::size_t i) {
    ipc::JoinRequest request;
    request.group_id = input_.pick(4);
    request.epoch = input_.pick(3);
    request.member_count = static_cast<std::uint16_t>(1 + input_.pick(2));
    request.member = static_cast<std::uint16_t>(input_.pick(request.member_count));
    std::vector<ipc::RankInfo> table(1 + input_.pick(4));
    for (std::size_t rank = 0; rank < table.size(); ++rank) table[rank] = rank_info(rank);
    const std::uint8_t change = input_.u8();
    if ((change & 1) != 0) request.rank = input_.u16();
    if ((change & 2) != 0) request.member = input_.u16();
    if ((change & 4) != 0) request.timeout_ms = input_.u32();
    if ((change & 8) != 0) request.member_count = input_.u16();
    std::vector<std::byte> body = ipc::encode_join(request, table);
    if ((change & 16) != 0) {
      const std::size_t at = input_.u16() % body.size();
      const auto bytes = input_.bytes(std::min<std::size_t>(input_.u8(), body.size() - at));
      std::copy(bytes.begin(), bytes.end(), body.begin() + static_cast<std::ptrdiff_t>(at));
    }
    message(i, MessageType::kJoin, std::span<const std::byte>(body));
  }

  void lanes_say() {
    const std::uint64_t handle = input_.pick(5);
    const auto lane = static_cast<std::uint8_t>(input_.pick(2));
    if (!lanes_.groups.contains(handle)) return;
    if (input_.pick(4) != 0) {
      lanes_.say(command::NoticeType::kGroupFormed, handle, 0);
      lanes_.say(command::NoticeType::kGroupFormed, handle, 1);
    } else {
      AbortReason reason{.code = AbortCode::kSilence, .culprit_rank = 1, .op_seq = 1};
      lanes_.say(command::NoticeType::kGroupAborted, handle, lane, reason);
    }
    round();
  }

  Input& input_;
  TimeNs now_ = 1'000'000'000'000;
  PlayedLanes lanes_;
  PlayedMemory memory_;
  PlayedReports reports_;
  std::unique_ptr<Manager> manager_ =
      std::make_unique<Manager>(manager_options(), lanes_, memory_, reports_, *server, now_);
  std::array<ipc::UniqueFd, kSockets> sockets_;
  std::uint32_t request_ = 0;
};

void remove_socket() {
  server.reset();
  ::unlink((socket_path + ".lock").c_str());
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  socket_path = "/tmp/gradwire-fuzz-" + std::to_string(::getpid()) + ".sock";
  null_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ipc::ControlServerOptions options;
  options.path = socket_path;
  options.max_connections = 3;
  options.max_queued_messages = 8;
  options.now = [] { return std::chrono::steady_clock::now() + rested; };
  auto made = ipc::ControlServer::create(options);
  FUZZ_CHECK(made.has_value() && null_fd >= 0);
  server = std::move(*made);
  std::atexit(remove_socket);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rested += std::chrono::seconds(20);
  play<Run>(data, size, 300);
  return 0;
}
