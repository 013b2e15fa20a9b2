// SPDX-License-Identifier: BSD-3-Clause
#include "security/generations.h"

#include <catch2/catch.hpp>
#include <map>

#include "hex.h"

namespace gradwire::security {
namespace {

constexpr unsigned kBits = 3;  // eight packets each

struct Keys {
  KeyChain chain{secret_of<32>(std::string(64, '1')), LinkContext{}, Sha256{}};
  PacketKey next() { return PacketKey(Mode::kAuthenticate, chain.next(), Cipher::kOpenSsl); }
};

/// The tag of an empty packet.
std::string tag_by(PacketKey& key, std::uint64_t number) {
  std::array<std::byte, kSealedHeaderBytes> header{};
  std::array<std::byte, kTagBytes> tag;
  key.seal(number, header, {}, nullptr, tag);
  return to_hex(tag);
}
bool opens(PacketKey& key, std::uint64_t number, const std::string& tag) {
  std::array<std::byte, kSealedHeaderBytes> header{};
  return key.open(number, header, {}, nullptr, array_of<kTagBytes>(from_hex(tag)));
}

template <class Generations>
Generations make(Keys& keys) {
  PacketKey zeroth = keys.next();
  PacketKey first = keys.next();
  return Generations(std::move(zeroth), std::move(first), kBits);
}

}  // namespace

TEST_CASE("a chain goes on, and every generation has another key") {
  KeyChain chain(secret_of<32>(std::string(64, '2')), LinkContext{}, Sha256{});
  std::map<std::string, std::uint64_t> seen;
  for (std::uint64_t g = 0; g < 50; ++g) {
    CHECK(chain.generation() == g);
    const PacketSecret secret = chain.next();
    CHECK(seen.emplace(to_hex(secret.key.span()), g).second);
    CHECK(seen.emplace(to_hex(secret.iv.span()), g).second);
  }
}

TEST_CASE("both ends go through generations with the same keys") {
  Keys at_sender;
  Keys at_receiver;
  auto send = make<SendGenerations>(at_sender);
  auto receive = make<ReceiveGenerations>(at_receiver);
  for (std::uint64_t number = 1; number < 200; ++number) {
    INFO("number " << number);
    PacketKey* key = send.of(number);
    REQUIRE(key != nullptr);
    const std::string tag = tag_by(*key, number);
    PacketKey* own = receive.of(number);
    REQUIRE(own != nullptr);
    REQUIRE(opens(*own, number, tag));
    receive.authenticated(number);
    if (send.wants()) {
      CHECK(send.wanted() == at_sender.chain.generation());
      CHECK(send.supply(at_sender.next()));
    }
    if (receive.wants()) {
      CHECK(receive.wanted() == at_receiver.chain.generation());
      static_cast<void>(receive.supply(at_receiver.next()));
    }
  }
}

TEST_CASE("a sender without the next key sends nothing") {
  Keys keys;
  auto send = make<SendGenerations>(keys);
  CHECK(send.of(7) != nullptr);
  CHECK_FALSE(send.wants());
  CHECK(send.of(16) == nullptr);  // two ahead
  CHECK(send.of(8) != nullptr);
  CHECK(send.wants());
  CHECK(send.of(16) == nullptr);
  CHECK(send.supply(keys.next()));
  CHECK_FALSE(send.wants());
  CHECK(send.of(15) != nullptr);
  CHECK(send.of(16) != nullptr);
}

TEST_CASE("a receiver tries generations beside the newest authenticated one alone") {
  Keys keys;
  auto receive = make<ReceiveGenerations>(keys);
  const auto tried = [&](std::uint64_t generation) {
    return receive.of(generation << kBits) != nullptr;
  };
  CHECK((tried(0) && tried(1) && !tried(2) && !tried(std::uint64_t{1} << 58)));
  // What is not authenticated moves nothing, however often it comes.
  for (int i = 0; i < 100; ++i) CHECK_FALSE(tried(2));
  CHECK_FALSE(receive.wants());

  receive.authenticated(9);
  CHECK(receive.wants());
  CHECK(receive.wanted() == 2);
  CHECK((tried(0) && tried(1) && !tried(2)));  // its key is not there yet
  CHECK_FALSE(receive.supply(keys.next()));    // the first time nothing was in its place
  CHECK((tried(0) && tried(1) && tried(2) && !tried(3)));

  receive.authenticated(17);
  receive.authenticated(3);  // late, of generation 0's time: nothing goes back
  CHECK((!tried(0) && tried(1) && tried(2) && !tried(3)));
  CHECK(receive.supply(keys.next()));
  CHECK((!tried(0) && tried(1) && tried(2) && tried(3) && !tried(4)));
}

}  // namespace gradwire::security
