// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// TCP sockets while processes meet: words of a known size, and waits that end at a known time,
/// whatever signals come and however slowly the other end speaks. For threads that may wait.
/// Nothing allocates but texts of errors.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <chrono>
#include <string>

#include "nccl_net/descriptor.h"

namespace gradwire::nccl_net {

using SetupClock = std::chrono::steady_clock;
using SetupTime = SetupClock::time_point;

/// As poll() has it: rounded up, and 0 if it is over.
int milliseconds_to(SetupTime until);
/// @param events  as poll() has them.
/// @return false: nothing of the kind until then.
bool wait_for(int socket, short events, SetupTime until);
/// @return a socket that is connected; empty: `why` says what is wrong.
Descriptor connect_to(const sockaddr_in6& address, SetupTime until, std::string& why);

/// @return false: not all of it went, or came, until then.
bool say_bytes(int socket, const void* data, std::size_t bytes, SetupTime until);
bool hear_bytes(int socket, void* data, std::size_t bytes, SetupTime until);

template <class Word>
bool say(int socket, const Word& word, SetupTime until) {
  return say_bytes(socket, &word, sizeof(word), until);
}
template <class Word>
bool hear(int socket, Word& word, SetupTime until) {
  return hear_bytes(socket, &word, sizeof(word), until);
}

}  // namespace gradwire::nccl_net
