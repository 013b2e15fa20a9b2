// SPDX-License-Identifier: BSD-3-Clause
// How two processes get one link, and how it ends when nobody needs it. The other one is played.
#include <filesystem>
#include <future>
#include <vector>

#include "link_ends.h"
#include "nccl_net/engine.h"

namespace gradwire::nccl_net {
namespace {

/// A process that connects, and has a listener of its own.
struct Both {
  void* context = nullptr;
  void* listener = nullptr;
  void* comm = nullptr;
  Handle own;
  Handle to;
  int door = -1;
  char to_bytes[kHandleBytes] = {};

  explicit Both(const Token& other) {
    fake::reset();
    setenv("GRADWIRE_NCCL_ADDRESS", "127.0.0.1", 1);
    REQUIRE(net().init(&context, 0, nullptr, nullptr, nullptr) == kSuccess);
    char bytes[kHandleBytes];
    REQUIRE(net().listen(context, 0, bytes, &listener) == kSuccess);
    std::memcpy(&own, bytes, sizeof(own));
    door = Sender::listen_for(to);
    to.process = other;
    std::memcpy(to_bytes, &to, sizeof(to));
  }
  ~Both() {
    if (comm != nullptr) net().close_send(comm);
    net().close_listen(listener);
    ::close(door);
    CHECK(eventually([] { return fake::groups() == 0 && fake::memories() == 0; }));
  }
  bool connects() {
    DeviceHandle* device = nullptr;
    REQUIRE(net().connect(context, 0, to_bytes, &comm, &device) == kSuccess);
    return comm != nullptr;
  }
};

/// Another process for each test: links of an earlier one may still be about to end.
Token token_of(std::uint64_t first) {
  static std::uint64_t count = 0;
  return {first, ++count};
}
/// Lower, and higher, than that of this process.
Token lower() { return token_of(0); }
Token higher() { return token_of(UINT64_MAX); }

TEST_CASE("if both connect at once, the process with the lower token makes the link") {
  Both both(lower());
  REQUIRE_FALSE(both.connects());
  Peer asked(::accept(both.door, nullptr, nullptr));
  Hello hello;
  REQUIRE(asked.hear_word(hello));
  // It has not answered, and connects itself. Nobody accepts here: connect alone is called.
  Peer made(Peer::connected_to(both.own));
  auto begun = std::async(std::launch::async, [&] {
    return made.begin_as_maker(both.own, both.to.process) && made.hears_open(kOfTaker);
  });
  CHECK(eventually([&] { return both.connects(); }));
  CHECK(begun.get());
  CHECK(asked.hears_end());
  CHECK(fake::groups() == 1);
  made.end();
}

TEST_CASE("if both connect at once, the process with the higher token takes the link") {
  Both both(higher());
  REQUIRE_FALSE(both.connects());
  Peer asked(::accept(both.door, nullptr, nullptr));
  Hello hello;
  REQUIRE(asked.hear_word(hello));
  Peer refused(Peer::connected_to(both.own));
  REQUIRE(refused.say_word(Peer::hello(HelloKind::kConnect, both.own.listener, both.to.process)));
  auto told = std::async(std::launch::async, [&] {
    Hello answer;
    return refused.hear_word(answer) && answer.kind == HelloKind::kUseMine && refused.hears_end();
  });
  while (told.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) both.connects();
  CHECK(told.get());
  auto begun = std::async(std::launch::async, [&] {
    return asked.answer_as_taker(both.to) && asked.hears_open(kOfMaker);
  });
  CHECK(eventually([&] { return both.connects(); }));
  CHECK(begun.get());
  CHECK(fake::groups() == 1);
  asked.end();
}

TEST_CASE("a process that is told to use the other's link looks for it again and again") {
  Both both(lower());
  REQUIRE_FALSE(both.connects());
  for (int i = 0; i < 3; ++i) {
    // Perhaps it fails to make it.
    auto asked = std::async(std::launch::async, [&] {
      Peer peer(::accept(both.door, nullptr, nullptr));
      Hello hello;
      return peer.hear_word(hello) &&
             peer.say_word(Peer::hello(HelloKind::kUseMine, both.to.listener, both.to.process)) &&
             peer.hears_end();
    });
    while (asked.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      CHECK_FALSE(both.connects());
    }
    CHECK(asked.get());
  }
  std::unique_ptr<Peer> peer;
  auto begun = std::async(std::launch::async, [&] {
    peer = std::make_unique<Peer>(::accept(both.door, nullptr, nullptr));
    return peer->begin_as_taker(both.to);
  });
  CHECK(eventually([&] { return both.connects(); }));
  CHECK(begun.get());
  peer->end();
}

TEST_CASE("one who connects and does not want the link after all leaves nothing") {
  Both both(lower());
  {
    Peer peer(Peer::connected_to(both.own));
    REQUIRE(peer.say_word(Peer::hello(HelloKind::kConnect, both.own.listener, both.to.process)));
    auto taken = std::async(std::launch::async, [&] {
      Hello answer;
      return peer.hear_word(answer) && answer.kind == HelloKind::kTake;
    });
    while (taken.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      void* comm = nullptr;
      DeviceHandle* device = nullptr;
      CHECK(net().accept(both.listener, &comm, &device) == kSuccess);
      CHECK(comm == nullptr);
    }
    CHECK(taken.get());
    CHECK(fake::groups() == 0);
  }
}

TEST_CASE("a link goes on if the other end opens a connection while it is about to end") {
  Both both(higher());
  std::unique_ptr<Peer> peer;
  auto begun = std::async(std::launch::async, [&] {
    peer = std::make_unique<Peer>(::accept(both.door, nullptr, nullptr));
    return peer->begin_as_taker(both.to);
  });
  CHECK(eventually([&] { return both.connects(); }));
  REQUIRE(begun.get());
  CHECK(net().close_send(std::exchange(both.comm, nullptr)) == kSuccess);
  peer->next_record(RecordKind::kClosed);
  REQUIRE(peer->say_word(record(RecordKind::kClosed)));
  peer->next_record(RecordKind::kEnd);
  // Whoever connects here meanwhile waits for what becomes of it.
  for (int i = 0; i < 20; ++i) CHECK_FALSE(both.connects());
  REQUIRE(peer->say_word(
      record(RecordKind::kOpen, both.own.listener[0], both.own.listener[1], kOfTaker)));
  void* accepted = nullptr;
  CHECK(eventually([&] {
    DeviceHandle* device = nullptr;
    CHECK(net().accept(both.listener, &accepted, &device) == kSuccess);
    return accepted != nullptr;
  }));
  CHECK(eventually([&] { return both.connects(); }));
  CHECK(peer->next_record(RecordKind::kOpen).connection == kOfMaker + 2);
  CHECK(fake::groups() == 1);
  CHECK(net().close_recv(accepted) == kSuccess);
  CHECK(net().close_send(std::exchange(both.comm, nullptr)) == kSuccess);
  REQUIRE(peer->say_word(record(RecordKind::kClosed, 0, 0, kOfTaker)));
  REQUIRE(peer->say_word(record(RecordKind::kClosed, 0, 0, kOfMaker + 2)));
  peer->next_record(RecordKind::kEnd);
  REQUIRE(peer->say_word(record(RecordKind::kEndToo)));
  CHECK(peer->hears_end());
}

std::size_t threads() {
  std::size_t count = 0;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/task")) {
    count += one.path().empty() ? 0 : 1;
  }
  return count;
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
    CHECK(peer.begin_as_taker(handle));
    CHECK(peer.next_record().kind == RecordKind::kEnd);
    CHECK(peer.say_word(record(RecordKind::kEndToo)));
    CHECK(peer.hears_end());
  }
  CHECK(eventually([] { return fake::groups() == 0 && fake::memories() == 0; }));

  bound.reset();
  auto again = std::async(std::launch::async, [&] {
    auto peer = std::make_unique<Peer>(::accept(door, nullptr, nullptr));
    return peer->begin_as_taker(handle) ? std::move(peer) : nullptr;
  });
  CHECK(eventually([&] {
    CHECK(net().connect(context, 0, bytes, &comm, &device) == kSuccess);
    return comm != nullptr;
  }));
  const auto peer = again.get();
  REQUIRE(peer != nullptr);
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

}  // namespace
}  // namespace gradwire::nccl_net
