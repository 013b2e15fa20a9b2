// SPDX-License-Identifier: BSD-3-Clause
#include "security/x25519.h"

#include <openssl/evp.h>

#include "base/require.h"
#include "security/raw.h"

namespace gradwire::security {
namespace {

using PkeyContext = std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)>;

Pkey private_pkey(const Secret32& bytes) {
  Pkey key(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, raw(bytes.span().data()), 32));
  require(key != nullptr, "OpenSSL takes any 32 bytes as an X25519 key");
  return key;
}

}  // namespace

void FreePkey::operator()(evp_pkey_st* key) const noexcept { EVP_PKEY_free(key); }

X25519Key::X25519Key(std::unique_ptr<Private> key) : private_(std::move(key)) {
  const Pkey pkey = private_pkey(private_->bytes);
  std::size_t length = public_.size();
  require(
      EVP_PKEY_get_raw_public_key(pkey.get(), raw(public_.data()), &length) == 1 && length == 32,
      "OpenSSL makes the public key of an X25519 key");
}

Result<X25519Key> X25519Key::draw_new() {
  auto key = std::make_unique<Private>();
  if (auto drawn = draw(key->bytes.span()); !drawn) return tl::unexpected(drawn.error());
  return X25519Key(std::move(key));
}

X25519Key X25519Key::of(const Secret32& private_key) {
  auto key = std::make_unique<Private>();
  key->bytes = private_key;
  return X25519Key(std::move(key));
}

X25519Exchange::X25519Exchange(const X25519Key& own)
    : key_(private_pkey(own.private_->bytes)), public_(own.public_) {}

Result<Secret32> X25519Exchange::with(const PublicKey& other) const {
  const Pkey peer(EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, raw(other.data()), 32));
  const PkeyContext context(EVP_PKEY_CTX_new(key_.get(), nullptr), &EVP_PKEY_CTX_free);
  require(peer != nullptr && context != nullptr && EVP_PKEY_derive_init(context.get()) == 1 &&
              EVP_PKEY_derive_set_peer(context.get(), peer.get()) == 1,
          "OpenSSL takes any 32 bytes as an X25519 public key");
  Secret32 out;
  std::size_t length = 32;
  const bool derived = EVP_PKEY_derive(context.get(), raw(out.span().data()), &length) == 1;
  // OpenSSL refuses zeros itself; another release of it might not.
  if (!derived || length != 32 || equal_in_constant_time(out.span(), Secret32().span())) {
    return fail(ErrorCode::kInvalidArgument,
                "the X25519 public key is one of those that give zeros with any key");
  }
  return out;
}

}  // namespace gradwire::security
