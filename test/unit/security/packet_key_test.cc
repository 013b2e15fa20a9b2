// SPDX-License-Identifier: BSD-3-Clause
#include "security/packet_key.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "hex.h"
#include "reference_gcm.h"
#include "support/seed.h"

namespace gradwire::security {
namespace {

constexpr std::size_t kGuard = 40;
constexpr std::byte kUntouched{0xc3};

std::vector<Cipher> ciphers() {
  std::vector<Cipher> out = {Cipher::kOpenSsl};
  if (available(Cipher::kIpsecMb)) out.push_back(Cipher::kIpsecMb);
  return out;
}

/// A packet between guards, at an address that is a multiple of nothing.
struct Packet {
  explicit Packet(std::size_t payload_bytes, std::mt19937_64* random = nullptr)
      : bytes(kGuard + 1 + kSealedHeaderBytes + payload_bytes + kTagBytes + kGuard, kUntouched) {
    if (random == nullptr) return;
    for (std::byte& b : whole()) b = static_cast<std::byte>((*random)());
    std::fill(tag().begin(), tag().end(), kUntouched);
  }
  [[nodiscard]] std::span<std::byte> whole() {
    return std::span(bytes).subspan(kGuard + 1, bytes.size() - 2 * kGuard - 1);
  }
  [[nodiscard]] Header header() { return whole().first<kSealedHeaderBytes>(); }
  [[nodiscard]] std::span<std::byte> payload() {
    return whole().subspan(kSealedHeaderBytes, whole().size() - kSealedHeaderBytes - kTagBytes);
  }
  [[nodiscard]] Tag tag() { return whole().last<kTagBytes>(); }
  [[nodiscard]] bool guards_hold() const {
    const auto untouched = [](std::byte b) { return b == kUntouched; };
    return std::all_of(bytes.begin(), bytes.begin() + kGuard + 1, untouched) &&
           std::all_of(bytes.end() - kGuard, bytes.end(), untouched);
  }
  Bytes bytes;
};

/// What doc/security.md says, by the reference.
void seal_by_reference(Mode mode, const PacketSecret& secret, std::uint64_t number,
                       Packet& packet) {
  std::array<std::byte, 12> nonce;
  for (std::size_t i = 0; i < 12; ++i) {
    const std::byte part = i < 4 ? std::byte{0} : static_cast<std::byte>(number >> (8 * (11 - i)));
    nonce[i] = secret.iv.span()[i] ^ part;
  }
  const auto header = packet.header();
  Bytes data(header.begin(), header.begin() + 48);
  data.insert(data.end(), header.begin() + 56, header.end());
  Bytes rest(packet.payload().begin(), packet.payload().end());
  rest.insert(rest.end(), header.begin() + 52, header.begin() + 56);
  const ReferenceGcm gcm(secret.key.span());
  if (mode == Mode::kAuthenticate) {
    data.insert(data.end(), rest.begin(), rest.end());
    const auto sealed = gcm.seal(nonce, data, {});
    std::copy(sealed.tag.begin(), sealed.tag.end(), packet.tag().begin());
    return;
  }
  const auto sealed = gcm.seal(nonce, data, rest);
  std::copy(sealed.ciphertext.begin(), sealed.ciphertext.end() - 4, packet.payload().begin());
  std::copy(sealed.ciphertext.end() - 4, sealed.ciphertext.end(), header.begin() + 52);
  std::copy(sealed.tag.begin(), sealed.tag.end(), packet.tag().begin());
}

PacketSecret draw_secret(std::mt19937_64& random) {
  PacketSecret secret;
  for (std::byte& b : secret.key.span()) b = static_cast<std::byte>(random());
  for (std::byte& b : secret.iv.span()) b = static_cast<std::byte>(random());
  return secret;
}

std::vector<std::size_t> sizes() {
  std::vector<std::size_t> out;
  for (std::size_t n = 0; n <= 300; ++n) out.push_back(n);
  for (const std::size_t around : {511u, 767u, 1024u, 1280u, 1344u, 1408u, 4096u, 8832u, 8896u}) {
    for (const std::size_t n : {around - 1, around, around + 1}) out.push_back(n);
  }
  return out;
}

}  // namespace

TEST_CASE("every cipher gives the reference's bytes, and opens them") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const Mode mode : {Mode::kAuthenticate, Mode::kEncrypt}) {
    for (const std::size_t size : sizes()) {
      INFO(name_of(mode) << ", " << size << " bytes");
      const PacketSecret secret = draw_secret(random);
      const std::uint64_t number = random() >> (random() % 62 + 2);
      const Packet clear_packet(size, &random);
      Packet right = clear_packet;
      seal_by_reference(mode, secret, number, right);
      for (const Cipher cipher : ciphers()) {
        INFO(text_of(cipher));
        PacketKey key(mode, secret, cipher);
        Packet packet = clear_packet;
        key.seal_in_place(number, packet.header(), packet.payload(), packet.tag());
        REQUIRE(to_hex(packet.whole()) == to_hex(right.whole()));
        REQUIRE(packet.guards_hold());
        // OpenResult elsewhere, and within the packet.
        Packet opened(size);
        std::copy(packet.header().begin(), packet.header().end(), opened.header().begin());
        REQUIRE(key.open(number, opened.header(), packet.payload(), opened.payload().data(),
                         packet.tag()));
        REQUIRE(key.open(number, packet.header(), packet.payload(), packet.payload().data(),
                         packet.tag()));
        for (Packet* p : {&opened, &packet}) {
          Packet expected = clear_packet;
          std::copy(p->tag().begin(), p->tag().end(), expected.tag().begin());
          REQUIRE(to_hex(p->whole()) == to_hex(expected.whole()));
          REQUIRE(p->guards_hold());
        }
      }
    }
  }
}

