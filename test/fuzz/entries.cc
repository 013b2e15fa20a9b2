// SPDX-License-Identifier: BSD-3-Clause
// Tables of daemons with keys, after a store, or somebody who has a key, changed them: any bytes in
// any entry, with right MACs or wrong ones, entries of other jobs, users and daemons, and different
// tables for different ranks. Each rank must form exactly the groups that doc/security.md lets it
// form (table_reference.h): no mode below what it wants, no entry whose MAC does not fit. Ranks
// that look at one table come to the same group, and their packets open; with different tables none
// does.
//
// The input: a byte for all ranks and one or more for each, then changes, a byte each and then
// their fields. X25519 keys are drawn when the program starts, and nothing depends on their bytes.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "control/plans/plan_request.h"
#include "fuzz/input.h"
#include "fuzz/keyed_daemons.h"
#include "fuzz/table_reference.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;

struct Member {
  Daemon* daemon = nullptr;
  std::size_t set = 0;
  uid_t user = 0;
  ipc::JoinWants wants;
  std::size_t job = 0;
  ReferenceJoin reference;

  security::KeyId job_id() const {
    return jobs[job] == nullptr ? security::KeyId{} : jobs[job]->id;
  }
};

class Run {
 public:
  explicit Run(Input& input) : input_(input) {
    const std::uint8_t all = input.u8();
    for (std::size_t rank = 0; rank < 1 + (all & 3u); ++rank) add_member(rank, all);
    shown_.fill(0);
    for (const Member& member : members_) tables_[0].push_back(own_entry(member));
  }

  void act() {
    const std::uint8_t kind = input_.u8();
    if (kind % 16 == 15) return show_another();
    const std::size_t rank = input_.pick(static_cast<std::uint32_t>(members_.size()));
    ipc::RankInfo& entry = tables_[newest_][rank];
    change(kind % 16, rank, entry);
    // Mostly by somebody who has the keys: else the fuzzer would see the same refusal again and
    // again.
    if ((kind & 0x10) == 0) make_macs(entry);
    if ((kind & 0x60) != 0x60) entry.checksum = checksum_of(entry);
  }

  void finish() {
    for (std::size_t rank = 0; rank < members_.size(); ++rank) agree(rank);
    for (std::size_t a = 0; a < members_.size(); ++a) {
      for (std::size_t b = a + 1; b < members_.size(); ++b) compare(a, b);
    }
  }

 private:
  using Table = std::vector<ipc::RankInfo>;

  void add_member(std::size_t rank, std::uint8_t all) {
    Member member;
    const std::uint8_t own = input_.u8();
    member.set = (own & 1) != 0 ? input_.pick(kSets.size()) : (all >> 2 & 1u);
    member.daemon = &daemons[rank][member.set];
    member.user = kUsers[(own & 2) != 0 ? 1 : 0];
    member.job = (own & 4) != 0 ? input_.pick(1 + kJobFiles) : (all >> 3 & 1u);
    member.wants.mode =
        static_cast<ipc::WantedMode>((own & 8) != 0 ? input_.pick(4) : all >> 4 & 3u);
    for (std::size_t i = 0; i < member.wants.job.size(); ++i) {
      member.wants.job[i] = std::to_integer<std::uint8_t>(member.job_id()[i]);
    }
    KeyOptions& options = member.daemon->options;
    options.mode = static_cast<Mode>(all >> 6 & 1u);
    options.minimum = (own & 16) != 0 ? static_cast<Mode>(input_.pick(3)) : Mode::kOff;
    options.sealed_payload_bytes = (own & 32) != 0 ? 64u * (1 + input_.u8()) : 1344;
    options.why_no_seals = (own & 0xc0) == 0xc0 ? "the input says so" : "";

    ReferenceJoin& join = member.reference;
    for (const std::size_t file : kSets[member.set]) join.files.push_back(&files[file]);
    join.own_keys = {member.daemon->own_keys[member.user - kUsers[0]]};
    join.user = member.user;
    join.wanted =
        member.wants.mode == ipc::WantedMode::kDaemons
            ? static_cast<std::uint8_t>(options.mode)
            : static_cast<std::uint8_t>(static_cast<std::uint32_t>(member.wants.mode) - 1);
    join.minimum = static_cast<std::uint8_t>(options.minimum);
    join.job = member.job_id();
    join.can_seal = options.why_no_seals.empty();
    members_.push_back(std::move(member));
  }
  static ipc::RankInfo own_entry(const Member& member) {
    return member.daemon->entry(member.user, static_cast<Mode>(member.reference.wanted),
                                member.job_id());
  }

