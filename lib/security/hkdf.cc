// SPDX-License-Identifier: BSD-3-Clause
#include "security/hkdf.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <memory>
#include <string>
#include <vector>

#include "base/require.h"
#include "security/raw.h"

namespace gradwire::security {
namespace {

OSSL_PARAM octets(const char* name, std::span<const std::byte> bytes) {
  // OpenSSL takes a pointer to what it only reads; an empty one must not be null.
  static std::byte none{};
  void* data = bytes.empty() ? &none : const_cast<std::byte*>(bytes.data());
  return OSSL_PARAM_construct_octet_string(name, data, bytes.size());
}

/// HKDF-Expand.
void hkdf_expand(OSSL_PARAM key, OSSL_PARAM info, std::span<std::byte> out) {
  static EVP_KDF* const kKdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(EVP_KDF_CTX_new(kKdf),
                                                                          &EVP_KDF_CTX_free);
  std::string digest = "SHA256";
  int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), digest.size()),
      key,
      info,
      OSSL_PARAM_construct_end(),
  };
  require(
      context != nullptr && EVP_KDF_derive(context.get(), raw(out.data()), out.size(), params) == 1,
      "OpenSSL makes HKDF-SHA-256");
}

}  // namespace

Sha256 sha256(std::span<const std::byte> bytes) {
  Sha256 out;
  require(
      EVP_Digest(bytes.data(), bytes.size(), raw(out.data()), nullptr, EVP_sha256(), nullptr) == 1,
      "OpenSSL makes SHA-256");
  return out;
}

Secret32 hmac(std::span<const std::byte> key, std::span<const std::byte> bytes) {
  Secret32 out;
  require(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), raw(bytes.data()),
               bytes.size(), raw(out.span().data()), nullptr) != nullptr,
          "OpenSSL makes HMAC-SHA-256");
  return out;
}

Secret32 extract(std::span<const std::byte> salt, std::span<const std::byte> secret) {
  // RFC 5869 section 2.2. Not by OpenSSL's HKDF, which frees its copy of the salt without clearing
  // it: salts here are secrets.
  return hmac(salt, secret);
}

Secret32 extract(std::string_view salt, std::span<const std::byte> secret) {
  return extract(std::as_bytes(std::span(salt)), secret);
}

void expand_info(std::span<const std::byte> secret, std::span<const std::byte> info,
                 std::span<std::byte> out) {
  hkdf_expand(octets(OSSL_KDF_PARAM_KEY, secret), octets(OSSL_KDF_PARAM_INFO, info), out);
}

void expand(std::span<const std::byte> secret, std::string_view label,
            std::span<const std::byte> context, std::span<std::byte> out) {
  std::vector<std::byte> info;
  info.reserve(label.size() + 1 + context.size());
  const auto text = std::as_bytes(std::span(label));
  info.insert(info.end(), text.begin(), text.end());
  info.push_back(std::byte{0});
  info.insert(info.end(), context.begin(), context.end());
  expand_info(secret, info, out);
}

}  // namespace gradwire::security
