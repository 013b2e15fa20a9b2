// SPDX-License-Identifier: BSD-3-Clause
// The reference that ciphers are held to gives the answers of the standards: test cases 1 to 4 of
// the GCM specification that NIST took over, and one of NIST's CAVP for GMAC.
#include <catch2/catch.hpp>

#include "hex.h"
#include "reference_gcm.h"

namespace gradwire::security {

TEST_CASE("the reference gives NIST's answers for AES-128-GCM") {
  const std::string zeros = "00000000000000000000000000000000";
  const std::string key = "feffe9928665731c6d6a8f9467308308";
  const std::string nonce = "cafebabefacedbaddecaf888";
  const std::string plaintext =
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
  const std::string ciphertext =
      "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
      "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985";
  struct Case {
    std::string key, nonce, data, plaintext, ciphertext, tag;
  };
  const Case cases[] = {
      {zeros, zeros.substr(0, 24), "", "", "", "58e2fccefa7e3061367f1d57a4e7455a"},
      {zeros, zeros.substr(0, 24), "", zeros, "0388dace60b6a392f328c2b971b2fe78",
       "ab6e47d42cec13bdf53a67b21257bddf"},
      {key, nonce, "", plaintext, ciphertext, "4d5c2af327cd64a62cf35abd2ba6fab4"},
      {key, nonce, "feedfacedeadbeeffeedfacedeadbeefabaddad2", plaintext.substr(0, 120),
       ciphertext.substr(0, 120), "5bc94fbc3221a5db94fae95ae7121a47"},
      {"77be63708971c4e240d1cb79e8d77feb", "e0e00f19fed7ba0136a797f3",
       "7a43ec1d9c0a5a78a0b16533a6213cab", "", "", "209fcc8d3675ed938e9c7166709dd946"},
  };
  for (const Case& c : cases) {
    const ReferenceGcm gcm(array_of<16>(from_hex(c.key)));
    const auto sealed = gcm.seal(from_hex(c.nonce), from_hex(c.data), from_hex(c.plaintext));
    CHECK(to_hex(sealed.ciphertext) == c.ciphertext);
    CHECK(to_hex(sealed.tag) == c.tag);
  }
}

}  // namespace gradwire::security
