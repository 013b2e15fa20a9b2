// SPDX-License-Identifier: BSD-3-Clause
#include "tcp/tls_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace gradwire::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
constexpr const char* kIdentity = "gradwire-perf";
/// Records of one system call of OpenSSL's; a record has up to 16 KB.
constexpr std::size_t kReadBufferBytes = 256 << 10;

/// OpenSSL's oldest complaint, in its words.
std::string reason() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* const text = ERR_reason_error_string(error);
  return text != nullptr ? text : "it gives no reason";
}

tl::unexpected<Error> refuse(const char* what) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("--tls: OpenSSL refuses {}: {}", what, reason()));
}

/// What both ends would have kept of an earlier connection: the key that they have in common.
SSL_SESSION* shared_key(SSL* ssl) {
  constexpr std::array<unsigned char, 32> kKey = {'g', 'r', 'a', 'd', 'w', 'i', 'r', 'e'};
  constexpr std::array<unsigned char, 2> kSuiteId = {0x13, 0x01};
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kSuiteId.data());
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  if (cipher != nullptr && SSL_SESSION_set1_master_key(session, kKey.data(), kKey.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int use_key(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** identity, std::size_t* bytes,
            SSL_SESSION** session) {
  *identity = reinterpret_cast<const unsigned char*>(kIdentity);
  *bytes = std::strlen(kIdentity);
  *session = shared_key(ssl);
  return *session != nullptr;
}

int find_key(SSL* ssl, const unsigned char* identity, std::size_t bytes, SSL_SESSION** session) {
  const bool known =
      bytes == std::strlen(kIdentity) && std::memcmp(identity, kIdentity, bytes) == 0;
  *session = known ? shared_key(ssl) : nullptr;
  return 1;
}

struct FreeContext {
  void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
};
using Context = std::unique_ptr<SSL_CTX, FreeContext>;

Result<Context> make_context(TlsEnd end) {
  Context context(SSL_CTX_new(end == TlsEnd::kClient ? TLS_client_method() : TLS_server_method()));
  if (context == nullptr) return refuse("a context");
  SSL_CTX* const c = context.get();
  if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1) return refuse("TLS 1.3");
  if (SSL_CTX_set_ciphersuites(c, kSuite) != 1) return refuse(kSuite);
  SSL_CTX_set_options(c, SSL_OP_ENABLE_KTLS);
  // Nobody comes back; and the kernel would take a ticket for data.
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_read_buffer_len(c, kReadBufferBytes);
  SSL_CTX_set_psk_use_session_callback(c, use_key);
  SSL_CTX_set_psk_find_session_callback(c, find_key);
  return context;
}

Result<void> shake_hands(SSL* ssl, int fd, Clock::time_point deadline) {
  while (true) {
    ERR_clear_error();
    errno = 0;
    const int done = SSL_do_handshake(ssl);
    if (done == 1) return {};
    const int error = SSL_get_error(ssl, done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      const std::string why = ERR_peek_error() != 0 ? reason()
                              : errno != 0          ? std::strerror(errno)
                                                    : "it closed the connection";
      return fail(ErrorCode::kUnavailable, fmt::format("TLS is not agreed on: {}", why));
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd poll_fd{fd, static_cast<short>(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT), 0};
    if (left <= 0 || ::poll(&poll_fd, 1, static_cast<int>(std::min<long>(left, 3'600'000))) == 0) {
      return fail(ErrorCode::kTimedOut, "TLS is not agreed on: no answer in time");
    }
  }
}

}  // namespace

void TlsSession::Free::operator()(ssl_st* ssl) const noexcept { SSL_free(ssl); }

Result<TlsSession> TlsSession::establish(int fd, TlsEnd end, Clock::time_point deadline) {
  const auto context = make_context(end);
  if (!context) return tl::unexpected(context.error());
  TlsSession session(SSL_new(context->get()));
  SSL* const ssl = session.ssl_.get();
  if (ssl == nullptr) return refuse("a connection");
  std::signal(SIGPIPE, SIG_IGN);
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || SSL_set_fd(ssl, fd) != 1) {
    return refuse("the socket");
  }
  end == TlsEnd::kClient ? SSL_set_connect_state(ssl) : SSL_set_accept_state(ssl);
  if (auto agreed = shake_hands(ssl, fd, deadline); !agreed) return tl::unexpected(agreed.error());
  // As much as there is, in one system call; the kernel hands out records by itself.
  if (!session.kernel_opens()) SSL_set_read_ahead(ssl, 1);
  return session;
}

bool TlsSession::kernel_seals() const noexcept {
  return BIO_get_ktls_send(SSL_get_wbio(ssl_.get())) != 0;
}
bool TlsSession::kernel_opens() const noexcept {
  return BIO_get_ktls_recv(SSL_get_rbio(ssl_.get())) != 0;
}

std::string TlsSession::text() const {
  const auto by = [](bool kernel) { return kernel ? "the kernel" : "OpenSSL"; };
  return fmt::format("{}, {}, sealed by {}, opened by {}", SSL_get_version(ssl_.get()),
                     SSL_get_cipher_name(ssl_.get()), by(kernel_seals()), by(kernel_opens()));
}

std::optional<std::size_t> TlsSession::send(std::span<const std::byte> bytes) noexcept {
  ERR_clear_error();
  std::size_t taken = 0;
  const int returned = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &taken);
  return returned == 1 ? taken : not_done(returned);
}

std::optional<std::size_t> TlsSession::receive(std::span<std::byte> bytes) noexcept {
  ERR_clear_error();
  std::size_t got = 0;
  const int returned = SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &got);
  return returned == 1 ? got : not_done(returned);
}

std::optional<std::size_t> TlsSession::not_done(int returned) noexcept {
  const int system = errno;
  switch (SSL_get_error(ssl_.get(), returned)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return 0;
    case SSL_ERROR_SYSCALL:
      errno = system != 0 ? system : ECONNRESET;
      return std::nullopt;
    case SSL_ERROR_ZERO_RETURN:
      errno = ECONNRESET;
      return std::nullopt;
    default:
      break;
  }
  switch (ERR_GET_REASON(ERR_peek_error())) {
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_BAD_RECORD_TYPE:
      errno = EBADMSG;
      break;
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      errno = ECONNRESET;
      break;
    default:
      errno = EPROTO;
  }
  return std::nullopt;
}

}  // namespace gradwire::perf
