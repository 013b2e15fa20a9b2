// SPDX-License-Identifier: BSD-3-Clause
// A communicator of CollNet. The daemons are played.
#include "nccl_net/collnet.h"

#include <future>
#include <memory>
#include <vector>

#include "fake_client.h"
#include "peer.h"

extern "C" gradwire::nccl_net::CollNetV12 ncclCollNetPlugin_v12;

namespace gradwire::nccl_net {
namespace {

CollNetV12& collnet() { return ncclCollNetPlugin_v12; }

/// A listener of CollNet, with what it tells the other ranks.
struct Door {
  void* context = nullptr;
  void* listener = nullptr;
  char handle[kHandleBytes] = {};

  Door() {
    setenv("GRADWIRE_NCCL_ADDRESS", "127.0.0.1", 1);
    REQUIRE(collnet().init(&context, 0, nullptr) == kSuccess);
    REQUIRE(collnet().listen(context, 0, handle, &listener) == kSuccess);
  }
  ~Door() { collnet().close_listen(listener); }
};

Status test(void* request, bool& done) {
  int is_done = 0;
  const Status status = collnet().test(request, &is_done, nullptr);
  done = is_done != 0;
  return status;
}

TEST_CASE("an all-reduce that was summed is whole, though the next one fails") {
  fake::reset();
  Door door;
  void* handles[] = {door.handle};
  void* comm = nullptr;
  REQUIRE(collnet().connect(handles, 1, 0, door.listener, &comm) == kSuccess);
  const std::size_t bytes = 3 * kSegmentBytes;
  const std::string input(bytes, 'x');
  std::string output(bytes, '.');
  std::string next(1, '.');
  void* requests[2] = {nullptr, nullptr};
  REQUIRE(collnet().iallreduce(comm, const_cast<char*>(input.data()), output.data(), bytes, kInt8,
                               kSum, nullptr, nullptr, &requests[0]) == kSuccess);
  REQUIRE(collnet().iallreduce(comm, next.data(), next.data(), 1, kInt8, kSum, nullptr, nullptr,
                               &requests[1]) == kSuccess);
  bool done = false;
  REQUIRE(eventually([&] {
    CHECK(test(requests[0], done) == kSuccess);
    return fake::posted() == 4;
  }));
  fake::finish_ops(3);
  fake::abort_groups();
  Status status = kSuccess;
  REQUIRE(eventually([&] {
    status = test(requests[0], done);
    return done || status != kSuccess;
  }));
  CHECK(status == kSuccess);
  CHECK(output == input);
  CHECK(test(requests[1], done) == kRemoteError);
  CHECK(collnet().close_coll(comm) == kSuccess);
}

TEST_CASE("who closes CollNet does not wait until the daemon lets go of its memory") {
  fake::reset();
  Door door;
  void* handles[] = {door.handle};
  void* comm = nullptr;
  REQUIRE(collnet().connect(handles, 1, 0, door.listener, &comm) == kSuccess);
  fake::keep_memory(true);
  CHECK(collnet().close_coll(comm) == kSuccess);
  // If the call had waited it would have given up, and the memory would stay.
  fake::keep_memory(false);
  CHECK(eventually([] { return fake::groups() == 0 && fake::memories() == 0; }));
}

/// Joins as so many ranks, of which each has a thread. @return their statuses.
std::vector<Status> join_all(std::vector<Door>& doors, std::vector<void*>& comms) {
  std::vector<std::future<Status>> joining;
  for (std::size_t rank = 0; rank < doors.size(); ++rank) {
    joining.push_back(std::async(std::launch::async, [&, rank] {
      std::vector<void*> handles;
      for (Door& door : doors) handles.push_back(door.handle);
      return collnet().connect(handles.data(), static_cast<int>(doors.size()),
                               static_cast<int>(rank), doors[rank].listener, &comms[rank]);
    }));
  }
  std::vector<Status> statuses;
  for (auto& one : joining) statuses.push_back(one.get());
  return statuses;
}

TEST_CASE("all ranks have CollNet, or none") {
  fake::reset();
  std::vector<Door> doors(4);
  std::vector<void*> comms(4, nullptr);
  CHECK(join_all(doors, comms) == std::vector<Status>(4, kSuccess));
  for (void* comm : comms) CHECK(collnet().close_coll(comm) == kSuccess);
  for (const std::uint32_t refused : {0u, 2u, 3u}) {
    fake::refuse_join(refused);
    comms.assign(4, nullptr);
    CHECK(join_all(doors, comms) == std::vector<Status>(4, kRemoteError));
    CHECK(comms == std::vector<void*>(4, nullptr));
    CHECK(eventually([] { return fake::groups() == 0 && fake::memories() == 0; }));
  }
}

TEST_CASE("a stranger who says nothing holds up no rank of CollNet") {
  fake::reset();
  std::vector<Door> doors(2);
  std::vector<void*> comms(2, nullptr);
  Handle handle;
  std::memcpy(&handle, doors[0].handle, sizeof(handle));
  std::vector<std::unique_ptr<Peer>> strangers;
  for (int i = 0; i < 4; ++i) {
    strangers.push_back(std::make_unique<Peer>(Peer::connected_to(handle)));
  }
  CHECK(join_all(doors, comms) == std::vector<Status>(2, kSuccess));
  for (void* comm : comms) CHECK(collnet().close_coll(comm) == kSuccess);
}

}  // namespace
}  // namespace gradwire::nccl_net
