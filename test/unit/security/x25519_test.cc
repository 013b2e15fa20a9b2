// SPDX-License-Identifier: BSD-3-Clause
// Known answers of RFC 7748, sections 5.2 and 6.1.
#include "security/x25519.h"

#include <catch2/catch.hpp>

#include "hex.h"

namespace gradwire::security {

TEST_CASE("X25519 gives the answers of RFC 7748") {
  const auto alice = X25519Key::of(
      secret_of<32>("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"));
  const auto bob = X25519Key::of(
      secret_of<32>("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"));
  CHECK(to_hex(alice.public_key()) ==
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
  CHECK(to_hex(bob.public_key()) ==
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
  const char* shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
  CHECK(to_hex(X25519Exchange(alice).with(bob.public_key())->span()) == shared);
  CHECK(to_hex(X25519Exchange(bob).with(alice.public_key())->span()) == shared);
}

TEST_CASE("X25519 with a point that is not a key's") {
  const auto key = X25519Key::of(
      secret_of<32>("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"));
  // Section 5.2: any 32 bytes count, and their highest bit does not.
  const auto u = from_hex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c");
  CHECK(to_hex(X25519Exchange(key).with(array_of<32>(u))->span()) ==
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
}

TEST_CASE("a public key that gives zeros is refused") {
  const auto key = X25519Key::draw_new();
  REQUIRE(key);
  for (const char* low : {"0000000000000000000000000000000000000000000000000000000000000000",
                          "0100000000000000000000000000000000000000000000000000000000000000",
                          "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
                          "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
                          "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
                          "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
                          "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"}) {
    INFO(low);
    const auto shared = X25519Exchange(*key).with(array_of<32>(from_hex(low)));
    REQUIRE_FALSE(shared);
    CHECK(shared.error().code == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("each drawn key is another") {
  const auto a = X25519Key::draw_new();
  const auto b = X25519Key::draw_new();
  REQUIRE(a);
  REQUIRE(b);
  CHECK(to_hex(a->public_key()) != to_hex(b->public_key()));
  CHECK(to_hex(X25519Exchange(*a).with(b->public_key())->span()) ==
        to_hex(X25519Exchange(*b).with(a->public_key())->span()));
}

}  // namespace gradwire::security
