// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// X25519 (RFC 7748): the key that a daemon has for a user, and the secret that two daemons get of
/// their keys. Any thread; OpenSSL allocates.
#pragma once

#include <array>
#include <memory>

#include "base/result.h"
#include "security/secret.h"

struct evp_pkey_st;

namespace gradwire::security {

using PublicKey = std::array<std::byte, 32>;

/// A key as OpenSSL has it.
struct FreePkey {
  void operator()(evp_pkey_st* key) const noexcept;
};
using Pkey = std::unique_ptr<evp_pkey_st, FreePkey>;

class X25519Key {
 public:
  /// A new one, from the kernel's random numbers.
  [[nodiscard]] static Result<X25519Key> draw_new();
  /// That of these 32 bytes, for tests and simulations.
  [[nodiscard]] static X25519Key of(const Secret32& private_key);

  [[nodiscard]] const PublicKey& public_key() const noexcept { return public_; }

 private:
  struct Private : InSecretMemory {
    Secret32 bytes;
  };
  friend class X25519Exchange;
  explicit X25519Key(std::unique_ptr<Private> key);

  std::unique_ptr<Private> private_;
  PublicKey public_;
};

/// A key made ready for exchanges: OpenSSL multiplies for that once, and once for each exchange.
/// It has the private key on its heap meanwhile, and clears it there in the end, so this is not to
/// be kept.
class X25519Exchange {
 public:
  explicit X25519Exchange(const X25519Key& own);

  [[nodiscard]] const PublicKey& public_key() const noexcept { return public_; }
  /// What both ends get of each other's public key.
  /// @return kInvalidArgument if it is all zeros: `other` is one of a few points that give this
  /// with any key (RFC 7748 section 6.1).
  [[nodiscard]] Result<Secret32> with(const PublicKey& other) const;

 private:
  Pkey key_;
  PublicKey public_;
};

}  // namespace gradwire::security