TEST_CASE("sealing copies a payload together from pieces") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const Mode mode : {Mode::kAuthenticate, Mode::kEncrypt}) {
    for (int i = 0; i < 400; ++i) {
      const std::size_t size = random() % (i % 4 == 0 ? 9000 : 200);
      const PacketSecret secret = draw_secret(random);
      const Packet clear_packet(size, &random);
      Packet right = clear_packet;
      seal_by_reference(mode, secret, 77, right);
      for (const Cipher cipher : ciphers()) {
        INFO(text_of(cipher) << ", " << name_of(mode) << ", " << size << " bytes");
        // Each piece lies elsewhere, and nothing of it may change.
        Packet from = clear_packet;
        std::vector<Bytes> pieces;
        for (std::size_t at = 0; at < size;) {
          const std::size_t n = std::min(size - at, random() % 5 == 0 ? 0 : random() % 100 + 1);
          pieces.emplace_back(from.payload().begin() + at, from.payload().begin() + at + n);
          at += n;
        }
        const std::vector<Bytes> before = pieces;
        const std::vector<std::span<const std::byte>> spans(pieces.begin(), pieces.end());
        Packet packet(size);
        std::copy(from.header().begin(), from.header().end(), packet.header().begin());
        PacketKey key(mode, secret, cipher);
        key.seal(77, packet.header(), spans, packet.payload().data(), packet.tag());
        REQUIRE(to_hex(packet.whole()) == to_hex(right.whole()));
        REQUIRE(packet.guards_hold());
        REQUIRE(pieces == before);
      }
    }
  }
}

TEST_CASE("a flipped bit anywhere is refused") {
  std::mt19937_64 random(test_seed());
  constexpr std::size_t kSize = 83;
  for (const Mode mode : {Mode::kAuthenticate, Mode::kEncrypt}) {
    const PacketSecret secret = draw_secret(random);
    Packet sealed(kSize, &random);
    seal_by_reference(mode, secret, 5, sealed);
    for (const Cipher cipher : ciphers()) {
      PacketKey key(mode, secret, cipher);
      for (std::size_t bit = 0; bit < sealed.whole().size() * 8; ++bit) {
        INFO(text_of(cipher) << ", " << name_of(mode) << ", bit " << bit);
        Packet packet = sealed;
        packet.whole()[bit / 8] ^= std::byte{1} << bit % 8;
        Packet out(kSize);
        const bool fits =
            key.open(5, packet.header(), packet.payload(), out.payload().data(), packet.tag());
        // The header's own CRC is in no tag: it is made after it.
        const bool header_crc = bit / 8 >= 48 && bit / 8 < 52;
        REQUIRE(fits == header_crc);
        if (fits) continue;
        // Nothing of what was forged is left: zeros, or what was there before.
        const std::byte left = mode == Mode::kEncrypt ? std::byte{0} : kUntouched;
        REQUIRE(std::all_of(out.payload().begin(), out.payload().end(),
                            [&](std::byte b) { return b == left; }));
        REQUIRE(out.guards_hold());
      }
    }
  }
}

