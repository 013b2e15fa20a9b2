// SPDX-License-Identifier: BSD-3-Clause
#include "security/link_seal.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <optional>

#include "hex.h"

namespace gradwire::security {
namespace {

constexpr unsigned kLinkBits = 4;  // 16 packets each
constexpr std::size_t kPayload = 100;

/// One end of a link between rank 0 and rank 1.
struct LinkSide {
  LinkSide(std::uint16_t own, std::uint16_t other, Mode mode)
      : root(secret_of<32>(std::string(64, '7'))), seal(mode, keys(own, other, mode), kLinkBits) {}

  LinkKeys keys(std::uint16_t own, std::uint16_t other, Mode mode) {
    const LinkContext out{{1, 2}, 0, mode, own, other, 10u + own, 10u + other};
    const LinkContext in{{1, 2}, 0, mode, other, own, 10u + other, 10u + own};
    LinkKeys made;
    made.hello_to = PacketKey(mode, opening_keys(root, out).hello);
    made.hello_from = PacketKey(mode, opening_keys(root, in).hello);
    to.emplace(root, out, Sha256{});
    from.emplace(root, in, Sha256{});
    for (PacketKey& key : made.to) key = PacketKey(mode, to->next());
    for (PacketKey& key : made.from) key = PacketKey(mode, from->next());
    return made;
  }
  void supply(Mode mode) {
    if (seal.wants(Direction::kTo)) {
      CHECK(seal.wanted(Direction::kTo) == to->generation());
      static_cast<void>(seal.supply(Direction::kTo, PacketKey(mode, to->next())));
    }
    if (seal.wants(Direction::kFrom)) {
      CHECK(seal.wanted(Direction::kFrom) == from->generation());
      static_cast<void>(seal.supply(Direction::kFrom, PacketKey(mode, from->next())));
    }
  }

  Secret32 root;
  std::optional<KeyChain> to;
  std::optional<KeyChain> from;
  LinkSeal seal;
};

struct SealedPacket {
  std::array<std::byte, kSealedHeaderBytes> header{};
  std::array<std::byte, kPayload> payload{};
  std::array<std::byte, kTagBytes> tag{};
};

SealedPacket seal(LinkSide& end, KeyUse use, std::uint64_t number) {
  SealedPacket packet;
  packet.payload.fill(static_cast<std::byte>(number));
  const std::span<const std::byte> only = packet.payload;
  end.seal.seal(use, number, packet.header, {&only, 1}, packet.payload.data(), packet.tag);
  return packet;
}
OpenResult open(LinkSide& end, KeyUse use, std::uint64_t number, SealedPacket packet) {
  return end.seal.open(use, number, packet.header, packet.payload, packet.payload.data(),
                       packet.tag);
}

}  // namespace

TEST_CASE("what one end seals the other opens, once") {
  const Mode mode = GENERATE(Mode::kAuthenticate, Mode::kEncrypt);
  LinkSide a(0, 1, mode);
  LinkSide b(1, 0, mode);
  for (std::uint64_t number = 1; number <= 100; ++number) {
    INFO("number " << number);
    const KeyUse use = number % 5 == 0 ? KeyUse::kHello : KeyUse::kData;
    REQUIRE(a.seal.can_seal(number));
    const SealedPacket packet = seal(a, use, number);
    // Not back to its sender, not by the other key, not changed.
    CHECK(open(a, use, number, packet) != OpenResult::kYes);
    const KeyUse other = use == KeyUse::kHello ? KeyUse::kData : KeyUse::kHello;
    CHECK(open(b, other, number, packet) != OpenResult::kYes);
    SealedPacket changed = packet;
    changed.payload[number % kPayload] ^= std::byte{1};
    CHECK(open(b, use, number, changed) == OpenResult::kForged);
    CHECK(open(b, use, number, packet) == OpenResult::kYes);
    CHECK(open(b, use, number, packet) == OpenResult::kSeen);
    a.supply(mode);
    b.supply(mode);
  }
  CHECK(a.seal.mode() == mode);
}

TEST_CASE("a number far ahead costs nobody a key, and one far behind is too old to tell") {
  LinkSide a(0, 1, Mode::kEncrypt);
  LinkSide b(1, 0, Mode::kEncrypt);
  CHECK(open(b, KeyUse::kData, std::uint64_t{1} << 61, {}) == OpenResult::kGeneration);
  CHECK(open(b, KeyUse::kData, std::uint64_t{2} << kLinkBits, {}) == OpenResult::kGeneration);
  CHECK_FALSE(b.seal.wants(Direction::kFrom));
  // A hello's number is of no generation.
  const std::uint64_t far = 3 * ReplayWindow::kNumbers;
  CHECK(open(b, KeyUse::kHello, far, seal(a, KeyUse::kHello, far)) == OpenResult::kYes);
  CHECK(open(b, KeyUse::kData, 3, seal(a, KeyUse::kData, 3)) == OpenResult::kOld);
}

TEST_CASE("a link goes on after generations in which nothing but hellos went") {
  const Mode mode = GENERATE(Mode::kAuthenticate, Mode::kEncrypt);
  LinkSide a(0, 1, mode);
  LinkSide b(1, 0, mode);
  const std::uint64_t last = std::uint64_t{5} << kLinkBits;
  for (std::uint64_t number = 1; number < last; ++number) {
    REQUIRE(a.seal.can_seal(number));
    REQUIRE(open(b, KeyUse::kHello, number, seal(a, KeyUse::kHello, number)) == OpenResult::kYes);
    a.supply(mode);
    b.supply(mode);
  }
  REQUIRE(a.seal.can_seal(last));
  CHECK(open(b, KeyUse::kData, last, seal(a, KeyUse::kData, last)) == OpenResult::kYes);
}

TEST_CASE("a sender whose next key is not there may seal nothing more") {
  LinkSide a(0, 1, Mode::kAuthenticate);
  const std::uint64_t generation = std::uint64_t{1} << kLinkBits;
  CHECK(a.seal.can_seal(generation));
  CHECK_FALSE(a.seal.can_seal(2 * generation));
  static_cast<void>(seal(a, KeyUse::kData, generation));
  CHECK(a.seal.wants(Direction::kTo));
  CHECK(a.seal.can_seal(2 * generation - 1));
  CHECK_FALSE(a.seal.can_seal(2 * generation));
  a.supply(Mode::kAuthenticate);
  CHECK(a.seal.can_seal(2 * generation));
  CHECK_FALSE(a.seal.can_seal(3 * generation));
}

}  // namespace gradwire::security
