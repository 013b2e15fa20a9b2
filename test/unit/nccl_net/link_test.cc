// SPDX-License-Identifier: BSD-3-Clause
// A link whose other process ends at any time. The other end and the daemons are played.
#include "nccl_net/link.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "fake_client.h"
#include "nccl_net/engine.h"
#include "peer.h"

namespace gradwire::nccl_net {
namespace {

constexpr std::uint32_t kBytes = 1000;

/// A connection to the plug-in, from a peer of ours.
struct Receiver {
  void* context = nullptr;
  void* listener = nullptr;
  void* comm = nullptr;
  Handle handle;
  std::unique_ptr<Peer> peer;

  /// @param before  is called before the peer comes
  explicit Receiver(const std::function<void(Receiver&)>& before = {}) {
    fake::reset();
    setenv("GRADWIRE_NCCL_ADDRESS", "127.0.0.1", 1);
    REQUIRE(net().init(&context, 0, nullptr, nullptr, nullptr) == kSuccess);
    char bytes[kHandleBytes];
    REQUIRE(net().listen(context, 0, bytes, &listener) == kSuccess);
    std::memcpy(&handle, bytes, sizeof(handle));
    if (before) before(*this);
    peer = std::make_unique<Peer>(Peer::connected_to(handle));
    auto begun = std::async(std::launch::async, [&] {
      Record open = record(RecordKind::kOpen);
      open.token = handle.listener;
      return peer->begin_as_sender(handle) && peer->say_word(open);
    });
    REQUIRE(eventually([&] { return accepts(); }));
    REQUIRE(begun.get());
    REQUIRE(net().close_listen(listener) == kSuccess);
  }
  ~Receiver() {
    if (comm != nullptr) net().close_recv(comm);
    peer->end();
    CHECK(eventually([] { return fake::groups() == 0 && fake::memories() == 0; }));
  }
  bool accepts() {
    DeviceHandle* device = nullptr;
    REQUIRE(net().accept(listener, &comm, &device) == kSuccess);
    return comm != nullptr;
  }
  void* receive(std::string& into) {
    void* request = nullptr;
    void* data = into.data();
    std::size_t bytes = into.size();
    int tag = 0;
    void* registration = nullptr;
    eventually([&] {
      CHECK(net().irecv(comm, 1, &data, &bytes, &tag, &registration, nullptr, &request) ==
            kSuccess);
      return request != nullptr;
    });
    return request;
  }
  /// Until the plug-in has taken what the peer said: it does so in every call.
  void await_posted(void* request, std::size_t count) {
    CHECK(eventually([&] {
      int done = 0;
      int bytes = 0;
      CHECK(net().test(request, &done, &bytes) == kSuccess);
      return fake::posted() == count;
    }));
  }
};

/// A connection from the plug-in, to a peer of ours.
struct Sender {
  void* context = nullptr;
  void* comm = nullptr;
  Handle handle;
  std::unique_ptr<Peer> peer;

