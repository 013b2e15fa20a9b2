// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Connections of the plug-in whose other end is a peer that the test plays. A thread of a test.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "fake_client.h"
#include "peer.h"

namespace gradwire::nccl_net {

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
      return peer->begin_as_maker(handle) &&
             peer->say_word(record(RecordKind::kOpen, handle.listener[0], handle.listener[1]));
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
      return peer->begin_as_taker(handle) && peer->hear_word(opened) &&
             opened.kind == RecordKind::kOpen && opened.connection == kOfMaker &&
             Token{opened.a, opened.b} == handle.listener;
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
    if (comm != nullptr) net().close_send(comm);
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

}  // namespace gradwire::nccl_net
