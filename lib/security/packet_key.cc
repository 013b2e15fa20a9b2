// SPDX-License-Identifier: BSD-3-Clause
#include "security/packet_key.h"

#include <openssl/crypto.h>

#include "base/require.h"
#include "security/cipher_states.h"

namespace gradwire::security {

#ifndef GRADWIRE_HAVE_IPSEC_MB
std::unique_ptr<PacketKey::State> make_ipsec_mb_state(const SecretBytes<16>&) { return nullptr; }
std::size_t ipsec_mb_state_bytes() { return 0; }
std::string ipsec_mb_text() { return {}; }
#endif

bool cpu_has_aes() noexcept {
#ifdef __x86_64__
  return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#else
  return false;
#endif
}

bool available(Cipher cipher) noexcept {
  static const bool kIpsecMbThere = !ipsec_mb_text().empty();
  return cipher == Cipher::kOpenSsl || kIpsecMbThere;
}

Cipher best_cipher() noexcept {
  return available(Cipher::kIpsecMb) ? Cipher::kIpsecMb : Cipher::kOpenSsl;
}

std::size_t packet_key_bytes() noexcept {
  constexpr std::size_t kIvBytes = 64;  // the least that secret memory gives
  // OpenSSL's tables lie in memory of its own, and take about as much.
  constexpr std::size_t kOpenSslBytes = 1'024;
  return kIvBytes + (available(Cipher::kIpsecMb) ? ipsec_mb_state_bytes() : kOpenSslBytes);
}

std::string text_of(Cipher cipher) {
  if (cipher == Cipher::kIpsecMb) {
    const std::string text = ipsec_mb_text();
    return text.empty() ? "ipsec-mb (not to be had)" : text;
  }
  return std::string("OpenSSL ") + OpenSSL_version(OPENSSL_VERSION_STRING) +
         (cpu_has_aes() ? "" : " (without AES instructions)");
}

PacketKey::PacketKey(Mode mode, const PacketSecret& secret, Cipher cipher)
    : mode_(mode), iv_(std::make_unique<Iv>()) {
  require(mode == Mode::kAuthenticate || mode == Mode::kEncrypt, "a packet key has a mode");
  iv_->bytes = secret.iv;
  state_ =
      cipher == Cipher::kIpsecMb ? make_ipsec_mb_state(secret.key) : make_openssl_state(secret.key);
  require(state_ != nullptr, "a packet key's cipher is available");
}

}  // namespace gradwire::security
