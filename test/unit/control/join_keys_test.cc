// SPDX-License-Identifier: BSD-3-Clause
// Each row of doc/security.md's tables of modes, and each of the rules of entries.
#include "control/keys/join_keys.h"

#include <catch2/catch.hpp>
#include <deque>

#include "control/formation/epochs.h"
#include "keys_support.h"

namespace gradwire::control {
namespace {

using security::Mode;
using test::job_key;
using test::key_id;
using test::KeyedDaemon;
using test::kUid;
using test::wants;

/// Rank r wants `modes[r]`, and has the keys `firsts[r]`.
struct Table {
  Table(const std::vector<Mode>& modes, const std::vector<std::vector<unsigned char>>& firsts)
      : modes(modes) {
    for (std::size_t rank = 0; rank < modes.size(); ++rank) {
      daemons.emplace_back(rank, firsts[rank]);
      entries.push_back(daemons[rank].entry(modes[rank]));
    }
  }
  /// As that rank sees it.
  Result<GroupSecurity> agree(std::size_t rank) {
    return agree_on_keys(entries, rank, daemons[rank].keys->for_join(uid, wants(modes[rank], job)));
  }
  void agreed(Mode mode) {
    for (std::size_t rank = 0; rank < modes.size(); ++rank) {
      INFO("rank " << rank);
      const auto agreement = agree(rank);
      if (!agreement) FAIL_CHECK(agreement.error().message);
      if (agreement) CHECK(agreement->mode == mode);
    }
  }
  void refused(std::size_t rank, const std::string& text) {
    INFO("rank " << rank << ", expected: " << text);
    const auto agreement = agree(rank);
    REQUIRE_FALSE(agreement);
    CHECK_THAT(agreement.error().message, Catch::Contains(text));
  }
  void refused_on_all(const std::string& text) {
    for (std::size_t rank = 0; rank < modes.size(); ++rank) refused(rank, text);
  }
  void describe_again(std::size_t rank, uid_t by = kUid, const security::KeyId& with = {}) {
    entries[rank] = daemons[rank].entry(modes[rank], by, with);
  }

