// SPDX-License-Identifier: BSD-3-Clause
#include "base/clean_text.h"

#include <catch2/catch.hpp>
#include <string>

using gradwire::clean_text;

namespace {

std::string cleaned(std::string text) {
  clean_text(text);
  return text;
}

}  // namespace

TEST_CASE("text that is UTF-8 stays, and what is not becomes question marks") {
  CHECK(cleaned("") == "");
  CHECK(cleaned("plain") == "plain");
  CHECK(cleaned("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x99\x82") ==
        "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x99\x82");
  CHECK(cleaned("a\xff\xfe"
                "b") == "a??b");
  CHECK(cleaned("cut \xe2\x82") == "cut ??");
  CHECK(cleaned("\xc0\xaf") == "??");       // an overlong slash
  CHECK(cleaned("\xed\xa0\x80") == "???");  // a surrogate
  CHECK(cleaned("\xf4\x90\x80\x80") == "????");
}

TEST_CASE("control characters of one byte and of two become question marks") {
  CHECK(cleaned("a\n\033[31m\x7f") == "a??[31m?");
  CHECK(cleaned("a\xc2\x9b"
                "31m \xc2\xa0") == "a??31m \xc2\xa0");
}

TEST_CASE("nothing is left behind a NUL") {
  std::string text("kept\0gone", 9);
  clean_text(text);
  CHECK(text == std::string("kept\0\0\0\0\0", 9));
}
