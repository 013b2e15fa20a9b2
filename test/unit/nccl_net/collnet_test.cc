// SPDX-License-Identifier: BSD-3-Clause
// A communicator of CollNet. The daemons are played.
#include "nccl_net/collnet.h"

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

}  // namespace
}  // namespace gradwire::nccl_net
