// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the plug-in has of this process: listeners, links, clients of the daemon. One lock guards
/// all of it, and whatever is in it. isend(), irecv() and test() only try to take the lock, and say
/// "not yet" while somebody else has it: nobody holds it for longer than a copy of one segment
/// takes. It is never destroyed, since links' threads may outlive main(). Allocates as connections
/// come.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nccl_net/abi.h"
#include "nccl_net/daemon.h"
#include "nccl_net/descriptor.h"
#include "nccl_net/doorstep.h"
#include "nccl_net/link.h"
#include "nccl_net/messages.h"

namespace gradwire::nccl_net {

/// One process is meant by each listener.
constexpr std::size_t kNewcomersMax = 16;

struct Listener {
  Descriptor socket;
  Token token{};
  bool links = false;
  Doorstep doorstep{sizeof(Hello), kNewcomersMax};
  std::deque<Connection*> opened;  ///< that accept() has not given to NCCL
};

class Engine {
 public:
  static Engine& get();

  std::mutex mutex;
  /// How long a link stays on which nobody opens a connection: NCCL asks for it all the time until
  /// it has one, and says nothing if it gives up. Tests shorten it.
  std::chrono::milliseconds unused_bound{10'000};

  /// Random, of this process.
  [[nodiscard]] const Token& process() const { return process_; }
  /// Opened when they are needed first, and again if the daemon was started again. Takes a lock of
  /// its own. @return nullptr: `why` says what is wrong.
  std::shared_ptr<Clients> clients(std::string& why);

  // These take the lock. None waits for anybody; *out stays null until there is a connection.
  /// @param links  connections of links come, and nobody else takes them
  Status listen(Handle& handle, bool links, Listener** out);
  Status connect(Handle& handle, Connection** out);
  Status accept(Listener& listener, Connection** out);
  void close(Listener* listener);
  void close(Connection* connection);

  // These are called with the lock.
  /// A connection that the other end has opened. @return false: nobody listens there.
  bool offer(const Token& listener, Connection* connection);
  [[nodiscard]] bool listens(const Token& listener) const {
    return listeners_.count(listener) != 0;
  }
  /// Takes the lock: the link's thread ends.
  void forget(const Link& link);

 private:
  /// Takes in who has come to any listener: links are for all of them.
  void look_at_doors();
  /// Makes a link of a socket, if it was one of us who said that.
  void welcome(Descriptor socket, const Hello& hello);
  /// That process connects here. @return false: it has to take the link that is made from here.
  bool gives_way(const Token& process);
  Engine();
  /// A connect() that has not given a connection yet. One that NCCL gives up stays, without a link
  /// in the end, and the oldest of too many is forgotten: whoever still asks then begins again.
  struct Attempt {
    std::shared_ptr<Link> link;  ///< nullptr: it has failed and is gone
    bool own = false;            ///< the link was made for it
    std::string why;             ///< the link has failed
  };
  Attempt begin(const Handle& handle, bool own);

  Token process_{};
  std::mutex clients_mutex_;
  std::shared_ptr<Clients> clients_;
  std::map<Token, Listener*> listeners_;
  std::vector<std::shared_ptr<Link>> links_;
  std::map<std::uint64_t, Attempt> attempts_;
  std::uint64_t next_attempt_ = 1;
};

}  // namespace gradwire::nccl_net
