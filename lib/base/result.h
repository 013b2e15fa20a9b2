// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a control-path function returns: a value, or an error with a code and a sentence that
/// names the thing, its value and what would be right. The datapath does not use it.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace gradwire {

/// The values cross the control socket and the C ABI (`gw_status`): never renumber.
enum class ErrorCode : std::uint32_t {
  kOk = 0,
  kInvalidArgument = 1,    ///< the caller's value is out of its bounds
  kNotFound = 2,           ///< no such handle, group, file, port
  kPermission = 3,         ///< another user's thing, or the socket's mode
  kBusy = 4,               ///< in use: try again, or another name
  kTimedOut = 5,           ///< a bound passed; nothing was aborted
  kAborted = 6,            ///< the group was aborted; the text says by whom and why
  kUnavailable = 7,        ///< the daemon is not there, went away, is stopping or is draining
  kResourceExhausted = 8,  ///< quota, hugepages, mbufs
  kMismatch = 9,           ///< ranks or members called different things
  kUnsupported = 10,       ///< well-formed, and not to be had here
  kSystem = 11,            ///< a system or library call failed; the text has its error
  kInternal = 12,          ///< a bug of ours
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace gradwire