  /// What changes from here on, some ranks see and others do not.
  void show_another() {
    const std::uint8_t sees = input_.u8();
    if (newest_ == 1) return;
    tables_[newest_ = 1] = tables_[0];
    for (std::size_t rank = 0; rank < kRanks; ++rank) shown_[rank] = sees >> rank & 1u;
  }

  void put(ipc::RankInfo& entry, std::size_t at, std::span<const std::byte> bytes) {
    bytes = bytes.first(std::min(bytes.size(), sizeof entry - at));
    std::memcpy(reinterpret_cast<std::byte*>(&entry) + at, bytes.data(), bytes.size());
  }
  void put_number(ipc::RankInfo& entry, std::size_t at, std::uint32_t value) {
    put(entry, at, std::as_bytes(std::span(&value, 1)));
  }
  Bytes8 some_id() {
    const std::size_t file = input_.pick(kFiles + kJobFiles + 2);
    Bytes8 id{};
    if (file < files.size()) return files[file].id;
    if (file == files.size()) std::ranges::copy(input_.bytes(id.size()), id.begin());
    return id;
  }
  Bytes32 some_public_key() {
    Bytes32 key{};
    switch (input_.pick(5)) {
      case 0:
        return ReferenceEntry(tables_[newest_][input_.pick(tables_[0].size())]).public_key();
      case 1:  // 0 and 1 are of low order
        key[0] = static_cast<std::byte>(input_.pick(2));
        return key;
      case 2:  // p - 1, p and p + 1 are
        key.fill(std::byte{0xff});
        key[0] = static_cast<std::byte>(0xec + input_.pick(3));
        key[31] = static_cast<std::byte>(input_.pick(2) != 0 ? 0x7f : 0xff);
        return key;
      default:
        std::ranges::copy(input_.bytes(key.size()), key.begin());
        return key;
    }
  }

