// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// TCP sockets while processes meet: words of a known size, and waits that have a bound. For
/// threads that may wait. Nothing allocates but texts of errors.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <string>

namespace gradwire::nccl_net {

/// How long each send and receive may take.
void bound_waits(int socket, time_t seconds);
/// @return a socket that is connected and blocks; -1: `why` says what is wrong.
int connect_to(const sockaddr_in6& address, time_t seconds, std::string& why);

/// @return false: not all of it went, or came, within the bound.
bool say_bytes(int socket, const void* data, std::size_t bytes);
bool hear_bytes(int socket, void* data, std::size_t bytes);

template <class Word>
bool say(int socket, const Word& word) {
  return say_bytes(socket, &word, sizeof(word));
}
template <class Word>
bool hear(int socket, Word& word) {
  return hear_bytes(socket, &word, sizeof(word));
}

}  // namespace gradwire::nccl_net
