// SPDX-License-Identifier: BSD-3-Clause
// What must differ, differs. That the bytes are those of doc/security.md shows vectors_test.cc.
#include "security/key_schedule.h"

#include <catch2/catch.hpp>
#include <set>

#include "hex.h"

namespace gradwire::security {
namespace {

LinkContext some_link() {
  LinkContext link;
  link.group = {0x0123456789abcdef, 7};
  link.lane = 1;
  link.mode = Mode::kEncrypt;
  link.from_rank = 0;
  link.to_rank = 1;
  link.from_incarnation = 0x1111111111111111;
  link.to_incarnation = 0x2222222222222222;
  return link;
}

}  // namespace

TEST_CASE("both ends of a pair have the same secret, and nobody else") {
  const auto a = X25519Key::draw_new();
  const auto b = X25519Key::draw_new();
  REQUIRE((a && b));
  const Secret32 cluster = secret_of<32>(std::string(64, 'c'));
  const auto pair = [&](const Secret32& with, const X25519Key& own, std::uint64_t own_incarnation,
                        const X25519Key& other, std::uint64_t other_incarnation) {
    const auto secret = pair_secret(with, X25519Exchange(own), own_incarnation,
                                    {other.public_key(), other_incarnation});
    REQUIRE(secret);
    return to_hex(secret->span());
  };
  const std::string secret = pair(cluster, *a, 1, *b, 2);
  CHECK(pair(cluster, *b, 2, *a, 1) == secret);
  CHECK(pair(cluster, *a, 2, *b, 1) != secret);  // each key with the other's incarnation
  CHECK(pair(cluster, *a, 1, *b, 3) != secret);
  CHECK(pair(secret_of<32>(std::string(64, 'd')), *a, 1, *b, 2) != secret);
  CHECK(pair(cluster, *a, 1, *a, 2) != secret);
  CHECK_FALSE(pair_secret(cluster, X25519Exchange(*a), 1, {PublicKey{}, 2}));
}

TEST_CASE("every part of a link's context gives other keys") {
  const Secret32 root = root_secret(Secret32(), secret_of<32>(std::string(64, '1')));
  std::vector<LinkContext> links(9, some_link());
  links[1].group.group_id ^= std::uint64_t{1} << 63;
  links[2].group.epoch += 1;
  links[3].lane += 1;
  links[4].mode = Mode::kAuthenticate;
  std::swap(links[5].from_rank, links[5].to_rank);
  links[6].to_rank += 256;
  std::swap(links[7].from_incarnation, links[7].to_incarnation);
  links[8].to_incarnation ^= 1;
  std::set<std::string> hellos;
  std::set<std::string> data;
  std::set<std::uint64_t> tokens;
  for (const LinkContext& link : links) {
    const OpeningKeys keys = opening_keys(root, link);
    hellos.insert(to_hex(keys.hello.key.span()));
    tokens.insert(keys.token);
    data.insert(to_hex(KeyChain(root, link, Sha256{}).next().key.span()));
  }
  CHECK(hellos.size() == links.size());
  CHECK(tokens.size() == links.size());
  CHECK(data.size() == links.size());
  // The way back is another link.
  LinkContext back = some_link();
  std::swap(back.from_rank, back.to_rank);
  std::swap(back.from_incarnation, back.to_incarnation);
  CHECK(tokens.count(opening_keys(root, back).token) == 0);
}

TEST_CASE("data keys depend on the table, and hello keys do not") {
  const Secret32 root = root_secret(Secret32(), secret_of<32>(std::string(64, '1')));
  const Bytes one(16, std::byte{1});
  const Bytes other(16, std::byte{2});
  KeyChain a(root, some_link(), sha256(one));
  KeyChain b(root, some_link(), sha256(other));
  CHECK(to_hex(a.next().key.span()) != to_hex(b.next().key.span()));
}

TEST_CASE("a job's key gives other keys") {
  const Secret32 pair = secret_of<32>(std::string(64, '1'));
  const FileKeys job(secret_of<32>(std::string(64, '5')));
  const Secret32 without = root_secret(Secret32(), pair);
  const Secret32 with = root_secret(job.job, pair);
  CHECK(opening_keys(without, some_link()).token != opening_keys(with, some_link()).token);
  // A file that serves as the cluster's gives another secret than as a job's.
  CHECK(to_hex(job.job.span()) != to_hex(job.cluster.span()));
  CHECK(to_hex(job.job.span()) != to_hex(job.entry.span()));
}

}  // namespace gradwire::security
