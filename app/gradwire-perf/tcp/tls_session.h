// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// TLS 1.3 with AES-128-GCM on a connected TCP socket: the peer that gradwire's own sealing is
/// compared with. OpenSSL shakes hands; then the kernel seals or opens records if it and OpenSSL
/// can (kTLS), each direction by itself, or else OpenSSL does. Both ends have one key, which stands
/// in this program: it measures what TLS costs, and protects nothing. One thread. Allocates when it
/// is made; sending and receiving never block.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

struct ssl_st;

namespace gradwire::perf {

enum class TlsEnd : std::uint8_t { kClient, kServer };

class TlsSession {
 public:
  /// Shakes hands. Makes the socket non-blocking, and has this process ignore SIGPIPE, since
  /// OpenSSL writes without MSG_NOSIGNAL.
  /// @return kTimedOut, or kUnavailable with OpenSSL's reason, such as "wrong version number" for
  /// a peer that does not speak TLS.
  [[nodiscard]] static Result<TlsSession> establish(int fd, TlsEnd end,
                                                    std::chrono::steady_clock::time_point deadline);

  [[nodiscard]] bool kernel_seals() const noexcept;
  [[nodiscard]] bool kernel_opens() const noexcept;
  /// "TLS 1.3, TLS_AES_128_GCM_SHA256, sealed by OpenSSL, opened by the kernel".
  [[nodiscard]] std::string text() const;

  /// As TcpSocket::send() and receive(), if OpenSSL does it; one record at most. errno is EBADMSG
  /// for a record that does not open, EPROTO for anything else that is not TLS's.
  /// What could not be sent at once must be offered again, with at least as many bytes.
  [[nodiscard]] std::optional<std::size_t> send(std::span<const std::byte> bytes) noexcept;
  [[nodiscard]] std::optional<std::size_t> receive(std::span<std::byte> bytes) noexcept;

 private:
  struct Free {
    void operator()(ssl_st* ssl) const noexcept;
  };
  explicit TlsSession(ssl_st* ssl) noexcept : ssl_(ssl) {}
  /// @return 0 if the call may be repeated, else nothing and errno.
  [[nodiscard]] std::optional<std::size_t> not_done(int returned) noexcept;

  std::unique_ptr<ssl_st, Free> ssl_;
};

}  // namespace gradwire::perf
