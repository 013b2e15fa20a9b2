// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One connection of NCCL's, at one of its ends, and the requests on it. Plain data, which Engine's
/// lock guards, except for `state`. Nothing allocates after it was made.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "nccl_net/abi.h"
#include "nccl_net/messages.h"

namespace gradwire::nccl_net {

class Link;
struct Connection;

struct Request {
  enum State : int { kFree, kPosted, kDone, kFailed };
  std::atomic<int> state{kFree};
  Connection* connection = nullptr;
  char* data = nullptr;
  std::uint64_t message = 0;  ///< whose request it is
  std::uint64_t room = 0;     ///< of a receive
  std::uint64_t bytes = 0;    ///< of the message; of a receive once it is `known`
  std::uint64_t told = 0;     ///< of a send: so much was cut into segments
  std::uint64_t through = 0;  ///< what has arrived at the other end, or was copied to the receive
  bool known = false;         ///< of a receive: how many segments come is counted
};

struct Connection {
  std::uint32_t number = 0;  ///< in its link
  bool sends = false;
  std::shared_ptr<Link> link;
  Token listener{};  ///< of a sender: where it was opened

  // Messages are counted from 0. Message n has request n % kRequestsMax.
  std::uint64_t posted = 0;  ///< isend() or irecv() were called for so many
  // Of a sender.
  std::uint64_t begun = 0;    ///< so many were sent whole
  std::uint64_t granted = 0;  ///< so many have their receive posted
  bool stopped = false;       ///< nothing more is begun
  // Of a receiver.
  std::uint64_t taken = 0;                 ///< so many have come whole, one after the other
  std::array<bool, kRequestsMax> whole{};  ///< from `taken` on: come whole
  std::uint64_t to_come = 0;               ///< segments, as far as is known
  std::uint64_t arrived = 0;               ///< of these
  bool peer_stopped = false;               ///< it is known what still comes
  bool too_large = false;
  std::uint64_t large_room = 0;
  std::uint64_t large_bytes = 0;

  std::array<Request, kRequestsMax> requests;
  std::uint32_t in_slots = 0;  ///< segments of it that are in the link's memory
  bool closed = false;         ///< here
  bool peer_closed = false;    ///< the other end has said so
  bool warned = false;         ///< NCCL's log has its error

  // What the other end was told.
  bool told_open = false;
  bool told_stopped = false;
  bool told_closed = false;
  bool told_too_large = false;
  std::uint64_t told_granted = 0;
  std::uint64_t told_taken = 0;
  bool waits_to_tell = false;  ///< it is in the link's list
  Connection* next_to_tell = nullptr;

  [[nodiscard]] Request& request(std::uint64_t message) { return requests[message % kRequestsMax]; }
  /// Nothing more comes or goes by it, whatever was posted.
  [[nodiscard]] bool is_over() const { return peer_closed || stopped || peer_stopped || too_large; }
};

}  // namespace gradwire::nccl_net
