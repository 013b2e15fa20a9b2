// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the reference plug-in reads from its environment, once, when it is first initialised.
///
///     GRADWIRE_SOCKETS_CONNECTIONS  2 to 8 connections that carry data, for each channel: 4
///     GRADWIRE_SOCKETS_THREADS      helper threads of each channel: 2. 0: none, and one
///     connection,
///                                   which test() drives: what NCCL has on most NICs
///     GRADWIRE_SOCKETS_RECEIVES     receives of one irecv(), 1 to 8: 1
///     GRADWIRE_SOCKETS_ADDRESS      this rank's IPv4 address: 127.0.0.1
///     GRADWIRE_SOCKETS_FAULT        a planted fault, by the name that kFaultNames has: none
///
/// Any thread; nothing here allocates.
#pragma once

#include <netinet/in.h>

#include <cstddef>

#include "nccl_net/abi.h"

namespace gradwire::nccl {

/// Mistakes that the player has to find.
enum class Fault {
  kNone,
  kWrongByte,     ///< one byte of a received message is another
  kEarlyRecv,     ///< a receive completes before its bytes are there
  kEarlySend,     ///< a send completes before its bytes were read
  kLateWrite,     ///< bytes of a receive are written again after it completed
  kNoSize,        ///< a receive does not say how much came
  kLost,          ///< a request never completes
  kStaleRequest,  ///< "try later" leaves *request as it was
  kBlocks,        ///< test() sleeps
  kWrongSum,      ///< one element of an all-reduce is another
  kSilentDeath,   ///< a peer that is gone is no error
};
constexpr const char* kFaultNames[] = {"none",       "wrong_byte", "early_recv",  "early_send",
                                       "late_write", "no_size",    "lost",        "stale_request",
                                       "blocks",     "wrong_sum",  "silent_death"};

constexpr int kReceivesMax = 8;
/// A message is cut into as many pieces as there are connections, within these bounds.
constexpr std::size_t kPieceBytesMin = 128 << 10;
constexpr std::size_t kPieceBytesMax = 1 << 20;

struct Settings {
  int connections = 4;
  int threads = 2;
  int receives = 1;
  in_addr address{};
  Fault fault = Fault::kNone;
};

/// Read at the first call. A value that makes no sense is told on stderr and replaced by the
/// default.
const Settings& settings();

/// What NCCL gave to init(); null before.
void set_logger(nccl_net::Logger logger);
void log_warning(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace gradwire::nccl