  void change(std::uint8_t kind, std::size_t rank, ipc::RankInfo& entry) {
    switch (kind) {
      case 0: {
        const std::size_t at = kKeysAt + input_.pick(sizeof entry.keys);
        return put(entry, at, input_.bytes(input_.pick(40)));
      }
      case 1: {
        const std::size_t at = input_.u16() % sizeof entry;
        return put(entry, at, input_.bytes(input_.pick(16)));
      }
      case 2:
        entry.keys[282 - kKeysAt] = static_cast<std::uint8_t>(input_.pick(4));
        return;
      case 3:
        return put(entry, 288, some_public_key());
      case 4: {
        const std::size_t at = input_.pick(2) != 0 ? 344 : 320;
        return put(entry, at, some_id());
      }
      case 5:
        entry.keys[283 - kKeysAt] = static_cast<std::uint8_t>(input_.pick(4));
        return;
      case 6:
        entry.incarnation = input_.pick(2) != 0 ? 100 + input_.pick(kRanks) : input_.u64();
        return;
      case 7:
        return put_number(entry, 376, input_.pick(4) != 0 ? 64u * input_.u8() : input_.u32());
      case 8:
        return put_number(entry, 284, input_.pick(4) != 0 ? 500 + input_.pick(2) : input_.u32());
      case 9:
        return put(entry, 368, some_id());
      case 10:  // of another rank
        entry = tables_[newest_][input_.pick(static_cast<std::uint32_t>(members_.size()))];
        return;
      case 11: {  // the daemon's, which it made for another job or user
        const auto wanted = static_cast<Mode>(input_.pick(3));
        const uid_t user = kUsers[input_.pick(2)];
        const std::size_t job = input_.pick(1 + kJobFiles);
        const security::KeyId id = job == 0 ? security::KeyId{} : jobs[job]->id;
        entry = members_[rank].daemon->entry(user, wanted, id);
        return;
      }
      case 12: {  // of a daemon of that name that has other keys
        const std::size_t set = input_.pick(kSets.size());
        entry = daemons[rank][set].entry(members_[rank].user, Mode::kEncrypt, {});
        return;
      }
      case 13:
        std::ranges::fill(entry.keys, std::uint8_t{0});
        return;
      default:
        entry.addresses[0].ip[input_.pick(4)] ^= static_cast<std::uint8_t>(1 + input_.pick(8));
    }
  }
  /// What whoever has all files can.
  void make_macs(ipc::RankInfo& entry) {
    const std::size_t count = std::min<std::size_t>(ReferenceEntry(entry).key_count(), 2);
    for (std::size_t k = 0; k < count; ++k) {
      const auto file = std::ranges::find(files, ReferenceEntry(entry).id(k), &ReferenceFile::id);
      if (file == files.end()) continue;
      put(entry, k == 0 ? 328 : 352, ReferenceEntry(entry).mac(*file));
    }
  }

  const Table& table_of(std::size_t rank) const { return tables_[shown_[rank]]; }

  void agree(std::size_t rank) {
    const Member& member = members_[rank];
    const Table& table = table_of(rank);
    const JoinKeys keys = member.daemon->keys->for_join(member.user, member.wants);
    const auto own = check_own_keys(rank, table[rank], keys);
    FUZZ_CHECK(own.has_value() == own_entry_fits(ReferenceEntry(table[rank]), member.reference));
    FUZZ_CHECK(own.has_value() || !own.error().message.empty());

    const auto right = group_of(table, rank, member.reference);
    const auto agreed = agree_on_keys(table, rank, keys);
    FUZZ_CHECK(agreed.has_value() == right.has_value());
    FUZZ_CHECK(agreed.has_value() || !agreed.error().message.empty());
    if (!agreed) return;
    FUZZ_CHECK(static_cast<std::uint8_t>(agreed->mode) == right->mode);
    FUZZ_CHECK(agreed->mode >= keys.minimum && agreed->mode >= keys.wanted);
    FUZZ_CHECK(agreed->key == right->key && agreed->payload_bytes == right->payload);
    FUZZ_CHECK(formed_text(*agreed).empty() == (right->mode == 0));
    for (const ipc::RankInfo& other : table) {
      static_cast<void>(keys_difference(table[rank], other));
    }
    if (agreed->mode != Mode::kOff) {
      FUZZ_CHECK(agreed->public_keys.size() == table.size());
      for (std::size_t each = 0; each < table.size(); ++each) {
        FUZZ_CHECK(agreed->public_keys[each] == ReferenceEntry(table[each]).public_key());
      }
      FUZZ_CHECK(agreed->own == agreed->public_keys[rank]);
    }
    plan(rank, *agreed, keys);
  }

