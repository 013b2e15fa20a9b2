// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the functions of the C interface share: they check what C callers pass, keep exceptions
/// inside, and keep the last error of each thread. Any thread.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include "client/client.h"
#include "client/gradwire.h"
#include "client/version.h"

struct gw_client {
  std::shared_ptr<gradwire::client::Client> client;
};

namespace gradwire::client {

inline constexpr std::uint32_t kMaxTimeoutMs = 3'600'000;

/// Keeps the text for gw_last_error(). Never allocates.
gw_status report(ErrorCode code, std::string_view text) noexcept;
inline gw_status report(const Error& error) noexcept { return report(error.code, error.message); }

/// Runs `body`, which returns Result<void>, and turns its result, or an exception, into a status.
template <class Body>
gw_status guarded(Body body) noexcept {
  try {
    const Result<void> result = body();
    return result ? GW_OK : report(result.error());
  } catch (const std::bad_alloc&) {
    return report(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& exception) {
    return report(ErrorCode::kInternal, exception.what());
  } catch (...) {
    return report(ErrorCode::kInternal, "an exception without a text");
  }
}

inline tl::unexpected<Error> null_argument(const char* name) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{} is NULL", name));
}

inline tl::unexpected<Error> forked() {
  return fail(ErrorCode::kUnavailable,
              "this handle was opened by the parent process before fork(): open your own");
}

/// Copies the caller's struct, which may be longer or shorter than this library's, into this
/// library's.
/// @param first_bytes  size of the struct in the first version of the interface.
template <class T>
Result<T> read_struct(const T* given, std::size_t first_bytes, const char* name) {
  T known{};
  if (given == nullptr) return known;
  if (given->struct_bytes < first_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}.struct_bytes is {}: set it to sizeof({})", name,
                            given->struct_bytes, name));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < given->struct_bytes; ++i) {
    if (bytes[i] != 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} sets a field that this library, gradwire {}, does not know: "
                              "leave it 0, or install a newer one",
                              name, GRADWIRE_VERSION));
    }
  }
  std::memcpy(&known, given, std::min<std::size_t>(sizeof(T), given->struct_bytes));
  return known;
}

template <class T>
Result<void> write_struct(T value, T* target, const char* name) {
  if (target == nullptr) return null_argument(name);
  const std::uint32_t bytes = target->struct_bytes;
  if (bytes < sizeof(std::uint32_t)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}.struct_bytes is {}: set it to sizeof({})", name, bytes, name));
  }
  value.struct_bytes = bytes;
  std::memcpy(target, &value, std::min<std::size_t>(sizeof(T), bytes));
  return {};
}

inline Result<std::uint32_t> bounded(std::uint32_t value, std::uint32_t otherwise,
                                     std::uint32_t most, const char* name) {
  if (value == 0) return otherwise;
  if (value > most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is {}: at most {}", name, value, most));
  }
  return value;
}

inline bool is_forked(const gw_client* handle) noexcept { return handle->client->is_forked(); }
template <class Handle>
bool is_forked(const Handle* handle) noexcept {
  return handle->client->is_forked();
}

}  // namespace gradwire::client
