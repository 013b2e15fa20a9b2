// SPDX-License-Identifier: BSD-3-Clause
// Known answers of RFC 5869 (appendix A) and RFC 4231.
#include "security/hkdf.h"

#include <catch2/catch.hpp>

#include "hex.h"

namespace gradwire::security {
namespace {

std::string counted(unsigned first, unsigned last) {
  std::string text;
  for (unsigned i = first; i <= last; ++i) text += fmt::format("{:02x}", i);
  return text;
}
std::string repeated(const char* byte, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += byte;
  return text;
}

}  // namespace

TEST_CASE("HKDF-SHA-256 gives the answers of RFC 5869") {
  struct Case {
    std::string secret, salt, info;
    const char* extracted;
    const char* expanded;
  };
  const Case cases[] = {
      {repeated("0b", 22), counted(0x00, 0x0c), counted(0xf0, 0xf9),
       "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
       "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
      {counted(0x00, 0x4f), counted(0x60, 0xaf), counted(0xb0, 0xff),
       "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
       "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e5"
       "9"
       "0e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"},
      {repeated("0b", 22), "", "",
       "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
       "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
  };
  for (const Case& c : cases) {
    const Bytes salt = from_hex(c.salt);
    const Secret32 extracted = extract(std::span<const std::byte>(salt), from_hex(c.secret));
    CHECK(to_hex(extracted.span()) == c.extracted);
    Bytes out(from_hex(c.expanded).size());
    expand_info(extracted.span(), from_hex(c.info), out);
    CHECK(to_hex(out) == c.expanded);
  }
}

TEST_CASE("HMAC-SHA-256 gives the answers of RFC 4231") {
  CHECK(to_hex(hmac(from_hex(repeated("0b", 20)), from_hex("4869205468657265")).span()) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(to_hex(hmac(from_hex(repeated("aa", 131)),
                    std::as_bytes(std::span(std::string_view(
                        "Test Using Larger Than Block-Size Key - Hash Key First"))))
                   .span()) == "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("an expansion's label ends with a zero byte, so that labels and contexts do not mix") {
  const Secret32 secret = extract("salt", from_hex("01"));
  const auto one = expand<32>(secret.span(), "gw1 a", from_hex("6200"));
  const auto other = expand<32>(secret.span(), "gw1 ab", from_hex("00"));
  CHECK(to_hex(one.span()) != to_hex(other.span()));
  Bytes whole(32);
  expand_info(secret.span(),
              from_hex("6777312061"
                       "00"
                       "6200"),
              whole);
  CHECK(to_hex(one.span()) == to_hex(whole));
}

}  // namespace gradwire::security