  /// All that a daemon does with the table, up to the keys of its links.
  void plan(std::size_t rank, const GroupSecurity& agreed, const JoinKeys& keys) {
    const Member& member = members_[rank];
    ipc::JoinBody join;
    join.request.group_id = 0xfeed;
    join.request.epoch = 1;
    join.request.rank = static_cast<std::uint16_t>(rank);
    join.request.nranks = static_cast<std::uint16_t>(members_.size());
    join.table = table_of(rank);
    join.wants = member.wants;
    auto plan = plan_request(join, described(rank, member.user), addresses_of_rank(rank), keys);
    FUZZ_CHECK(plan.has_value() || !plan.error().message.empty());
    if (!plan) return;
    FUZZ_CHECK(plan->security.mode == agreed.mode && plan->security.key == agreed.key);
    if (agreed.mode == Mode::kOff) return;
    FUZZ_CHECK(plan->payload_bytes == agreed.payload_bytes);
    auto making = member.daemon->keys->making_for(*plan, member.user, join.table, jobs[member.job]);
    FUZZ_CHECK(making.has_value());
    while (!(*making)->work()) {
    }
    // A key of low order gives zeros with any other: there are no keys at all, or none of that
    // rank.
    const bool failed = (*making)->error().has_value();
    const security::X25519Exchange any_key(security::X25519Key::of(file_secret(0)));
    const std::shared_ptr<GroupKeys> made = (*making)->take();
    bool low_order = false;
    for (std::uint16_t other = 0; other < join.table.size(); ++other) {
      if (other == rank || any_key.with(agreed.public_keys[other])) continue;
      low_order = true;
      FUZZ_CHECK(failed || !made->has(other));
    }
    FUZZ_CHECK(!failed || low_order);
    if (failed) return;
    put_keys(*plan, made);
    plans_[rank] = std::make_unique<PlanRequest>(std::move(*plan));
  }

  /// What two ranks that both go on come to.
  void compare(std::size_t a, std::size_t b) {
    if (plans_[a] == nullptr || plans_[b] == nullptr) return;
    const auto to_a = static_cast<std::uint16_t>(a);
    const auto to_b = static_cast<std::uint16_t>(b);
    GroupKeys& one = *plans_[a]->keys;
    GroupKeys& other = *plans_[b]->keys;
    const bool same_table = std::memcmp(table_of(a).data(), table_of(b).data(),
                                        table_of(a).size() * sizeof(ipc::RankInfo)) == 0;
    if (same_table) {
      FUZZ_CHECK(one.has(to_b) == other.has(to_a));
      FUZZ_CHECK(plans_[a]->security.mode == plans_[b]->security.mode &&
                 plans_[a]->security.key == plans_[b]->security.key &&
                 plans_[a]->payload_bytes == plans_[b]->payload_bytes);
    }
    if (!one.has(to_b) || !other.has(to_a)) return;
    const bool same_tokens = one.tokens(0, to_b).to == other.tokens(0, to_a).from;
    FUZZ_CHECK(same_tokens || !same_table);
    // Only ranks of one table understand each other; with the keys of hellos others may, too.
    const auto here = one.make_seal(0, to_b);
    const auto there = other.make_seal(0, to_a);
    FUZZ_CHECK(opens(*here, *there, security::KeyUse::kData, 5) == same_table);
    FUZZ_CHECK(opens(*here, *there, security::KeyUse::kHello, 6) == same_tokens);
  }
  static bool opens(security::LinkSeal& here, security::LinkSeal& there, security::KeyUse use,
                    std::uint64_t number) {
    std::array<std::byte, security::kSealedHeaderBytes> header{};
    std::array<std::byte, 64> payload{};
    std::array<std::byte, security::kTagBytes> tag{};
    const std::span<const std::byte> only = payload;
    here.seal(use, number, header, {&only, 1}, payload.data(), tag);
    return there.open(use, number, header, payload, payload.data(), tag) ==
           security::OpenResult::kYes;
  }

  Input& input_;
  std::vector<Member> members_;
  std::array<Table, 2> tables_;
  std::size_t newest_ = 0;
  std::array<std::uint8_t, kRanks> shown_{};  ///< which table a rank gets
  std::array<std::unique_ptr<PlanRequest>, kRanks> plans_;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  make_daemons();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  play<Run>(data, size, 32);
  return 0;
}
