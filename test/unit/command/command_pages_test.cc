// SPDX-License-Identifier: BSD-3-Clause
// Clients that remove pages of the memory that they share with the daemon.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <set>
#include <vector>

#include "command/command_lane.h"
#include "command_fixture.h"
#include "ipc/bus_guard.h"
#include "ipc/unique_fd.h"

using namespace gradwire;
using namespace gradwire::command;

namespace {

/// Memory of clients 1, 2, ..., a page of each, which is gone and was touched.
class RemovedPages {
 public:
  explicit RemovedPages(std::uint32_t clients) : bytes_(clients * kPage) {
    REQUIRE(ipc::install_bus_guard());
    std::uint32_t owner = 0;
    while (ipc::take_hit(owner)) continue;
    const ipc::UniqueFd fd(::memfd_create("pages", MFD_CLOEXEC));
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes_)) == 0);
    void* const data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(data != MAP_FAILED);
    data_ = static_cast<char*>(data);
    REQUIRE(::ftruncate(fd.get(), 0) == 0);
    for (std::uint32_t i = 0; i < clients; ++i) {
      guards_.emplace_back(data_ + i * kPage, kPage, kPage, i + 1);
      static_cast<volatile char*>(data_)[i * kPage] = 1;
    }
  }
  ~RemovedPages() {
    guards_.clear();
    ::munmap(data_, bytes_);
  }
  RemovedPages(const RemovedPages&) = delete;
  RemovedPages& operator=(const RemovedPages&) = delete;

 private:
  static constexpr std::size_t kPage = 4096;
  const std::size_t bytes_;
  char* data_ = nullptr;
  std::vector<ipc::GuardedRange> guards_;
};

}  // namespace

TEST_CASE("a client that removed pages is cut off in the next round, and its group aborts") {
  CommandFixture fixture(1);
  TestClient& hostile = fixture.add_client(1);
  fixture.add_client(2);
  fixture.add_group({2, 1});
  fixture.add_group({2}, 0x2002);
  const RemovedPages pages(1);

  REQUIRE(hostile.queue.push_command(CommandFixture::command(1)));
  fixture.commands->poll();
  CHECK(fixture.counters.commands == 0);  // it is read no more
  std::uint32_t client_id = 0;
  AbortReason why;
  REQUIRE(fixture.commands->has_news());
  REQUIRE(fixture.commands->pop_fault(client_id, why));
  CHECK(client_id == 1);
  CHECK_THAT(why.detail, Catch::Contains("removed pages"));
  std::uint64_t handle = 0;
  REQUIRE(fixture.commands->pop_abort(handle, why));
  CHECK(handle == CommandFixture::kGroup);
  CHECK(why.code == AbortCode::kClientDied);
  CHECK(why.culprit_rank == 1);
  CHECK_THAT(why.detail, Catch::Contains("member 1 removed pages"));
  CHECK_FALSE(fixture.commands->pop_abort(handle, why));  // the other client's group goes on
  CHECK_FALSE(fixture.commands->pop_fault(client_id, why));
}

TEST_CASE(
    "of many clients that removed pages a round ends some groups, and the next ones the rest") {
  constexpr std::uint32_t kClients = 32;
  constexpr std::uint64_t kGroups = 40;
  CommandFixture fixture(1);
  std::vector<std::uint32_t> members;
  for (std::uint32_t id = 1; id <= kClients; ++id) {
    fixture.add_client(id);
    members.push_back(id);
  }
  for (std::uint64_t i = 0; i < kGroups; ++i) fixture.add_group(members, 0x3000 + i);
  const RemovedPages pages(kClients);

  std::set<std::uint32_t> faulty;
  std::set<std::uint64_t> aborted;
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t steps = fixture.commands->steps();
    fixture.commands->poll();
    CHECK(fixture.commands->steps() - steps <= CommandLane::kStepsMax);
    std::uint32_t client_id = 0;
    std::uint64_t handle = 0;
    AbortReason why;
    while (fixture.commands->pop_fault(client_id, why)) faulty.insert(client_id);
    // None of them is read once it is known.
    if (round == 0) CHECK(faulty.size() == kClients);
    while (fixture.commands->pop_abort(handle, why)) CHECK(aborted.insert(handle).second);
  }
  CHECK(aborted.size() == kGroups);
}

TEST_CASE("a client that removed pages may be gone before all of its groups were aborted") {
  CommandFixture fixture(1);
  fixture.add_client(1);
  fixture.add_client(2);
  constexpr std::uint64_t kGroups = 100;
  std::vector<std::unique_ptr<Request>> leaves;
  for (std::uint64_t i = 0; i < kGroups; ++i) fixture.add_group({1}, 0x3000 + i);
  const RemovedPages pages(2);
  fixture.commands->poll();

  // As the control thread does that hears of it.
  for (std::uint64_t i = 0; i < kGroups; ++i) {
    leaves.push_back(std::make_unique<Request>());
    leaves.back()->type = RequestType::kLeaveGroup;
    leaves.back()->group_handle = 0x3000 + i;
    fixture.commands->leave_group(leaves.back().get());
    fixture.report(0, collective::EventType::kClosed, 0, 0x3000 + i);
  }
  Request remove;
  remove.type = RequestType::kRemoveClient;
  remove.client_id = 1;
  fixture.commands->remove_client(&remove);
  Request* back = nullptr;
  std::uint64_t finished = 0;
  for (int round = 0; round < 10; ++round) {
    fixture.commands->poll();
    while (fixture.commands->pop_finished(back)) ++finished;
  }
  CHECK(finished == kGroups + 1);
  CHECK(back == &remove);
}
