// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All connections from one process to another share a link: a group of the daemon's and a TCP
/// connection. The bytes of messages go by transfers of the group, what goes where by the TCP
/// connection (messages.h). The sending process makes a link when it connects first, and ends it
/// when its last connection of it is closed. Then it makes a new one if it connects again, so no
/// two ends ever disagree whether a link is still there.
///
/// What stands in for groups and streams that transfers do not have yet. The group has a ring,
/// which it never uses, and kClients processes at each end, so that it has kStreams ordered pairs,
/// each with transfers of its own order. A transfer has a size that both ends have to know, and an
/// NCCL receive only a bound: so the receiver grants room for each receive, and the sender says
/// with each segment how large it is and which pair has it. Nothing is sent without a grant: so
/// whatever arrives can be copied away at once, and no connection holds back another.
///
/// A message's bytes are copied into gradient memory at the sender and out of it at the receiver,
/// at most one segment by each call. Memory is taken when the link is made. A segment under way is
/// never in the caller's memory, so a connection may be closed at any time.
///
/// A send is done when all of it lies in the receiving process's gradient memory, or when that says
/// that it has it. So a process may end as soon as its requests are done, without a close: the
/// other end hears its last words, takes whatever came, and only then fails what is left.
///
/// Threads. Engine's lock (engine.h) guards everything here. Each link has one thread, which makes
/// it, then sleeps until the link ends or the other process has gone, and takes it down. Progress
/// is made by those who call isend(), irecv() and test(), of whichever connection.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "client/gradwire.h"
#include "nccl_net/connection.h"
#include "nccl_net/daemon.h"
#include "nccl_net/descriptor.h"
#include "nccl_net/messages.h"
#include "nccl_net/record_pipe.h"

namespace gradwire::nccl_net {

class Link : public std::enable_shared_from_this<Link> {
 public:
  enum class State { kForming, kReady, kFailed, kEnded };

  /// From here to the process that listens there.
  static std::shared_ptr<Link> begin(const Handle& to);
  /// From whoever has connected to `socket` and said hello.
  static std::shared_ptr<Link> take(Descriptor socket, const Hello& hello);
  Link(bool sends, Descriptor socket, const Handle& to);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool sends() const { return sends_; }
  [[nodiscard]] const std::string& why() const { return why_; }
  /// Why nothing more comes on a connection that the other end has closed.
  [[nodiscard]] const char* why_over() const {
    return broken_.empty() ? "the other end has closed the connection" : broken_.c_str();
  }
  [[nodiscard]] const Token& peer() const { return peer_; }

  /// Connections that a link from here has: another link takes more. Each keeps room for its last
  /// word, and as much is there for all others.
  static constexpr std::uint32_t kConnectionsMax = 2048;
  [[nodiscard]] bool is_full() const { return open_ >= kConnectionsMax; }
  /// Of a link from here that is ready. @return nullptr: there is no room for the words of it now.
  Connection* open(const Token& listener);
  /// Forgets the connection.
  void close(Connection& connection);
  /// Room for one more request. @return nullptr: not now.
  Request* post_send(Connection& connection, void* data, std::uint64_t bytes);
  Request* post_receive(Connection& connection, void* data, std::uint64_t room);
  /// Takes in what has come, and copies one segment at most: of `connection` if it sends.
  void progress(Connection* connection);

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// A segment under way: in memory of a client here, and a transfer of its stream.
  struct Segment {
    Connection* connection = nullptr;
    std::uint64_t message = 0;
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    std::uint32_t slot = kNone;  ///< of its client here; none: it waits for one
    gw_work* work = nullptr;
  };
  /// Transfers of one ordered pair, in their order. Those before `posted` were given to the daemon.
  /// As many as there are slots here are posted at most, and as many as there are slots at the
  /// sender are told of and not posted, since the sender's end with those posted here.
  struct Stream {
    std::array<Segment, 2 * kSlots> ring;
    std::uint64_t head = 0;
    std::uint64_t posted = 0;
    std::uint64_t tail = 0;
    bool broken = false;  ///< its oldest has failed, and so do those behind
    [[nodiscard]] Segment& at(std::uint64_t i) { return ring[i % ring.size()]; }
  };
  struct End {
    gw_group* group = nullptr;
    gw_memory* memory = nullptr;
    char* base = nullptr;
    std::uint32_t free_slots = (1u << kSlots) - 1;
  };

  // link_thread.cc
  void run(Hello hello);
  bool form(const Hello& hello, std::string& why);
  bool say_hello(Hello other, std::string& why);
  bool join(const Hello& sender, const Hello& receiver, std::string& why);
  bool say_ready(bool ok, std::string& why);
  void watch();
  void take_down();
  void wake();

  // link.cc
  void fail(const std::string& why);
  void take_records();
  void take(const Record& record);
  void on_open(const Record& record);
  void on_closed(Connection& connection, std::uint64_t over);
  /// The other end says nothing more.
  void on_end_of_words();
  /// Fails the link if transfers fail or the other process is gone, once all that came is taken.
  void check_end();
  /// Of a receiver: all that came is copied, and nothing more comes.
  [[nodiscard]] bool is_drained() const;
  void drop_if_over(Connection& connection);
  [[nodiscard]] std::uint32_t take_slot(std::uint32_t client);
  [[nodiscard]] std::uint32_t client_of(std::uint32_t stream) const {
    return sends_ ? stream / kClients : stream % kClients;
  }
  [[nodiscard]] std::uint32_t other_of(std::uint32_t stream) const {
    return sends_ ? kClients + stream % kClients : stream / kClients;
  }
  /// The first reason is why the link ends.
  void note_broken(const std::string& why);
  bool begin_transfer(std::uint32_t stream, Segment& segment);
  /// What transfers have ended: of each stream the oldest, up to the first that failed.
  void take_ends();
  void on_end(std::uint32_t stream, Segment& segment);

  // link_send.cc
  void send_some(Connection& connection);
  void on_sent(const Segment& segment);
  void on_taken(Connection& connection, const Record& record);
  void on_grant(Connection& connection, const Record& record);
  // link_receive.cc
  void on_segment(Connection& connection, const Record& record);
  void post_receives();
  void copy_some();
  void message_is_whole(Connection& connection, std::uint64_t message);

  const bool sends_;
  State state_ = State::kForming;
  std::string why_;
  Token listener_{};  ///< whose address was connected to
  Token peer_{};
  Handle to_;
  std::shared_ptr<Clients> clients_;
  RecordPipe pipe_;
  Descriptor bell_;  ///< an eventfd: the thread is to look
  bool ending_ = false;
  /// Transfers failed, or the other process is gone: nothing more is sent or posted, and what was
  /// said and sent before may still come.
  std::string broken_;
  bool heard_end_ = false;
  std::chrono::steady_clock::time_point broken_since_;
  std::array<End, kClients> ends_;
  std::array<Stream, kStreams> streams_;
  std::uint32_t next_stream_ = 0;
  /// Segments that have come, in their order, and are not copied yet.
  std::array<Segment, kClients * kSlots> arrived_;
  std::uint64_t arrived_head_ = 0;
  std::uint64_t arrived_tail_ = 0;
  std::unordered_map<std::uint32_t, std::unique_ptr<Connection>> connections_;
  std::uint32_t open_ = 0;  ///< connections that are not closed here
  std::uint32_t next_number_ = 1;
};

}  // namespace gradwire::nccl_net
