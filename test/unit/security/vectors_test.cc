// SPDX-License-Identifier: BSD-3-Clause
// The values that test/peer/security.py made from doc/security.md alone.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hex.h"
#include "security/entry_keys.h"
#include "security/key_schedule.h"
#include "security/packet_key.h"

namespace gradwire::security {
namespace {

using nlohmann::json;

const json& vectors() {
  static const json kVectors = json::parse(std::ifstream(VECTORS));
  return kVectors;
}
std::string text(const json& from, const char* name) { return from.at(name).get<std::string>(); }
Bytes bytes(const json& from, const char* name) { return from_hex(text(from, name)); }
std::uint64_t number(const json& from, const char* name) {
  return std::stoull(text(from, name), nullptr, 16);
}

LinkContext link_of(const json& from) {
  LinkContext link;
  link.group = {number(from, "group_id"), from.at("epoch").get<std::uint32_t>()};
  link.lane = from.at("lane").get<std::uint8_t>();
  link.mode = static_cast<Mode>(from.at("mode").get<int>());
  link.from_rank = from.at("from_rank").get<std::uint16_t>();
  link.to_rank = from.at("to_rank").get<std::uint16_t>();
  link.from_incarnation = number(from, "from_incarnation");
  link.to_incarnation = number(from, "to_incarnation");
  return link;
}

void check_secret(const json& expected, const PacketSecret& secret) {
  CHECK(to_hex(secret.key.span()) == text(expected, "key"));
  CHECK(to_hex(secret.iv.span()) == text(expected, "iv"));
}

}  // namespace

TEST_CASE("vectors: files") {
  REQUIRE(vectors().at("files").size() >= 2);
  for (const json& v : vectors().at("files")) {
    const FileKeys keys(secret_of<32>(text(v, "file")));
    CHECK(text_of(keys.id) == text(v, "id"));
    CHECK(to_hex(keys.entry.span()) == text(v, "entry"));
    CHECK(to_hex(keys.cluster.span()) == text(v, "cluster"));
    CHECK(to_hex(keys.job.span()) == text(v, "job"));
  }
}

TEST_CASE("vectors: entries") {
  REQUIRE(vectors().at("entries").size() >= 2);
  for (const json& v : vectors().at("entries")) {
    std::vector<FileKeys> files;
    for (const json& file : v.at("keys"))
      files.emplace_back(secret_of<32>(file.get<std::string>()));
    EntryKeys fields;
    fields.wanted = static_cast<Mode>(v.at("wanted").get<int>());
    fields.user = v.at("user").get<std::uint32_t>();
    fields.payload_bytes = v.at("payload").get<std::uint32_t>();
    fields.public_key = array_of<32>(bytes(v, "public"));
    fields.job = array_of<8>(bytes(v, "job_id"));
    auto entry = array_of<kEntryBytes>(bytes(v, "before"));
    write_keys(entry, fields, files);
    CHECK(to_hex(entry) == text(v, "entry"));
    for (const FileKeys& file : files) CHECK(mac_fits(entry, file));
  }
}

TEST_CASE("vectors: pairs, links and generations") {
  REQUIRE(vectors().at("links").size() >= 3);
  for (const json& v : vectors().at("links")) {
    const auto own = X25519Key::of(secret_of<32>(text(v, "private")));
    CHECK(to_hex(own.public_key()) == text(v, "public"));
    const LinkContext link = link_of(v);
    const bool sends = v.at("sends").get<bool>();
    const auto pair = pair_secret(secret_of<32>(text(v, "cluster")), X25519Exchange(own),
                                  sends ? link.from_incarnation : link.to_incarnation,
                                  {array_of<32>(bytes(v, "other_public")),
                                   sends ? link.to_incarnation : link.from_incarnation});
    REQUIRE(pair);
    CHECK(to_hex(pair->span()) == text(v, "pair"));
    const Secret32 root = root_secret(secret_of<32>(text(v, "job")), *pair);
    CHECK(to_hex(root.span()) == text(v, "root"));
    CHECK(to_hex(bytes_of(link)) == text(v, "context"));
    const OpeningKeys opening = opening_keys(root, link);
    CHECK(opening.token == number(v, "token"));
    check_secret(v.at("hello"), opening.hello);
    const Sha256 table_hash = sha256(bytes(v, "table"));
    CHECK(to_hex(table_hash) == text(v, "table_hash"));
    KeyChain chain(root, link, table_hash);
    REQUIRE(v.at("generations").size() >= 3);
    for (const json& generation : v.at("generations")) check_secret(generation, chain.next());
  }
}

TEST_CASE("vectors: packets") {
  REQUIRE(vectors().at("packets").size() >= 6);
  for (const json& v : vectors().at("packets")) {
    PacketSecret secret;
    secret.key = secret_of<16>(text(v, "key"));
    secret.iv = secret_of<12>(text(v, "iv"));
    for (const Cipher cipher : {Cipher::kOpenSsl, Cipher::kIpsecMb}) {
      if (!available(cipher)) continue;
      PacketKey key(static_cast<Mode>(v.at("mode").get<int>()), secret, cipher);
      Bytes packet = bytes(v, "clear");
      const std::size_t clear_bytes = packet.size();
      packet.resize(clear_bytes + kTagBytes);
      const std::span all(packet);
      key.seal_in_place(number(v, "number"), all.first<kSealedHeaderBytes>(),
                        all.subspan(kSealedHeaderBytes, clear_bytes - kSealedHeaderBytes),
                        all.last<kTagBytes>());
      CHECK(to_hex(packet) == text(v, "sealed"));
    }
  }
}

}  // namespace gradwire::security
