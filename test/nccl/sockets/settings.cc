// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/sockets/settings.h"

#include <arpa/inet.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace gradwire::nccl {
namespace {

int number(const char* name, int lowest, int highest, int otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  const int value = std::atoi(text);
  if (value >= lowest && value <= highest) return value;
  std::fprintf(stderr, "%s=%s: %d to %d is wanted; %d is taken\n", name, text, lowest, highest,
               otherwise);
  return otherwise;
}

Fault planted() {
  const char* text = std::getenv("GRADWIRE_SOCKETS_FAULT");
  if (text == nullptr) return Fault::kNone;
  for (std::size_t i = 0; i < std::size(kFaultNames); ++i) {
    if (std::strcmp(text, kFaultNames[i]) == 0) return static_cast<Fault>(i);
  }
  std::fprintf(stderr, "GRADWIRE_SOCKETS_FAULT=%s: there is no such fault\n", text);
  std::abort();  // a test that plants nothing would pass
}

Settings read_settings() {
  Settings read;
  read.connections = number("GRADWIRE_SOCKETS_CONNECTIONS", 2, 8, 4);
  read.threads = number("GRADWIRE_SOCKETS_THREADS", 0, read.connections, 2);
  if (read.threads == 0) read.connections = 0;
  read.receives = number("GRADWIRE_SOCKETS_RECEIVES", 1, kReceivesMax, 1);
  const char* address = std::getenv("GRADWIRE_SOCKETS_ADDRESS");
  if (address == nullptr || inet_pton(AF_INET, address, &read.address) != 1) {
    read.address.s_addr = htonl(INADDR_LOOPBACK);
  }
  read.fault = planted();
  return read;
}

std::atomic<nccl_net::Logger> g_logger{nullptr};

}  // namespace

const Settings& settings() {
  static const Settings read = read_settings();
  return read;
}

void set_logger(nccl_net::Logger logger) { g_logger.store(logger); }

void log_warning(const char* format, ...) {
  const nccl_net::Logger logger = g_logger.load();
  if (logger == nullptr) return;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  logger(nccl_net::kLogWarn, nccl_net::kLogNet, __FILE__, __LINE__, "%s", text);
}

}  // namespace gradwire::nccl
