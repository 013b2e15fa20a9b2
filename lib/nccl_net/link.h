// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All connections between two processes share a link, whichever of them connects: a group of the
/// daemons' with these two, and a TCP connection. The bytes of messages go by transfers of the
/// group (segments.h), with a header that says what they are. By TCP (messages.h) the processes
/// meet, and tell each other which receives are posted, what has come, and what has ended.
///
/// Nothing is sent before its receive is posted: so whatever arrives can be copied away at once,
/// and no connection holds back another. The daemon has a receive for each segment that comes, and
/// no more: one for each message that may come, and those for the rest of a message when its first
/// segment to come tells its size. What was posted in vain, since a connection was aborted, takes
/// other messages, or is filled by the other end when nothing else is left to come.
///
/// A message's bytes are copied into gradient memory at the sender and out of it at the receiver,
/// at most one segment's by each call. Memory is taken when the link is made. A segment under way
/// is never in the caller's memory, so a connection may be closed at any time.
///
/// A send is done when all of it lies in the receiving process's gradient memory, or when that says
/// that it has it. So a process may end as soon as its requests are done, without a close: the
/// other end hears its last words, takes whatever came, and only then fails what is left.
///
/// Who makes a link. The process that connects first, if it has none with the other one. If both
/// connect at once, the one whose token is lower makes it, and answers the other's hello by saying
/// so; the other takes it, whatever it had begun, since it looks at all its listeners while it
/// connects. A process joins the group only when its hello was answered, and the answer answered:
/// so no two links are ever made of one race. The end that made the link ends it when all of its
/// connections are closed at both ends, and asks the other end first, which may have opened one
/// meanwhile.
///
/// Threads. Engine's lock (engine.h) guards everything here. Each link has one thread, which makes
/// it, then sleeps until no connection of it is open here or the other process has gone, and takes
/// it down. Progress is made by those who call isend(), irecv() and test(), of whichever
/// connection, and by the thread while nobody here calls.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "client/gradwire.h"
#include "nccl_net/connection.h"
#include "nccl_net/daemon.h"
#include "nccl_net/descriptor.h"
#include "nccl_net/messages.h"
#include "nccl_net/record_pipe.h"
#include "nccl_net/segments.h"

namespace gradwire::nccl_net {

class Link : public std::enable_shared_from_this<Link> {
 public:
  enum class State { kForming, kReady, kEnding, kFailed, kEnded };

  /// From here to the process that listens there.
  static std::shared_ptr<Link> begin(const Handle& to);
  /// From whoever has connected to `socket` and said hello.
  static std::shared_ptr<Link> take(Descriptor socket, const Hello& hello);
  Link(bool makes, Descriptor socket, const Handle& to);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const std::string& why() const { return why_; }
  /// Why nothing more comes on a connection that is over.
  [[nodiscard]] const char* why_over(const Connection& connection) const;
  [[nodiscard]] const Token& peer() const { return peer_; }
  /// Connections may be opened on it, now or soon.
  [[nodiscard]] bool is_usable() const { return !gives_way_ && (is_live() || is_forming()); }
  /// It is being made from here, and the other end has not answered.
  [[nodiscard]] bool is_asked_for() const {
    return makes_ && is_forming() && !answered_ && !gives_way_;
  }
  /// The other end is making one, which counts.
  void give_way() { gives_way_ = true; }

  /// Connections that one end of a link has open: another link takes more.
  static constexpr std::uint32_t kConnectionsMax = 2048;
  [[nodiscard]] bool is_full() const { return open_ >= kConnectionsMax; }
  /// Of a link that is ready.
  Connection* open(const Token& listener);
  void close(Connection& connection);
  /// @return nullptr: not now.
  Request* post_send(Connection& connection, void* data, std::uint64_t bytes);
  Request* post_receive(Connection& connection, void* data, std::uint64_t room);
  /// Takes in what has come, and copies kSegmentBytes at most: of `connection` if it sends.
  void progress(Connection* connection);

 private:
  /// A segment that has come.
  struct Arrival {
    Connection* connection = nullptr;
    SegmentHeader header;
    std::uint64_t bytes = 0;
    std::uint32_t slot = 0;
  };

  // link_setup.cc
  enum class Formed { kYes, kNo, kNotWanted };
  Formed form(const Hello& hello, std::string& why);
  Formed ask(Hello& own, Hello& other, std::string& why);
  Formed answer(Hello& own, const Hello& other, std::string& why);
  bool join(const Hello& maker, const Hello& taker, std::string& why);
  bool say_ready(bool ok, std::string& why);

