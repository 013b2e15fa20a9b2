// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/word_turns.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

using namespace gradwire;
using collective::WordTurns;

namespace {

/// Sends as many words and pieces as it has, and writes down in which order.
struct Turns {
  std::uint32_t words = 0;
  std::uint32_t pieces = 0;
  std::string order;

  std::uint32_t run(WordTurns& turns, std::uint32_t most) {
    const auto take = [&](std::uint32_t& left, char letter) {
      if (left == 0) return false;
      --left;
      order += letter;
      return true;
    };
    return turns.run(
        most, [&] { return take(words, 'w'); }, [&] { return take(pieces, 'p'); });
  }
};

}  // namespace

TEST_CASE("words and pieces go by turns, over rounds too, and as many as a round takes") {
  WordTurns turns;
  Turns port{.words = 100, .pieces = 100, .order = {}};
  for (int round = 0; round < 3; ++round) CHECK(port.run(turns, 3) == 3);
  CHECK(port.order == "wpwpwpwpw");
}

TEST_CASE("what there is none of gives its turn to the other") {
  WordTurns turns;
  Turns port{.words = 1, .pieces = 3, .order = {}};
  CHECK(port.run(turns, 16) == 4);
  CHECK(port.order == "wppp");
  port.words = 2;
  CHECK(port.run(turns, 16) == 2);
  CHECK(port.order == "wpppww");
}

TEST_CASE("eight rounds in a row without room are starving, and one packet ends it") {
  WordTurns turns;
  for (int round = 0; round < 8; ++round) {
    CHECK_FALSE(turns.starves());
    turns.note(0, true);
    CHECK(turns.waits_for_room());
  }
  CHECK(turns.starves());
  turns.note(1, true);
  CHECK_FALSE(turns.waits_for_room());
  turns.note(0, false);
  CHECK_FALSE(turns.waits_for_room());
}
