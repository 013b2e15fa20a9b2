// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/daemon_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "control/lanes/lane_control.h"

namespace gradwire::control {
namespace {

/// Those with which packets are exchanged.
std::set<std::uint16_t> other_ranks(const PlanRequest& wanted) {
  std::set<std::uint16_t> others;
  for (const auto* neighbors : {&wanted.upstream, &wanted.downstream}) {
    if (!neighbors->empty()) others.insert(neighbors->front().rank);
  }
  for (const PeerPaths& peer : wanted.peers) others.insert(peer.rank);
  return others;
}

}  // namespace

using security::Mode;

Mode parse_mode(const std::string& text) noexcept {
  if (text == "authenticate") return Mode::kAuthenticate;
  return text == "encrypt" ? Mode::kEncrypt : Mode::kOff;
}

DaemonKeys::DaemonKeys(const KeyOptions& options, std::uint64_t incarnation,
                       std::function<bool(uid_t)> is_here, const KeyMemory::Bounds& memory,
                       ipc::Worker* worker)
    : options_(options),
      incarnation_(incarnation),
      cluster_(options.cluster),
      memory_(std::make_shared<KeyMemory>(memory, worker)),
      pairs_(options.pairs),
      users_(options.users, std::move(is_here),
             [this](const security::PublicKey& key) { pairs_.forget_key(key); }) {}

std::vector<std::string> DaemonKeys::ids() const {
  std::vector<std::string> ids;
  if (cluster_ == nullptr) return ids;
  for (const security::FileKeys& key : cluster_->all()) ids.push_back(security::text_of(key.id));
  return ids;
}

std::string DaemonKeys::text() const {
  return fmt::format(
      "mode {}, minimum {}, {}", security::name_of(options_.mode),
      security::name_of(options_.minimum),
      cluster_ == nullptr ? "no key" : fmt::format("keys {}", fmt::join(ids(), ", ")));
}

Result<void> DaemonKeys::load() {
  if (options_.files.first.empty()) {
    return fail(ErrorCode::kUnsupported,
                "this daemon's configuration names no key: set security.key_file, and restart it");
  }
  auto read = read_cluster_keys(options_.files);
  if (!read) return tl::unexpected(read.error());
  const ClusterKeysPtr before = std::exchange(cluster_, std::move(*read));
  for (const security::FileKeys& key : before->all()) {
    if (cluster_->by_id(key.id) == nullptr) pairs_.forget_file(key.id);
  }
  return {};
}

Result<void> DaemonKeys::write(ipc::RankInfo& info, uid_t uid, Mode wanted,
                               const security::KeyId& job) {
  if (cluster_ == nullptr) return {};
  const auto key = users_.current(uid);
  if (!key) return tl::unexpected(key.error());
  security::EntryKeys fields;
  fields.wanted = wanted;
  fields.user = uid;
  fields.payload_bytes = options_.sealed_payload_bytes;
  fields.public_key = (*key)->public_key();
  fields.job = job;
  const auto bytes = std::as_writable_bytes(std::span(&info, 1)).first<security::kEntryBytes>();
  security::write_keys(bytes, fields, cluster_->all());
  return {};
}

std::string DaemonKeys::why_not(Mode wanted) const {
  if (wanted == Mode::kOff) return {};
  if (cluster_ == nullptr) {
    return fmt::format(
        "the job wants {}, and this daemon has no key: set security.key_file in its configuration",
        security::name_of(wanted));
  }
  if (options_.why_no_seals.empty()) return {};
  return fmt::format("the job wants {}, and this daemon can seal no packet: {}",
                     security::name_of(wanted), options_.why_no_seals);
}

JoinKeys DaemonKeys::for_join(uid_t uid, const ipc::JoinWants& wants) const {
  JoinKeys keys;
  keys.cluster = cluster_.get();
  keys.users = &users_;
  keys.uid = uid;
  keys.wanted = mode_of(wants.mode, options_.mode);
  keys.minimum = options_.minimum;
  std::ranges::transform(wants.job, keys.job.begin(), [](std::uint8_t b) { return std::byte{b}; });
  keys.why_no_seals = options_.why_no_seals;
  return keys;
}

Result<KeyRoomPtr> DaemonKeys::room_for(const PlanRequest& wanted, uid_t uid) {
  if (wanted.security.mode == Mode::kOff) return KeyRoomPtr();
  return memory_->take(uid, other_ranks(wanted).size() * wanted.lanes * GroupKeys::link_bytes());
}

Result<std::shared_ptr<KeyMaking>> DaemonKeys::making_for(const PlanRequest& wanted, uid_t uid,
                                                          std::span<const ipc::RankInfo> table,
                                                          const JobKeyPtr& job, KeyRoomPtr room) {
  UserKeyPtr own = users_.find(uid, wanted.security.own);
  if (own == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the entry of rank {} is too old: ask for another one", wanted.rank));
  }
  if (cluster_->by_id(wanted.security.key) == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the group's key {} was taken away from this daemon meanwhile: ask for "
                            "another entry",
                            security::text_of(wanted.security.key)));
  }
  std::vector<KeyMaking::Rank> ranks;
  for (const std::uint16_t other : other_ranks(wanted)) {
    KeyMaking::Rank& rank = ranks.emplace_back();
    rank.rank = other;
    rank.incarnation = table[other].incarnation;
    rank.public_key = wanted.security.public_keys[other];
    rank.pair =
        pairs_.find({own->public_key(), rank.public_key, rank.incarnation, wanted.security.key});
  }
  LinkCommon common;
  common.group = wanted.key;
  common.mode = wanted.security.mode;
  common.lanes = wanted.lanes;
  common.rank = wanted.rank;
  common.all_ranks = static_cast<std::uint16_t>(table.size());
  common.incarnation = incarnation_;
  common.table_hash = wanted.table_hash;
  return std::make_shared<KeyMaking>(common, std::move(own), cluster_, wanted.security.key, job,
                                     std::move(ranks), std::move(room));
}

void DaemonKeys::keep_pairs_of(const KeyMaking& making, uid_t uid) {
  if (users_.find(uid, making.own_key()) == nullptr) return;
  if (cluster_->by_id(making.file()) == nullptr) return;
  making.keep_pairs(pairs_);
}

}  // namespace gradwire::control