  // link_thread.cc
  void run(const Hello& hello);
  void watch();
  void look_for_end(bool unused_too_long);
  void put(RecordKind kind);
  void take_down();
  void wake();

  // link.cc
  [[nodiscard]] bool is_forming() const { return state_ == State::kForming; }
  [[nodiscard]] bool is_live() const { return state_ == State::kReady || state_ == State::kEnding; }
  [[nodiscard]] bool is_idle() const {
    return sent_.is_idle() && came_.is_idle() && nothing_to_tell();
  }
  void fail(const std::string& why);
  /// The first reason is why the link ends.
  void note_broken(const std::string& why);
  /// Fails the link if transfers fail or the other process is gone, once all that came is taken.
  void check_end();
  void drop_if_over(Connection& connection);
  void post_receives();

  // link_words.cc
  [[nodiscard]] bool nothing_to_tell() const {
    return first_to_tell_ == nullptr && pipe_.is_empty();
  }
  [[nodiscard]] bool needs_words(const Connection* connection);
  /// The connection's state has changed, and the other end is to hear of it.
  void note_to_tell(Connection& connection);
  void tell();
  void tell_of(Connection& connection);
  static bool next_word(Connection& connection, Record& word);
  void take_records();
  void take(const Record& record);
  void on_open(const Record& record);
  void on_end(const Record& record);

  // link_send.cc
  void send_some(Connection& connection, std::uint64_t& budget);
  void fill();
  void on_sent(const Segments::Ended& sent);
  void on_state(Connection& connection, const Record& record);
  void on_closed_by_receiver(Connection& connection, const Record& record);
  void on_too_large(Connection& connection, const Record& record);

  // link_receive.cc
  void grant(Connection& connection);
  void expect_more(Connection& connection, std::uint64_t segments);
  void on_arrival(const Segments::Ended& ended);
  [[nodiscard]] bool fits(const Connection& connection, const SegmentHeader& header,
                          std::uint64_t bytes) const;
  void refuse_as_too_large(Connection& connection, const Request& request, std::uint64_t bytes);
  void copy_some(std::uint64_t& budget);
  void message_is_whole(Connection& connection, std::uint64_t message);
  void on_stopped_by_sender(Connection& connection, const Record& record);

  const bool makes_;
  State state_ = State::kForming;
  bool answered_ = false;
  bool gives_way_ = false;
  std::string why_;
  Token listener_{};  ///< whose address was connected to
  Token peer_{};
  Handle to_;
  std::shared_ptr<Clients> clients_;
  gw_client* client_ = nullptr;
  RecordPipe pipe_;
  Descriptor bell_;       ///< an eventfd: the thread is to look
  bool is_over_ = false;  ///< the other end needs it no more, and knew of all opened here
  bool ending_ = false;
  /// Transfers failed, or the other process is gone: nothing more is sent or posted, and what was
  /// said and sent before may still come.
  std::string broken_;
  std::chrono::steady_clock::time_point broken_since_;
  bool heard_end_ = false;
  bool said_last_ = false;

  gw_group* group_ = nullptr;
  gw_memory* memory_ = nullptr;
  char* base_ = nullptr;
  Segments sent_;
  Segments came_;
  std::uint64_t to_come_ = 0;  ///< segments, ever: so many receives are needed
  std::uint64_t arrived_ = 0;  ///< of these
  std::uint64_t told_fill_ = 0;
  std::uint64_t fill_to_ = 0;
  /// Segments that have come, in their order, and are not copied yet.
  std::array<Arrival, Segments::kSlots> arrivals_;
  std::uint64_t arrivals_head_ = 0;
  std::uint64_t arrivals_tail_ = 0;

  std::unordered_map<std::uint32_t, std::unique_ptr<Connection>> connections_;
  Connection* first_to_tell_ = nullptr;
  Connection* last_to_tell_ = nullptr;
  std::uint32_t open_ = 0;  ///< connections that are not closed here
  bool used_ = false;       ///< it had one
  std::uint32_t next_number_ = 0;
  std::uint64_t opened_ = 0;       ///< connections, from here, ever
  std::uint64_t heard_opens_ = 0;  ///< from the other end
  std::uint32_t calls_ = 0;
};

}  // namespace gradwire::nccl_net
