// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/join_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace gradwire::control {
namespace {

using security::EntryKeys;
using security::KeyId;
using security::Mode;

tl::unexpected<Error> mismatch(std::string text) {
  return fail(ErrorCode::kMismatch, std::move(text));
}

/// "5f00112233445566, 0011223344556677"
std::string ids_text(const EntryKeys& entry) {
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < entry.key_count; ++i) ids.push_back(security::text_of(entry.ids[i]));
  return fmt::format("{}", fmt::join(ids, ", "));
}

std::string job_text(const KeyId& job) {
  return is_key(job) ? "the job's key " + security::text_of(job) : std::string("no key of the job");
}

bool has(const EntryKeys& entry, const KeyId& id) {
  return std::find(entry.ids.begin(), entry.ids.begin() + entry.key_count, id) !=
         entry.ids.begin() + entry.key_count;
}

/// "the entry of rank 3 does not fit key 5f...": the sentence of doc/security.md.
tl::unexpected<Error> unfit(std::size_t rank, const KeyId& id) {
  return mismatch(
      fmt::format("the entry of rank {} does not fit key {}: changed on its way, or of another key "
                  "with this id",
                  rank, security::text_of(id)));
}

Result<std::vector<EntryKeys>> read_all(std::span<const ipc::RankInfo> table) {
  std::vector<EntryKeys> entries;
  entries.reserve(table.size());
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    const auto entry = security::read_keys(bytes_of_entry(table[rank]));
    if (!entry) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("what the entry of rank {} says of keys is not as this release has "
                              "it: its daemon is of another release, or it was changed on its way",
                              rank));
    }
    entries.push_back(*entry);
  }
  return entries;
}

/// The key by which each entry's MAC was found to fit; nullptr: none.
using FittingKeys = std::vector<const security::FileKeys*>;

/// Rule 2: an entry that says that it has a key which this daemon has too was made with it.
Result<FittingKeys> check_macs(std::span<const ipc::RankInfo> table,
                               std::span<const EntryKeys> entries, const ClusterKeys* cluster) {
  FittingKeys fitting(table.size(), nullptr);
  if (cluster == nullptr) return fitting;
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    for (const security::FileKeys& key : cluster->all()) {
      if (!has(entries[rank], key.id)) continue;
      if (!security::mac_fits(bytes_of_entry(table[rank]), key)) return unfit(rank, key.id);
      fitting[rank] = &key;
      break;
    }
  }
  return fitting;
}

/// Every rank has a key, if one wants more than off.
Result<void> check_all_have_keys(std::span<const EntryKeys> entries, Mode mode) {
  const auto without = std::ranges::find(entries, 0, &EntryKeys::key_count);
  if (without == entries.end()) return {};
  const auto wants = std::ranges::find(entries, mode, &EntryKeys::wanted);
  return mismatch(fmt::format("rank {} has no key, and rank {} wants {}", without - entries.begin(),
                              wants - entries.begin(), security::name_of(mode)));
}

/// Names ranks that keep the group from having a key, and their keys' ids.
tl::unexpected<Error> no_common_key(std::span<const EntryKeys> entries) {
  std::array<std::size_t, security::kKeysMax> lacking{};  // the first rank without rank 0's i-th
  for (std::size_t i = 0; i < entries[0].key_count; ++i) {
    while (has(entries[lacking[i]], entries[0].ids[i])) ++lacking[i];
  }
  const std::size_t a = lacking[0];
  const std::size_t b = entries[0].key_count == 1 ? a : lacking[1];
  std::string text = fmt::format("ranks 0 and {} have no key in common: rank 0 has {}, rank {} {}",
                                 a, ids_text(entries[0]), a, ids_text(entries[a]));
  if (a != b) {
    text = fmt::format(
        "no key of rank 0 ({}) is one that ranks {} and {} both have: rank {} has {}, rank {} {}",
        ids_text(entries[0]), a, b, a, ids_text(entries[a]), b, ids_text(entries[b]));
  }
  return mismatch(std::move(text));
}

/// Rules 3 and 4, but for the MACs.
Result<void> check_jobs_and_users(std::span<const EntryKeys> entries, std::size_t own,
                                  const JoinKeys& keys) {
  std::map<security::PublicKey, std::size_t> ranks;
  for (std::size_t rank = 0; rank < entries.size(); ++rank) {
    const EntryKeys& entry = entries[rank];
    if (entry.job != keys.job) {
      return mismatch(
          fmt::format("rank {} has {}, and rank {} {}: all processes of a job bring "
                      "the same",
                      rank, job_text(entry.job), own, job_text(keys.job)));
    }
    if (const auto [found, is_new] = ranks.emplace(entry.public_key, rank); !is_new) {
      return mismatch(
          fmt::format("ranks {} and {} have the same public key: one of the entries is "
                      "not its daemon's",
                      found->second, rank));
    }
  }
  if (is_key(keys.job) || security::all_of_user(entries, keys.uid)) return {};
  const auto other =
      std::ranges::find_if(entries, [&](const EntryKeys& e) { return e.user != keys.uid; });
  return fail(ErrorCode::kPermission,
              fmt::format("the entry of rank {} was made for user {}, and user {} joins: a job "
                          "whose processes have other user ids on other hosts needs a key of its "
                          "own",
                          other - entries.begin(), other->user, keys.uid));
}

Result<void> check_wanted(const JoinKeys& keys) {
  if (keys.wanted >= keys.minimum) return {};
  return fail(ErrorCode::kPermission,
              fmt::format("the job wants {}, and security.minimum is {}",
                          security::name_of(keys.wanted), security::name_of(keys.minimum)));
}

}  // namespace