  Sender() {
    fake::reset();
    REQUIRE(net().init(&context, 0, nullptr, nullptr, nullptr) == kSuccess);
    const int door = listen_for(handle);
    auto begun = std::async(std::launch::async, [&] {
      peer = std::make_unique<Peer>(::accept(door, nullptr, nullptr));
      Record opened;
      return peer->begin_as_receiver(handle) && peer->hear_word(opened) &&
             opened.kind == RecordKind::kOpen && opened.token == handle.listener;
    });
    char bytes[kHandleBytes] = {};
    std::memcpy(bytes, &handle, sizeof(handle));
    REQUIRE(eventually([&] {
      DeviceHandle* device = nullptr;
      REQUIRE(net().connect(context, 0, bytes, &comm, &device) == kSuccess);
      return comm != nullptr;
    }));
    REQUIRE(begun.get());
    ::close(door);
  }
  ~Sender() {
    net().close_send(comm);
    peer->end();
    CHECK(eventually([] { return fake::groups() == 0 && fake::memories() == 0; }));
  }
  /// @return a socket that listens, as `handle` says.
  static int listen_for(Handle& handle) {
    handle.address = loopback();
    const int door = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto* address = reinterpret_cast<sockaddr*>(&handle.address);
    socklen_t bytes = sizeof(sockaddr_in);
    REQUIRE(::bind(door, address, bytes) == 0);
    REQUIRE(::listen(door, 8) == 0);
    REQUIRE(::getsockname(door, address, &bytes) == 0);
    REQUIRE(fill_random(handle.listener));
    REQUIRE(fill_random(handle.process));
    return door;
  }
};

TEST_CASE("a receiver takes whatever came before the other process ended") {
  Receiver receiver;
  const std::uint32_t last = 5;
  const std::uint32_t whole = 2 * kSegmentBytes + last;
  std::string first(whole, '.');
  std::string second(kBytes, '.');
  std::string never(kBytes, '.');
  void* const requests[] = {receiver.receive(first), receiver.receive(second),
                            receiver.receive(never)};
  receiver.peer->say_word(segment(0, kSegmentBytes, whole));
  receiver.peer->say_word(segment(4, kSegmentBytes, whole));
  receiver.peer->say_word(segment(8, last, whole));
  receiver.peer->say_word(segment(1, kBytes, kBytes));
  receiver.await_posted(requests[0], 4);

  REQUIRE(fake::finish_receive(0, std::string(kSegmentBytes, 'a')));
  REQUIRE(fake::finish_receive(4, std::string(kSegmentBytes, 'b')));
  REQUIRE(fake::finish_receive(8, std::string(last, 'c')));
  REQUIRE(fake::finish_receive(1, std::string(kBytes, 'd')));
  fake::abort_groups();
  receiver.peer->end();

  const Outcome one = outcome(requests[0]);
  CHECK(one.status == kSuccess);
  CHECK(one.bytes == static_cast<int>(whole));
  CHECK(first ==
        std::string(kSegmentBytes, 'a') + std::string(kSegmentBytes, 'b') + std::string(last, 'c'));
  CHECK(outcome(requests[1]).status == kSuccess);
  CHECK(second == std::string(kBytes, 'd'));
  CHECK(outcome(requests[2]).status == kRemoteError);
  CHECK(never == std::string(kBytes, '.'));
}

TEST_CASE("a receiver waits for what its daemon may still have of a process that ended") {
  Receiver receiver;
  std::string text(kBytes, '.');
  void* const request = receiver.receive(text);
  receiver.peer->say_word(segment(3, kBytes, kBytes));
  receiver.await_posted(request, 1);
  receiver.peer->end();
  // The plug-in has heard that the peer is gone, and the daemon has not told yet.
  for (int i = 0; i < 50; ++i) {
    int done = 0;
    int bytes = 0;
    REQUIRE(net().test(request, &done, &bytes) == kSuccess);
    CHECK(done == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(fake::finish_receive(3, std::string(kBytes, 'x')));
  fake::abort_groups();
  CHECK(outcome(request).status == kSuccess);
  CHECK(text == std::string(kBytes, 'x'));
}

TEST_CASE("a stream that fails takes nothing from the others") {
  Receiver receiver;
  std::string lost(kBytes, '.');
  std::string comes(kBytes, '.');
  void* const requests[] = {receiver.receive(lost), receiver.receive(comes)};
  receiver.peer->say_word(segment(0, kBytes, kBytes));
  receiver.peer->say_word(segment(4, kBytes, kBytes));
  receiver.await_posted(requests[0], 2);
  fake::abort_receives(0);
  REQUIRE(fake::finish_receive(4, std::string(kBytes, 'x')));
  CHECK(outcome(requests[1]).status == kSuccess);
  CHECK(comes == std::string(kBytes, 'x'));
  CHECK(outcome(requests[0]).status == kRemoteError);
}

/// @return the descriptor of this process's end of the TCP connection that ends at `port` there.
int descriptor_to(int port) {
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in there{};
    socklen_t bytes = sizeof(there);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &bytes) == 0 &&
        there.sin_family == AF_INET && ntohs(there.sin_port) == port) {
      return fd;
    }
  }
  return -1;
}

TEST_CASE("a child of fork has no connections, and can use none") {
  Receiver receiver;
  std::string text(kBytes, '.');
  void* const request = receiver.receive(text);
  const int link = descriptor_to(receiver.peer->port());
  REQUIRE(link >= 0);
  const pid_t child = ::fork();
  if (child == 0) {
    int done = 0;
    void* listener = nullptr;
    char handle[kHandleBytes];
    const bool closed = ::fcntl(link, F_GETFD) < 0;
    const bool refused = net().test(request, &done, nullptr) != kSuccess && done == 0 &&
                         net().listen(receiver.context, 0, handle, &listener) != kSuccess &&
                         net().close_recv(receiver.comm) != kSuccess;
    _exit(closed && refused ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  // Nothing has changed here.
  receiver.peer->say_word(segment(3, kBytes, kBytes));
  receiver.await_posted(request, 1);
  REQUIRE(fake::finish_receive(3, std::string(kBytes, 'x')));
  CHECK(outcome(request).status == kSuccess);
}

std::size_t threads() {
  std::size_t count = 0;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/task")) {
    count += one.path().empty() ? 0 : 1;
  }
  return count;
}

TEST_CASE("a connection's last word comes, however far behind the other end is") {
  Receiver receiver;
  std::string none;
  std::uint64_t taken = 0;
  constexpr int kStuck = 50;
  // Messages of no bytes, until nothing more is said since the peer does not listen.
  for (int tries = 0; tries < kStuck;) {
    void* request = nullptr;
    void* data = none.data();
    std::size_t bytes = 0;
    int tag = 0;
    void* registration = nullptr;
    int done = 0;
    REQUIRE(net().irecv(receiver.comm, 1, &data, &bytes, &tag, &registration, nullptr, &request) ==
            kSuccess);
    if (request != nullptr) {
      REQUIRE(receiver.peer->say_word(segment(0, 0, 0)));
      for (tries = 0; tries < kStuck && done == 0; ++tries) {
        REQUIRE(net().test(request, &done, nullptr) == kSuccess);
        if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      taken += done != 0 ? 1 : 0;
      if (done != 0) tries = 0;
    } else {
      ++tries;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  CHECK(net().close_recv(std::exchange(receiver.comm, nullptr)) == kSuccess);
  Record heard;
  while (heard.kind != RecordKind::kClosed && receiver.peer->hear_word(heard)) {
  }
  CHECK(heard.kind == RecordKind::kClosed);
  CHECK(heard.value == taken);
}

TEST_CASE("a connect that NCCL gives up leaves no link, and may begin again") {
  struct Bound {
    const std::chrono::milliseconds before;
    explicit Bound(int ms) : before(change(std::chrono::milliseconds(ms))) {}
    ~Bound() { change(before); }
    static std::chrono::milliseconds change(std::chrono::milliseconds to) {
      const std::lock_guard lock(Engine::get().mutex);
      return std::exchange(Engine::get().unused_bound, to);
    }
  };
  auto bound = std::make_unique<Bound>(100);
  fake::reset();
  void* context = nullptr;
  REQUIRE(net().init(&context, 0, nullptr, nullptr, nullptr) == kSuccess);
  Handle handle;
  const int door = Sender::listen_for(handle);
  char bytes[kHandleBytes] = {};
  std::memcpy(bytes, &handle, sizeof(handle));
  void* comm = nullptr;
  DeviceHandle* device = nullptr;
  REQUIRE(net().connect(context, 0, bytes, &comm, &device) == kSuccess);
  REQUIRE(comm == nullptr);
  {
    Peer peer(::accept(door, nullptr, nullptr));
    CHECK(peer.begin_as_receiver(handle));
    CHECK(peer.hears_end());
  }
  CHECK(eventually([] { return fake::groups() == 0 && fake::memories() == 0; }));

  bound.reset();
  auto again = std::async(std::launch::async, [&] {
    auto peer = std::make_unique<Peer>(::accept(door, nullptr, nullptr));
    CHECK(peer->begin_as_receiver(handle));
    return peer;
  });
  CHECK(eventually([&] {
    CHECK(net().connect(context, 0, bytes, &comm, &device) == kSuccess);
    return comm != nullptr;
  }));
  const auto peer = again.get();
  ::close(door);
  CHECK(net().close_send(comm) == kSuccess);
  peer->end();
  CHECK(eventually([] { return fake::groups() == 0 && fake::memories() == 0; }));
}

TEST_CASE("strangers at a listener cost no thread, and hold up nobody") {
  constexpr int kStrangers = 40;
  std::vector<std::unique_ptr<Peer>> strangers;
  const std::size_t before = threads();
  std::size_t most = 0;
  {
    const Receiver receiver([&](Receiver& waiting) {
      for (int i = 0; i < kStrangers; ++i) {
        strangers.push_back(std::make_unique<Peer>(Peer::connected_to(waiting.handle)));
        if (i % 2 == 0) strangers.back()->say_word(std::uint32_t{0x20544547});
      }
      for (int i = 0; i < kStrangers; ++i) {
        CHECK_FALSE(waiting.accepts());
        most = std::max(most, threads());
      }
    });
    CHECK(most <= before);
  }
  // Those that are too many, and all others once the listener is gone.
  for (const auto& one : strangers) CHECK(one->hears_end());
}

TEST_CASE("a send that the other process has taken is done, whatever its daemon says") {
  Sender sender;
  std::string text(kBytes, 'x');
  sender.peer->say_word(record(RecordKind::kGrant, kBytes));
  sender.peer->say_word(record(RecordKind::kGrant, kBytes));
  void* requests[2] = {nullptr, nullptr};
  for (void*& request : requests) {
    REQUIRE(eventually([&] {
      CHECK(net().isend(sender.comm, text.data(), kBytes, 0, nullptr, nullptr, &request) ==
            kSuccess);
      return request != nullptr;
    }));
  }
  CHECK(eventually([&] {
    int done = 0;
    CHECK(net().test(requests[0], &done, nullptr) == kSuccess);
    return fake::posted() == 2;
  }));
  sender.peer->say_word(record(RecordKind::kAllTaken, 1));
  sender.peer->end();
  CHECK(outcome(requests[0]).status == kSuccess);
  CHECK(outcome(requests[1]).status == kRemoteError);
}

}  // namespace
}  // namespace gradwire::nccl_net
