// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/user_keys.h"

#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "control/keys/pair_cache.h"

namespace gradwire::control {
namespace {

using security::PublicKey;

struct Users {
  std::vector<PublicKey> retired;
  std::set<uid_t> here;
  UserKeys keys;
  explicit Users(const UserKeys::Bounds& bounds)
      : keys(
            bounds, [this](uid_t uid) { return here.contains(uid); },
            [this](const PublicKey& key) { retired.push_back(key); }) {}
  PublicKey ask(uid_t uid) {
    const auto key = keys.current(uid);
    REQUIRE(key);
    CHECK(keys.find(uid, (*key)->public_key()) == *key);
    return (*key)->public_key();
  }
  void begin(int groups) {
    for (int i = 0; i < groups; ++i) keys.begun();
  }
};

constexpr UserKeys::Bounds kLow = {4, 8, 3};

}  // namespace

TEST_CASE("a user has one key, and another user another") {
  Users users(kLow);
  const PublicKey key = users.ask(1);
  users.begin(3);
  CHECK(users.ask(1) == key);
  CHECK(users.ask(2) != key);
  CHECK(users.keys.find(2, key) == nullptr);
  CHECK(users.keys.find(3, key) == nullptr);
  CHECK(users.keys.made() == 2);
}

TEST_CASE("a key is renewed at the next request, and accepted until it is retired") {
  Users users(kLow);
  const PublicKey first = users.ask(1);
  users.begin(4);
  CHECK(users.keys.find(1, first) != nullptr);
  const PublicKey second = users.ask(1);
  CHECK(second != first);
  users.begin(3);
  CHECK(users.keys.find(1, first) != nullptr);
  CHECK(users.retired.empty());
  users.begin(1);
  CHECK(users.keys.find(1, first) == nullptr);
  CHECK(users.retired == std::vector{first});
  CHECK(users.ask(1) != second);
  users.begin(4);
  CHECK(users.keys.find(1, second) == nullptr);
  CHECK(users.retired == std::vector{first, second});
}

TEST_CASE("a user that asks for nothing loses its key all the same") {
  Users users(kLow);
  const PublicKey key = users.ask(1);
  users.begin(2);
  const PublicKey other = users.ask(2);
  users.begin(6);
  CHECK(users.keys.find(1, key) == nullptr);
  CHECK(users.keys.find(2, other) != nullptr);
  CHECK(users.ask(1) != key);
}

TEST_CASE("one more user takes the keys of the one that asked longest ago") {
  Users users(kLow);
  const PublicKey first = users.ask(1);
  const PublicKey second = users.ask(2);
  users.begin(4);
  const PublicKey renewed = users.ask(1);
  users.ask(3);
  users.ask(4);
  CHECK(users.keys.users() == 3);
  CHECK(users.keys.find(2, second) == nullptr);
  CHECK(users.keys.find(1, first) != nullptr);
  users.ask(2);
  CHECK(users.keys.find(1, first) == nullptr);
  CHECK(users.keys.find(1, renewed) == nullptr);
  CHECK(users.retired == std::vector{second, first, renewed});
  // Retired once: what is left of them is not counted any more.
  users.begin(20);
  CHECK(users.retired.size() == 6);
}

TEST_CASE("who has clients loses no key to any number of other users") {
  Users users(kLow);
  users.here = {1};
  const PublicKey first = users.ask(1);
  for (uid_t uid = 2; uid < 50; ++uid) {
    users.ask(uid);
    CHECK(users.keys.users() <= 3);
    CHECK(users.keys.find(1, first) != nullptr);
  }
  CHECK(users.retired.size() == 46);
  // Of those who left, the one that asked longest ago goes; if all are here, somebody does.
  users.here = {48, 49};
  users.ask(50);
  CHECK(users.keys.find(1, first) == nullptr);
  users.here = {48, 49, 50, 51};
  const PublicKey newest = users.ask(51);
  CHECK(users.keys.users() == 3);
  CHECK(users.keys.find(51, newest) != nullptr);
}

TEST_CASE("no epoch is forgotten before the key that it was begun with is retired") {
  Users users({});
  Epochs epochs;
  const auto begin = [&](std::uint64_t id) {
    epochs.begin(1, id, 1);
    users.begin(1);
  };
  const PublicKey key = users.ask(1);
  begin(0);
  for (std::uint64_t id = 1; epochs.last(1, 0); ++id) {
    REQUIRE(id < 70'000);
    // Another user's groups make a daemon forget, too.
    epochs.begin(id % 2 == 0 ? 1 : 2, id, 1);
    if (!epochs.last(1, 0)) {
      CHECK(users.keys.find(1, key) == nullptr);
    }
    users.begin(1);
    if (id + 1 == UserKeys::Bounds{}.retired_after - 1) {
      CHECK(users.keys.find(1, key) != nullptr);
    }
  }
}

TEST_CASE("pairs are kept, and the one used longest ago goes first") {
  const auto name = [](unsigned char own, unsigned char other, unsigned char file = 1) {
    PairName made;
    made.own[0] = std::byte{own};
    made.other[0] = std::byte{other};
    made.file[0] = std::byte{file};
    return made;
  };
  const auto pair = [] { return PairPtr(new PairSecret(security::Secret32())); };
  PairCache cache(3);
  for (unsigned char other : {1, 2, 3}) cache.keep(name(1, other), pair());
  const PairPtr first = cache.find(name(1, 1));
  REQUIRE(first != nullptr);
  cache.keep(name(1, 4), pair());
  CHECK(cache.size() == 3);
  CHECK(cache.find(name(1, 2)) == nullptr);
  CHECK(cache.find(name(1, 1)) == first);
  // What is there stays.
  cache.keep(name(1, 1), pair());
  CHECK(cache.find(name(1, 1)) == first);
  PairName restarted = name(1, 1);
  restarted.incarnation = 7;
  CHECK(cache.find(restarted) == nullptr);
  CHECK(cache.find(name(1, 1, 2)) == nullptr);

  cache.keep(name(2, 1, 2), pair());
  CHECK(cache.find(name(1, 3)) == nullptr);
  cache.forget_key(name(1, 0).own);
  CHECK(cache.size() == 1);
  cache.keep(name(2, 1, 1), pair());
  cache.forget_file(name(0, 0, 2).file);
  CHECK(cache.find(name(2, 1, 2)) == nullptr);
  CHECK(cache.find(name(2, 1, 1)) != nullptr);
}

}  // namespace gradwire::control
