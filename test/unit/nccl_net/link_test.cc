// SPDX-License-Identifier: BSD-3-Clause
// What moves on a link, and how a link ends. The other end and the daemons are played.
#include "nccl_net/link.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "link_ends.h"

namespace gradwire::nccl_net {
namespace {

TEST_CASE("a receiver takes whatever came before the other process ended") {
  Receiver receiver;
  const std::uint32_t last = 5;
  const std::uint32_t whole = 2 * kSegmentBytes + last;
  std::string first(whole, '.');
  std::string second(kBytes, '.');
  std::string never(kBytes, '.');
  void* const requests[] = {receiver.receive(first), receiver.receive(second),
                            receiver.receive(never)};
  receiver.await_posted(requests[0], 3);
  // The first that comes tells of two more.
  REQUIRE(
      fake::finish_receive(1, segment(0, kSegmentBytes, whole, std::string(kSegmentBytes, 'b'))));
  REQUIRE(fake::finish_receive(2, segment(1, std::string(kBytes, 'd'))));
  receiver.await_posted(requests[0], 3);
  REQUIRE(fake::finish_receive(5, segment(0, 0, whole, std::string(kSegmentBytes, 'a'))));
  REQUIRE(fake::finish_receive(3, segment(0, 2 * kSegmentBytes, whole, std::string(last, 'c'))));
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
  REQUIRE(fake::finish_receive(1, segment(0, std::string(kBytes, 'x'))));
  fake::abort_groups();
  CHECK(outcome(request).status == kSuccess);
  CHECK(text == std::string(kBytes, 'x'));
}

TEST_CASE("a stream that fails takes nothing from the others") {
  Receiver receiver;
  std::string lost(kBytes, '.');
  std::string comes(kBytes, '.');
  void* const requests[] = {receiver.receive(lost), receiver.receive(comes)};
  receiver.await_posted(requests[0], 2);
  fake::abort_receives(1);
  REQUIRE(fake::finish_receive(2, segment(1, std::string(kBytes, 'x'))));
  CHECK(outcome(requests[1]).status == kSuccess);
  CHECK(comes == std::string(kBytes, 'x'));
  CHECK(outcome(requests[0]).status == kRemoteError);
}

TEST_CASE("a message that is too large fails at both ends, by its sizes") {
  Receiver receiver;
  std::string small(kBytes, '.');
  void* const request = receiver.receive(small);
  receiver.await_posted(request, 1);
  REQUIRE(fake::finish_receive(1, segment(0, 0, kBytes + 1, std::string(kBytes + 1, 'x'))));
  CHECK(outcome(request).status == kRemoteError);
  CHECK(small == std::string(kBytes, '.'));
  const Record told = receiver.peer->next_record(RecordKind::kTooLarge);
  CHECK(told.a == kBytes);
  CHECK(told.b == kBytes + 1);
}

TEST_CASE("what was under way when both ends closed comes, and is thrown away") {
  Receiver receiver;
  std::string first(2 * kSegmentBytes, '.');
  std::string second(kBytes, '.');
  void* const request = receiver.receive(first);
  receiver.receive(second);
  receiver.await_posted(request, 2);
  CHECK(net().close_recv(std::exchange(receiver.comm, nullptr)) == kSuccess);
  CHECK(receiver.peer->next_record(RecordKind::kClosed).a == 0);
  // One segment was sent, of the two of the first message, and nothing of the second.
  REQUIRE(receiver.peer->say_word(record(RecordKind::kClosed, 0, 1)));
  REQUIRE(receiver.peer->say_word(record(RecordKind::kEnd)));
  REQUIRE(
      fake::finish_receive(1, segment(0, 0, 2 * kSegmentBytes, std::string(kSegmentBytes, 'x'))));
  // The other receive waits in vain, and the link does not end before it is filled.
  CHECK(receiver.peer->next_record(RecordKind::kFill).a == 2);
  CHECK(fake::posted() == 1);
  REQUIRE(fake::finish_receive(2, filler()));
  CHECK(receiver.peer->next_record().kind == RecordKind::kEndToo);
  CHECK(receiver.peer->hears_end());
  CHECK(first == std::string(2 * kSegmentBytes, '.'));
  CHECK(second == std::string(kBytes, '.'));
}

TEST_CASE("a sender that stops tells what still comes, and fills what nobody else does") {
  Sender sender;
  std::string text(2 * kSegmentBytes, 'x');
  REQUIRE(sender.peer->say_word(record(RecordKind::kState, 3, 0)));
  void* request = nullptr;
  REQUIRE(eventually([&] {
    CHECK(net().isend(sender.comm, text.data(), text.size(), 0, nullptr, nullptr, &request) ==
          kSuccess);
    return request != nullptr;
  }));
  // One call copies one segment.
  REQUIRE(eventually([&] {
    int done = 0;
    if (fake::posted() == 0) net().test(request, &done, nullptr);
    return fake::posted() == 1;
  }));
  CHECK(net().close_send(std::exchange(sender.comm, nullptr)) == kSuccess);
  const Record told = sender.peer->next_record(RecordKind::kClosed);
  CHECK(told.a == 0);
  CHECK(told.b == 1);
  REQUIRE(sender.peer->say_word(record(RecordKind::kFill, 3)));
  CHECK(eventually([] { return fake::posted() == 3; }));
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
  receiver.await_posted(request, 1);
  REQUIRE(fake::finish_receive(1, segment(0, std::string(kBytes, 'x'))));
  CHECK(outcome(request).status == kSuccess);
}

TEST_CASE("a connection's last word comes, however far behind the other end is") {
  Receiver receiver;
  const int link = descriptor_to(receiver.peer->port());
  std::string none;
  std::uint64_t taken = 0;
  int unsaid = -1;
  // Messages of no bytes, until nothing more is said since the peer does not listen.
  constexpr int kStuck = 2000;
  for (int same = 0; same < kStuck; ++taken) {
    void* const request = receiver.receive(none);
    const auto stream = static_cast<std::uint32_t>(1 + taken % Segments::kStreams);
    // Nobody tells the sender of its receive any more, and so nothing comes.
    bool comes = false;
    for (int tries = 0; tries < 20 && !comes; ++tries) {
      int done = 0;
      REQUIRE(net().test(request, &done, nullptr) == kSuccess);
      comes = fake::finish_receive(stream, segment(taken, ""));
    }
    if (!comes) break;
    REQUIRE(outcome(request).status == kSuccess);
    int before = std::exchange(unsaid, 0);
    REQUIRE(::ioctl(link, SIOCOUTQ, &unsaid) == 0);
    same = unsaid == before ? same + 1 : 0;
  }
  CHECK(net().close_recv(std::exchange(receiver.comm, nullptr)) == kSuccess);
  CHECK(receiver.peer->next_record(RecordKind::kClosed).a == taken);
}

TEST_CASE("a send that the other process has taken is done, whatever its daemon says") {
  Sender sender;
  std::string text(kBytes, 'x');
  sender.peer->say_word(record(RecordKind::kState, 2, 0));
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
  sender.peer->say_word(record(RecordKind::kState, 2, 1));
  sender.peer->end();
  CHECK(outcome(requests[0]).status == kSuccess);
  CHECK(outcome(requests[1]).status == kRemoteError);
}

}  // namespace
}  // namespace gradwire::nccl_net
