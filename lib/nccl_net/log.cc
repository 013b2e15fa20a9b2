// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace gradwire::nccl_net {
namespace {

std::atomic<Logger> g_logger{nullptr};

void say(int level, const char* format, va_list arguments) {
  const Logger logger = g_logger.load();
  if (logger == nullptr) return;
  char text[1024];
  std::vsnprintf(text, sizeof(text), format, arguments);
  logger(level, kLogInit | kLogNet, "nccl_net", 0, "NET/gradwire: %s", text);
}

}  // namespace

void set_logger(Logger logger) { g_logger.store(logger); }

void warn(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(kLogWarn, format, arguments);
  va_end(arguments);
}

void inform(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(kLogInfo, format, arguments);
  va_end(arguments);
}

}  // namespace gradwire::nccl_net
