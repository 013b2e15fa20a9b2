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
  std::uint64_t bytes = 0;    ///< of the message; of a receive once it is known
  std::uint64_t told = 0;     ///< cut into segments, here or there
  std::uint64_t through = 0;  ///< of those, what has arrived, or was copied to the receive
};

struct Connection {
  std::uint32_t number = 0;  ///< in its link
  bool sends = false;
  std::shared_ptr<Link> link;

  // Messages are counted from 0. Message n has request n % kRequestsMax.
  std::uint64_t posted = 0;   ///< isend() or irecv() were called for so many
  std::uint64_t begun = 0;    ///< so many were told of whole: sent to the other end, or come
  std::uint64_t granted = 0;  ///< of a sender: so many have their receive posted
  std::uint64_t taken = 0;    ///< of a receiver: so many have come whole, one after the other
  std::array<Request, kRequestsMax> requests;
  std::array<std::uint64_t, kRequestsMax> grants{};  ///< of a sender: room, by message
  std::array<bool, kRequestsMax> whole{};            ///< of a receiver, from `taken` on: come whole

  std::uint32_t in_slots = 0;  ///< segments of it that are in the link's slots
  bool closed = false;         ///< here
  bool peer_closed = false;    ///< the other end has said so
  bool warned = false;         ///< NCCL's log has its error

  [[nodiscard]] Request& request(std::uint64_t message) { return requests[message % kRequestsMax]; }
};

}  // namespace gradwire::nccl_net
