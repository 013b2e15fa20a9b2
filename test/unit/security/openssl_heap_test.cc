// SPDX-License-Identifier: BSD-3-Clause
// What OpenSSL gives back to the heap has no secret in it any more: doc/security.md, In memory.
#include <malloc.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "hex.h"
#include "security/key_schedule.h"
#include "security/packet_key.h"

namespace gradwire::security {
namespace {

/// The start of a secret that is looked for; one thread alone looks.
constexpr std::size_t kLookedFor = 16;
const std::byte* looked_for = nullptr;
std::size_t frees = 0;
std::size_t found = 0;

void look_at(const void* memory, std::size_t bytes) {
  if (looked_for == nullptr) return;
  ++frees;
  if (memmem(memory, bytes, looked_for, kLookedFor) != nullptr) ++found;
}
void* take(std::size_t bytes, const char*, int) { return std::malloc(bytes); }
void give_back(void* memory, const char*, int) {
  if (memory == nullptr) return;
  look_at(memory, malloc_usable_size(memory));
  std::free(memory);
}
void* resize(void* memory, std::size_t bytes, const char* file, int line) {
  void* larger = std::malloc(bytes);
  if (memory == nullptr || larger == nullptr) return larger;
  std::memcpy(larger, memory, std::min(bytes, malloc_usable_size(memory)));
  give_back(memory, file, line);
  return larger;
}

/// OpenSSL takes them only before it has allocated anything.
const bool kWatched = CRYPTO_set_mem_functions(&take, &resize, &give_back) == 1;

void check_cleared(const char* what, std::span<const std::byte> secret,
                   const std::function<void()>& work) {
  REQUIRE(secret.size() >= kLookedFor);
  looked_for = secret.data();
  frees = 0;
  found = 0;
  work();
  looked_for = nullptr;
  INFO(what);
  CHECK(frees > 0);
  CHECK(found == 0);
}

}  // namespace

TEST_CASE("OpenSSL clears the secrets that it had") {
  REQUIRE(kWatched);
  const Secret32 a =
      secret_of<32>("f0e1d2c3b4a5968778695a4b3c2d1e0f00112233445566778899aabbccddeeff");
  const Secret32 b =
      secret_of<32>("102132435465768798a9bacbdcedfe0f0102030405060708090a0b0c0d0e0f10");

  // That a secret which is freed as it was is found.
  looked_for = a.span().data();
  found = 0;
  void* copy = OPENSSL_malloc(32);
  std::memcpy(copy, a.span().data(), 32);
  OPENSSL_free(copy);
  looked_for = nullptr;
  REQUIRE(found == 1);

  check_cleared("extract: salt", a.span(), [&] { static_cast<void>(extract(a.span(), b.span())); });
  check_cleared("extract: secret", b.span(),
                [&] { static_cast<void>(extract(a.span(), b.span())); });
  const Secret32 extracted = extract(a.span(), b.span());
  check_cleared("extract: result", extracted.span(),
                [&] { static_cast<void>(extract(a.span(), b.span())); });
  check_cleared("expand: secret", a.span(), [&] { static_cast<void>(expand<32>(a.span(), "x")); });
  const auto expanded = expand<32>(a.span(), "x");
  check_cleared("expand: result", expanded.span(),
                [&] { static_cast<void>(expand<32>(a.span(), "x")); });

  const auto other = X25519Key::of(b);
  check_cleared("X25519: private key", a.span(),
                [&] { REQUIRE(X25519Exchange(X25519Key::of(a)).with(other.public_key())); });
  const auto shared = X25519Exchange(X25519Key::of(a)).with(other.public_key());
  REQUIRE(shared);
  check_cleared("X25519: result", shared->span(),
                [&] { REQUIRE(X25519Exchange(X25519Key::of(a)).with(other.public_key())); });

  PacketSecret secret;
  secret.key = SecretBytes<16>(a.span().first<16>());
  check_cleared("AES: key", secret.key.span(), [&] {
    PacketKey key(Mode::kEncrypt, secret, Cipher::kOpenSsl);
    std::array<std::byte, kSealedHeaderBytes> header{};
    std::array<std::byte, kTagBytes> tag;
    key.seal(1, header, {}, nullptr, tag);
  });
}

}  // namespace gradwire::security