TEST_CASE("a packet that is refused leaves nothing readable in its own place") {
  std::mt19937_64 random(test_seed());
  for (const Mode mode : {Mode::kAuthenticate, Mode::kEncrypt}) {
    const PacketSecret secret = draw_secret(random);
    Packet sealed(200, &random);
    seal_by_reference(mode, secret, 5, sealed);
    for (const Cipher cipher : ciphers()) {
      PacketKey key(mode, secret, cipher);
      Packet packet = sealed;
      packet.tag()[3] ^= std::byte{1};
      const Packet as_it_came = packet;
      REQUIRE_FALSE(
          key.open(5, packet.header(), packet.payload(), packet.payload().data(), packet.tag()));
      if (mode == Mode::kAuthenticate) {
        CHECK(packet.bytes == as_it_came.bytes);
        continue;
      }
      const auto zero = [](std::byte b) { return b == std::byte{0}; };
      CHECK(std::all_of(packet.payload().begin(), packet.payload().end(), zero));
      CHECK(std::all_of(packet.header().begin() + 52, packet.header().begin() + 56, zero));
      // The key is as good as before.
      packet = sealed;
      CHECK(key.open(5, packet.header(), packet.payload(), packet.payload().data(), packet.tag()));
    }
  }
}

TEST_CASE("another number, key, iv, mode or length is refused") {
  std::mt19937_64 random(test_seed());
  for (const Cipher cipher : ciphers()) {
    const PacketSecret secret = draw_secret(random);
    for (const Mode mode : {Mode::kAuthenticate, Mode::kEncrypt}) {
      PacketKey key(mode, secret, cipher);
      Packet sealed(64, &random);
      key.seal_in_place(9, sealed.header(), sealed.payload(), sealed.tag());
      const auto opens = [&](PacketKey& by, std::uint64_t number, std::size_t bytes) {
        Packet packet = sealed;
        Packet out(64);
        return by.open(number, packet.header(), packet.payload().first(bytes), out.payload().data(),
                       packet.tag());
      };
      CHECK(opens(key, 9, 64));
      CHECK_FALSE(opens(key, 8, 64));
      CHECK_FALSE(opens(key, 9 + (std::uint64_t{1} << 32), 64));
      CHECK_FALSE(opens(key, 9, 63));
      CHECK_FALSE(opens(key, 9, 0));
      PacketSecret other = secret;
      other.key.span()[15] ^= std::byte{1};
      PacketKey other_key(mode, other, cipher);
      CHECK_FALSE(opens(other_key, 9, 64));
      other = secret;
      other.iv.span()[0] ^= std::byte{1};
      PacketKey other_iv(mode, other, cipher);
      CHECK_FALSE(opens(other_iv, 9, 64));
      PacketKey other_mode(mode == Mode::kEncrypt ? Mode::kAuthenticate : Mode::kEncrypt, secret,
                           cipher);
      CHECK_FALSE(opens(other_mode, 9, 64));
    }
  }
}

TEST_CASE("ciphers have names, and there is always one") {
  CHECK(available(best_cipher()));
  CHECK_THAT(text_of(Cipher::kOpenSsl), Catch::StartsWith("OpenSSL 3"));
  CHECK_THAT(text_of(Cipher::kIpsecMb), Catch::StartsWith("ipsec-mb"));
  if (available(Cipher::kIpsecMb)) CHECK(cpu_has_aes());
}

}  // namespace gradwire::security
