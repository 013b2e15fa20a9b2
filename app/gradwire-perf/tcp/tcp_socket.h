// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// TCP sockets of the bench: set up within a deadline, tuned for large and small messages, with
/// MSG_ZEROCOPY or TLS if wanted. One thread. Sending and receiving never block and allocate
/// nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "tcp/tls_session.h"

namespace gradwire::perf {

using Clock = std::chrono::steady_clock;

/// Below it, pinning pages costs more than copying them (the kernel's documentation says 10 KB).
inline constexpr std::size_t kZerocopyBytes = 16 * 1024;

struct TcpTuning {
  std::uint64_t buffer_bytes =
      0;  ///< of each direction's socket buffer; 0: the kernel's own tuning
  bool zerocopy = false;
};

/// What the kernel counted for one connection.
struct TcpCounts {
  std::uint64_t tx_packets = 0;  ///< segments of the MSS, acknowledgements too
  std::uint64_t rx_packets = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t tx_bytes = 0;
};

/// A descriptor with a destructor. -1: none.
class TcpSocket {
 public:
  TcpSocket() = default;
  explicit TcpSocket(int fd) noexcept : fd_(fd) {}
  TcpSocket(TcpSocket&& other) noexcept;
  TcpSocket& operator=(TcpSocket&& other) noexcept;
  ~TcpSocket();

  [[nodiscard]] int fd() const noexcept { return fd_; }

  /// Before it is connected, or once it was accepted.
  [[nodiscard]] Result<void> tune(const TcpTuning& tuning);
  /// From now on all bytes go by TLS. Not with `zerocopy`. @return as TlsSession::establish().
  [[nodiscard]] Result<void> secure(TlsEnd end, Clock::time_point deadline);
  /// TlsSession::text(), or nothing without TLS.
  [[nodiscard]] std::string tls_text() const { return tls_ ? tls_->text() : std::string(); }
  /// @return bytes taken, 0 if none can be now, nothing on an error that errno has.
  [[nodiscard]] std::optional<std::size_t> send(std::span<const std::byte> bytes) noexcept;
  /// Likewise; a peer that closed is an error, ECONNRESET.
  [[nodiscard]] std::optional<std::size_t> receive(std::span<std::byte> bytes) noexcept;
  /// Whether the kernel refers to nothing that was sent with MSG_ZEROCOPY. Does not wait.
  [[nodiscard]] bool released() noexcept;
  [[nodiscard]] TcpCounts counts() const noexcept;

 private:
  void reap() noexcept;  ///< reads the kernel's notices about MSG_ZEROCOPY sends

  int fd_ = -1;
  bool zerocopy_ = false;
  std::uint32_t zerocopy_sends_ = 0;
  std::uint32_t zerocopy_done_ = 0;
  std::unique_ptr<TlsSession> tls_;  ///< of this descriptor; none: in clear
  bool seals_here_ = false;          ///< OpenSSL seals what is sent, or ...
  bool opens_here_ = false;          ///< opens what comes; else the kernel, or nobody
};

/// Listens on `port` of `address`, a numeric one or a name; port 0 is a free one. Buffers are set
/// from the first packet on: the window's scale depends on them.
[[nodiscard]] Result<TcpSocket> tcp_listen(const std::string& address, std::uint16_t port,
                                           const TcpTuning& tuning);
[[nodiscard]] Result<std::uint16_t> tcp_port(const TcpSocket& listener);
[[nodiscard]] Result<TcpSocket> tcp_accept(const TcpSocket& listener, const TcpTuning& tuning,
                                           Clock::time_point deadline);
/// Retries while the connection is refused.
[[nodiscard]] Result<TcpSocket> tcp_connect(const std::string& address, std::uint16_t port,
                                            const TcpTuning& tuning, Clock::time_point deadline);
/// For setting up: all of the bytes, or kTimedOut.
[[nodiscard]] Result<void> tcp_send_all(TcpSocket& socket, std::span<const std::byte> bytes,
                                        Clock::time_point deadline);
[[nodiscard]] Result<void> tcp_receive_all(TcpSocket& socket, std::span<std::byte> bytes,
                                           Clock::time_point deadline);

}  // namespace gradwire::perf
