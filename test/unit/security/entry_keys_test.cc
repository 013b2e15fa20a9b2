// SPDX-License-Identifier: BSD-3-Clause
#include "security/entry_keys.h"

#include <catch2/catch.hpp>

#include "hex.h"

namespace gradwire::security {
namespace {

using Entry = std::array<std::byte, kEntryBytes>;

FileKeys file_keys(char digit) { return FileKeys(secret_of<32>(std::string(64, digit))); }

Entry entry_of(const EntryKeys& fields, std::vector<FileKeys> keys) {
  Entry entry{};
  for (std::size_t i = 0; i < 280; ++i) entry[i] = static_cast<std::byte>(i * 7 + 1);
  if (!keys.empty()) write_keys(entry, fields, keys);
  return entry;
}

EntryKeys some_fields() {
  EntryKeys fields;
  fields.wanted = Mode::kEncrypt;
  fields.user = 0xfedcba98;
  fields.payload_bytes = 1344;
  fields.public_key = array_of<32>(Bytes(32, std::byte{0x44}));
  fields.job = array_of<8>(Bytes(8, std::byte{0x55}));
  return fields;
}

}  // namespace

TEST_CASE("an entry says which keys its daemon has") {
  const FileKeys a = file_keys('a');
  const FileKeys b = file_keys('b');
  const Entry entry = entry_of(some_fields(), {a, b});
  const auto read = read_keys(entry);
  REQUIRE(read);
  CHECK(read->wanted == Mode::kEncrypt);
  CHECK(read->key_count == 2);
  CHECK(read->user == 0xfedcba98);
  CHECK(read->payload_bytes == 1344);
  CHECK(read->public_key == some_fields().public_key);
  CHECK(read->ids == std::array{a.id, b.id});
  CHECK(read->job == some_fields().job);
  CHECK(mac_fits(entry, a));
  CHECK(mac_fits(entry, b));
  CHECK_FALSE(mac_fits(entry, file_keys('c')));
  // What stood before is as it was.
  for (std::size_t i = 0; i < 280; ++i) CHECK(entry[i] == static_cast<std::byte>(i * 7 + 1));
}

TEST_CASE("an entry without keys is that of a daemon that has none") {
  const auto read = read_keys(entry_of({}, {}));
  REQUIRE(read);
  CHECK(read->key_count == 0);
  CHECK(read->wanted == Mode::kOff);
  CHECK_FALSE(mac_fits(entry_of({}, {}), file_keys('a')));
}

TEST_CASE("a MAC fits no entry that was changed in a bit") {
  const FileKeys a = file_keys('a');
  const FileKeys b = file_keys('b');
  const Entry entry = entry_of(some_fields(), {a, b});
  for (std::size_t bit = 0; bit < kEntryBytes * 8; ++bit) {
    INFO("bit " << bit);
    Entry other = entry;
    const std::size_t at = bit / 8;
    other[at] ^= std::byte{1} << bit % 8;
    // The checksum is made after the MACs, and neither MAC is in the other.
    const bool checksum = at >= 36 && at < 40;
    CHECK(mac_fits(other, a) == (checksum || (at >= 352 && at < 368)));
    CHECK(mac_fits(other, b) == (checksum || (at >= 328 && at < 344)));
  }
}

TEST_CASE("fields that the page does not have are refused") {
  const Entry good = entry_of(some_fields(), {file_keys('a')});
  REQUIRE(read_keys(good));
  const auto refused = [&](std::size_t at, unsigned value) {
    Entry entry = good;
    entry[at] = static_cast<std::byte>(value);
    return !read_keys(entry);
  };
  CHECK(refused(280, 2));
  CHECK(refused(280, 0));  // no keys, and yet fields
  CHECK(refused(281, 1));
  CHECK(refused(282, 3));
  CHECK(refused(283, 0));
  CHECK(refused(283, 3));
  for (const std::size_t at : {344u, 351u, 352u, 367u, 376u, 380u, 511u}) {
    CHECK(refused(at, 1));
  }
  CHECK(read_keys(entry_of(some_fields(), {file_keys('a'), file_keys('b')})));
  CHECK_FALSE(read_keys(entry_of(some_fields(), {file_keys('a'), file_keys('a')})));
}

TEST_CASE("a group's key is the first of rank 0's that all have") {
  const auto entry = [](std::vector<char> digits) {
    EntryKeys keys;
    for (const char digit : digits) keys.ids[keys.key_count++] = file_keys(digit).id;
    return keys;
  };
  const auto common = [&](std::vector<EntryKeys> entries) {
    const auto id = common_key(entries[0], entries);
    return id ? text_of(*id) : "none";
  };
  const std::string old_key = text_of(file_keys('a').id);
  const std::string new_key = text_of(file_keys('b').id);
  CHECK(common({entry({'a'}), entry({'a'})}) == old_key);
  CHECK(common({entry({'a', 'b'}), entry({'a', 'b'})}) == old_key);
  CHECK(common({entry({'b', 'a'}), entry({'a', 'b'})}) == new_key);
  CHECK(common({entry({'b', 'a'}), entry({'a'})}) == old_key);
  CHECK(common({entry({'b'}), entry({'b', 'a'}), entry({'a', 'b'})}) == new_key);
  CHECK(common({entry({'a'}), entry({'b'})}) == "none");
  CHECK(common({entry({'a'}), entry({})}) == "none");
}

TEST_CASE("a group carries the least payload, and without a job's key has one user") {
  std::array entries = {some_fields(), some_fields(), some_fields()};
  CHECK(all_of_user(entries, 0xfedcba98));
  CHECK_FALSE(all_of_user(entries, 0));
  CHECK(sealed_payload_of(entries) == 1344);
  entries[2].payload_bytes = 8832;
  entries[1].payload_bytes = 1280;
  entries[1].user = 1;
  CHECK(sealed_payload_of(entries) == 1280);
  CHECK_FALSE(all_of_user(entries, 0xfedcba98));
  EntryKeys nothing = some_fields();
  nothing.payload_bytes = 0;
  CHECK_FALSE(read_keys(entry_of(nothing, {file_keys('a')})));
}

TEST_CASE("a group has the highest mode that any rank wants") {
  const auto wants = [](Mode mode) {
    EntryKeys keys;
    keys.wanted = mode;
    return keys;
  };
  const std::array off = {wants(Mode::kOff), wants(Mode::kOff)};
  const std::array one = {wants(Mode::kOff), wants(Mode::kAuthenticate), wants(Mode::kOff)};
  const std::array both = {wants(Mode::kEncrypt), wants(Mode::kAuthenticate)};
  CHECK(mode_of(off) == Mode::kOff);
  CHECK(mode_of(one) == Mode::kAuthenticate);
  CHECK(mode_of(both) == Mode::kEncrypt);
}

}  // namespace gradwire::security