Mode mode_of(ipc::WantedMode wanted, Mode daemons) noexcept {
  switch (wanted) {
    case ipc::WantedMode::kOff:
      return Mode::kOff;
    case ipc::WantedMode::kAuthenticate:
      return Mode::kAuthenticate;
    case ipc::WantedMode::kEncrypt:
      return Mode::kEncrypt;
    case ipc::WantedMode::kDaemons:
      break;
  }
  return daemons;
}

Result<void> check_own_keys(std::size_t rank, const ipc::RankInfo& entry, const JoinKeys& keys) {
  if (keys.cluster == nullptr) return {};
  const auto said = security::read_keys(bytes_of_entry(entry));
  const bool known = said && std::ranges::any_of(
                                 keys.cluster->all(),
                                 [&](const security::FileKeys& key) { return has(*said, key.id); });
  if (!known) {
    return mismatch(
        fmt::format("the entry of rank {} comes from this daemon and has none of its keys: the "
                    "daemon has others since, or it was changed on its way: ask for another one",
                    rank));
  }
  for (const security::FileKeys& key : keys.cluster->all()) {
    if (has(*said, key.id) && !security::mac_fits(bytes_of_entry(entry), key)) {
      return unfit(rank, key.id);
    }
  }
  if (said->user != keys.uid) {
    return fail(ErrorCode::kPermission,
                fmt::format("the entry of rank {} was made for user {}, and user {} joins", rank,
                            said->user, keys.uid));
  }
  if (keys.users->find(keys.uid, said->public_key) == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the entry of rank {} is too old: ask for another one", rank));
  }
  if (said->wanted != keys.wanted) {
    return mismatch(
        fmt::format("the entry of rank {} says that the job wants {}, and the join "
                    "asks for {}: they have to be the same",
                    rank, security::name_of(said->wanted), security::name_of(keys.wanted)));
  }
  if (said->job != keys.job) {
    return mismatch(fmt::format("the entry of rank {} says {}, and the join has {}", rank,
                                job_text(said->job), job_text(keys.job)));
  }
  return {};
}

Result<GroupSecurity> agree_on_keys(std::span<const ipc::RankInfo> table, std::size_t rank,
                                    const JoinKeys& keys) {
  if (auto enough = check_wanted(keys); !enough) return tl::unexpected(enough.error());
  auto entries = read_all(table);
  if (!entries) return tl::unexpected(entries.error());
  if (auto own = check_own_keys(rank, table[rank], keys); !own) return tl::unexpected(own.error());
  const auto fitting = check_macs(table, *entries, keys.cluster);
  if (!fitting) return tl::unexpected(fitting.error());
  GroupSecurity agreed;
  // Without a key its own entry cannot say what the job wants.
  agreed.mode = std::max(security::mode_of(*entries), keys.wanted);
  if (agreed.mode == Mode::kOff) {
    if (!is_key(keys.job)) return agreed;
    return mismatch(
        fmt::format("the job has a key of its own, and no rank wants more than off: {} would "
                    "protect nothing",
                    job_text(keys.job)));
  }
  if (keys.cluster == nullptr) (*entries)[rank].wanted = keys.wanted;
  if (auto all = check_all_have_keys(*entries, agreed.mode); !all) {
    return tl::unexpected(all.error());
  }
  const auto id = security::common_key((*entries)[0], *entries);
  if (!id) return no_common_key(*entries);
  agreed.key = *id;
  const security::FileKeys* key =
      keys.cluster == nullptr ? nullptr : keys.cluster->by_id(agreed.key);
  if (key == nullptr) {
    return mismatch(
        fmt::format("the group's key {} was taken away from this daemon since the entry of rank {} "
                    "was made: ask for another one",
                    security::text_of(agreed.key), rank));
  }
  for (std::size_t each = 0; each < table.size(); ++each) {
    if ((*fitting)[each] == key) continue;
    if (!security::mac_fits(bytes_of_entry(table[each]), *key)) return unfit(each, agreed.key);
  }
  if (auto fit = check_jobs_and_users(*entries, rank, keys); !fit) {
    return tl::unexpected(fit.error());
  }
  if (!keys.why_no_seals.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the group wants {}, and this daemon can seal no packet: {}",
                            security::name_of(agreed.mode), keys.why_no_seals));
  }
  agreed.own = (*entries)[rank].public_key;
  agreed.payload_bytes = security::sealed_payload_of(*entries);
  for (const EntryKeys& entry : *entries) agreed.public_keys.push_back(entry.public_key);
  return agreed;
}

std::string formed_text(const GroupSecurity& security) {
  if (security.mode == Mode::kOff) return {};
  return fmt::format(", security {} by key {}", security::name_of(security.mode),
                     security::text_of(security.key));
}

std::string keys_difference(const ipc::RankInfo& a, const ipc::RankInfo& b) {
  const auto one = security::read_keys(bytes_of_entry(a));
  const auto other = security::read_keys(bytes_of_entry(b));
  if (!one || !other) return {};
  if (one->wanted != other->wanted) {
    return fmt::format("one wants {}, the other {}", security::name_of(one->wanted),
                       security::name_of(other->wanted));
  }
  if (one->job != other->job) {
    return fmt::format("one has {}, the other {}", job_text(one->job), job_text(other->job));
  }
  if (one->key_count != other->key_count || one->ids != other->ids ||
      one->public_key != other->public_key) {
    return "the daemon's keys changed in between: ask for both again";
  }
  return {};
}

}  // namespace gradwire::control