  std::vector<Mode> modes;
  std::deque<KeyedDaemon> daemons;
  std::vector<ipc::RankInfo> entries;
  uid_t uid = kUid;
  security::KeyId job{};
};

constexpr Mode kOff = Mode::kOff;
constexpr Mode kAuthenticate = Mode::kAuthenticate;
constexpr Mode kEncrypt = Mode::kEncrypt;

}  // namespace

TEST_CASE("a group has the highest mode that any rank wants") {
  Table({kOff, kOff}, {{}, {}}).agreed(kOff);
  Table({kOff, kOff}, {{1}, {}}).agreed(kOff);
  Table({kOff, kOff}, {{1}, {2}}).agreed(kOff);
  Table({kEncrypt, kOff, kOff}, {{1}, {1}, {1}}).agreed(kEncrypt);
  Table({kOff, kAuthenticate, kEncrypt}, {{1}, {1}, {1}}).agreed(kEncrypt);
  Table({kOff, kAuthenticate}, {{1}, {1}}).agreed(kAuthenticate);
  Table({kAuthenticate}, {{1}}).agreed(kAuthenticate);
}

TEST_CASE("a rank without a key is refused on both sides, if any wants more than off") {
  Table({kEncrypt, kOff, kOff, kOff}, {{1}, {1}, {1}, {}})
      .refused_on_all("rank 3 has no key, and rank 0 wants encrypt");
  Table({kOff, kAuthenticate}, {{}, {1}})
      .refused_on_all("rank 0 has no key, and rank 1 wants authenticate");
}

TEST_CASE("a job that wants less than the daemon's minimum is refused there") {
  Table table({kAuthenticate, kEncrypt}, {{1}, {1}});
  table.daemons[0].options.minimum = kEncrypt;
  table.refused(0, "the job wants authenticate, and security.minimum is encrypt");
  CHECK(table.agree(1));
  table.daemons[0].options.minimum = kAuthenticate;
  table.agreed(kEncrypt);
}

TEST_CASE("the group's key is the first of rank 0's that all have") {
  const auto key_of = [](const std::vector<std::vector<unsigned char>>& firsts) {
    Table table({kEncrypt, kOff, kOff}, firsts);
    table.agreed(kEncrypt);
    for (std::size_t rank = 1; rank < 3; ++rank) {
      CHECK(table.agree(rank)->key == table.agree(0)->key);
    }
    return table.agree(0)->key;
  };
  CHECK(key_of({{1, 2}, {1, 2}, {2, 1}}) == key_id(1));
  CHECK(key_of({{2, 1}, {1, 2}, {1, 2}}) == key_id(2));
  CHECK(key_of({{1, 2}, {3, 2}, {2}}) == key_id(2));
  const std::string one = security::text_of(key_id(1));
  const std::string two = security::text_of(key_id(2));
  const std::string three = security::text_of(key_id(3));
  Table({kEncrypt, kOff}, {{1}, {2}})
      .refused_on_all("ranks 0 and 1 have no key in common: rank 0 has " + one + ", rank 1 " + two);
  Table({kEncrypt, kOff, kOff}, {{1, 2}, {1, 3}, {2, 3}})
      .refused_on_all("no key of rank 0 (" + one + ", " + two +
                      ") is one that ranks 2 and 1 both "
                      "have: rank 2 has " +
                      two + ", " + three + ", rank 1 " + one + ", " + three);
}

TEST_CASE("an entry that was changed does not fit its key, whatever the mode") {
  for (const Mode mode : {kOff, kEncrypt}) {
    Table table({mode, mode, mode}, {{1}, {1}, {1}});
    // The store changes an address, and makes the checksum anew.
    table.entries[2].addresses[0].ip[3] ^= 1;
    table.entries[2].checksum = checksum_of(table.entries[2]);
    const std::string text = "the entry of rank 2 does not fit key " +
                             security::text_of(key_id(1)) +
                             ": changed on its way, or of another key with this id";
    table.refused(0, text);
    table.refused(1, text);
    table.refused(2, text);
  }
}

TEST_CASE("a store lowers no rank's mode") {
  Table table({kEncrypt, kOff}, {{1}, {1}});
  // An older entry of the same daemon and user, that wanted less.
  table.entries[0] = table.daemons[0].entry(kOff);
  table.refused(0,
                "the entry of rank 0 says that the job wants off, and the join asks for encrypt");
  // Without what it says of keys.
  table.entries[0] = test::rank_info(0);
  table.refused(0, "the entry of rank 0 comes from this daemon and has none of its keys");
  // The wish alone changed.
  table.entries[0] = table.daemons[0].entry(kEncrypt);
  table.entries[0].keys[2] = 0;
  table.refused(0, "the entry of rank 0 does not fit key");
}

TEST_CASE("an entry is for the user for whom it was made, unless the job has a key") {
  Table table({kEncrypt, kEncrypt}, {{1}, {1}});
  table.describe_again(1, 501);
  table.refused(0, "the entry of rank 1 was made for user 501, and user 500 joins");
  const JobKeyPtr job = job_key(9);
  table.job = job->id;
  table.describe_again(0, kUid, job->id);
  table.describe_again(1, 501, job->id);
  const auto agreement = table.agree(0);
  REQUIRE(agreement);
  CHECK(agreement->mode == kEncrypt);
  // With mode off nobody is asked for whom it was made.
  Table off({kOff, kOff}, {{1}, {1}});
  off.describe_again(1, 501);
  CHECK(off.agree(0));
}

TEST_CASE("all ranks bring the same key of the job, and it needs a mode") {
  Table table({kEncrypt, kEncrypt}, {{1}, {1}});
  const security::KeyId job = job_key(9)->id;
  const security::KeyId other = job_key(8)->id;
  table.describe_again(0, kUid, job);
  table.refused(0, "the entry of rank 0 says the job's key " + security::text_of(job) +
                       ", and the join has no key of the job");
  table.job = job;
  table.refused(0,
                "rank 1 has no key of the job, and rank 0 the job's key " + security::text_of(job));
  table.describe_again(1, kUid, other);
  table.refused(0, "rank 1 has the job's key " + security::text_of(other));
  table.describe_again(1, kUid, job);
  table.agreed(kEncrypt);

  Table off({kOff, kOff}, {{1}, {1}});
  off.job = job;
  off.describe_again(0, kUid, job);
  off.describe_again(1, kUid, job);
  off.refused_on_all("the job has a key of its own, and no rank wants more than off");
}

TEST_CASE("an entry whose X25519 key is retired is too old") {
  Table table({kEncrypt, kEncrypt}, {{1}, {1}});
  CHECK(table.agree(1));
  for (std::size_t i = 0; i < Epochs::kKept; ++i) table.daemons[1].keys->begun();
  table.refused(1, "the entry of rank 1 is too old: ask for another one");
  CHECK(table.agree(0));
  table.describe_again(1);
  CHECK(table.agree(1));
}

TEST_CASE("no two ranks have one public key") {
  Table table({kEncrypt, kEncrypt, kEncrypt}, {{1}, {1}, {1}});
  auto fields = *security::read_keys(bytes_of_entry(table.entries[2]));
  fields.public_key = security::read_keys(bytes_of_entry(table.entries[1]))->public_key;
  const auto bytes =
      std::as_writable_bytes(std::span(&table.entries[2], 1)).first<security::kEntryBytes>();
  security::write_keys(bytes, fields, test::cluster_of({1})->all());
  table.refused(0, "ranks 1 and 2 have the same public key");
}

TEST_CASE("what no release says of keys is refused, also by a daemon that has none") {
  Table table({kOff, kOff}, {{}, {1}});
  table.entries[1].keys[0] = 2;
  table.refused(0, "what the entry of rank 1 says of keys is not as this release has it");
}

TEST_CASE("a group's payload is the least of sealed packets, and a daemon may not seal any") {
  Table table({kEncrypt, kEncrypt}, {{1}, {1}});
  table.daemons[1].options.sealed_payload_bytes = 1344;
  table.describe_again(1);
  CHECK(table.agree(0)->payload_bytes == 1344);
  CHECK(table.agree(1)->payload_bytes == 1344);
  table.daemons[0].options.why_no_seals = "payloads stay in GPU memory";
  table.refused(0, "the group wants encrypt, and this daemon can seal no packet: payloads stay");
  CHECK(table.agree(1));
}

TEST_CASE("a job asks for what its daemon can do") {
  KeyedDaemon without(0, {});
  CHECK(without.keys->why_not(kOff).empty());
  CHECK_THAT(without.keys->why_not(kEncrypt),
             Catch::Contains("the job wants encrypt, and this daemon has no key"));
  KeyedDaemon with(0, {1});
  CHECK(with.keys->why_not(kEncrypt).empty());
  with.options.why_no_seals = "it cannot";
  CHECK_THAT(with.keys->why_not(kEncrypt), Catch::Contains("can seal no packet: it cannot"));
  CHECK(mode_of(ipc::WantedMode::kDaemons, kEncrypt) == kEncrypt);
  CHECK(mode_of(ipc::WantedMode::kOff, kEncrypt) == kOff);
}

TEST_CASE("entries of one daemon that differ in keys say in what") {
  KeyedDaemon daemon(0, {1});
  const ipc::RankInfo entry = daemon.entry(kOff);
  CHECK(keys_difference(entry, entry).empty());
  CHECK(keys_difference(entry, daemon.entry(kEncrypt)) == "one wants off, the other encrypt");
  CHECK_THAT(keys_difference(entry, daemon.entry(kOff, kUid, job_key(9)->id)),
             Catch::Contains("one has no key of the job, the other the job's key"));
  CHECK_THAT(keys_difference(entry, KeyedDaemon(0, {2}).entry(kOff)),
             Catch::Contains("ask for both again"));
}

}  // namespace gradwire::control
