// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Static probes (USDT) of the provider `gradwire`, for bpftrace and whatever else attaches to
/// them: a nop each until somebody does. scripts/bpf has programs that use them; their arguments
/// are in doc/operations.md. Without systemtap's header they are nothing. Any thread.
#pragma once

#if __has_include(<sys/sdt.h>) && !defined(GRADWIRE_NO_USDT)
#include <sys/sdt.h>
#define GRADWIRE_PROBE5(name, ...) STAP_PROBE5(gradwire, name, __VA_ARGS__)
#define GRADWIRE_PROBE6(name, ...) STAP_PROBE6(gradwire, name, __VA_ARGS__)
#else
#define GRADWIRE_PROBE5(name, ...) static_cast<void>(0)
#define GRADWIRE_PROBE6(name, ...) static_cast<void>(0)
#endif
