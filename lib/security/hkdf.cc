// SPDX-License-Identifier: BSD-3-Clause
#include "security/hkdf.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/require.h"
#include "security/raw.h"

namespace gradwire::security {
namespace {

/// HMAC-SHA-256 by OpenSSL. Its HMAC() and its HKDF look for the digest by name at each call, which
/// takes longer than the work; this copies what has found it once. Freed, it clears its states.
class Mac {
 public:
  explicit Mac(std::span<const std::byte> key) : context_(EVP_MAC_CTX_dup(prepared())) {
    // A null key would mean the last one's, and there is none.
    static constexpr std::byte kNone{};
    begin(key.empty() ? &kNone : key.data(), key.size());
  }
  /// Once more by the same key.
  void begin_again() { begin(nullptr, 0); }
  void add(std::span<const std::byte> bytes) {
    check(EVP_MAC_update(context_.get(), raw(bytes.data()), bytes.size()) == 1);
  }
  void end(Secret32& out) {
    std::size_t bytes = 0;
    check(EVP_MAC_final(context_.get(), raw(out.span().data()), &bytes, 32) == 1 && bytes == 32);
  }

 private:
  struct Free {
    void operator()(EVP_MAC_CTX* context) const noexcept { EVP_MAC_CTX_free(context); }
  };
  static void check(bool done) { require(done, "OpenSSL makes HMAC-SHA-256"); }
  static EVP_MAC_CTX* prepared() {
    static EVP_MAC_CTX* const kContext = [] {
      EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
      EVP_MAC_CTX* const context = EVP_MAC_CTX_new(mac);
      std::string digest = "SHA256";
      const OSSL_PARAM params[] = {
          OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), digest.size()),
          OSSL_PARAM_construct_end(),
      };
      check(context != nullptr && EVP_MAC_CTX_set_params(context, params) == 1);
      return context;
    }();
    return kContext;
  }
  void begin(const std::byte* key, std::size_t bytes) {
    check(context_ != nullptr && EVP_MAC_init(context_.get(), raw(key), bytes, nullptr) == 1);
  }

  std::unique_ptr<EVP_MAC_CTX, Free> context_;
};

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
  Mac mac(key);
  mac.add(bytes);
  mac.end(out);
  return out;
}

Secret32 extract(std::span<const std::byte> salt, std::span<const std::byte> secret) {
  return hmac(salt, secret);  // RFC 5869 section 2.2
}

Secret32 extract(std::string_view salt, std::span<const std::byte> secret) {
  return extract(std::as_bytes(std::span(salt)), secret);
}

void expand_info(std::span<const std::byte> secret, std::span<const std::byte> info,
                 std::span<std::byte> out) {
  // RFC 5869 section 2.3.
  require(out.size() <= std::size_t{255} * 32, "HKDF makes 255 blocks at most");
  Mac mac(secret);
  Secret32 block;
  for (std::size_t made = 0, number = 1; made < out.size(); made += 32, ++number) {
    if (number > 1) {
      mac.begin_again();
      mac.add(block.span());
    }
    mac.add(info);
    const auto counter = static_cast<std::byte>(number);
    mac.add({&counter, 1});
    mac.end(block);
    const auto piece = out.subspan(made, std::min<std::size_t>(32, out.size() - made));
    std::copy_n(block.span().begin(), piece.size(), piece.begin());
  }
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
