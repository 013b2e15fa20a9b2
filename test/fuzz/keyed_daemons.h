// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Daemons with keys, as far as a table shows them. They stay for the life of the program; what
/// their configuration says of keys may be changed. X25519 keys are drawn: nothing may depend on
/// their bytes.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "control/formation/table.h"
#include "control/keys/daemon_keys.h"
#include "fuzz/input.h"
#include "fuzz/table_reference.h"

namespace gradwire::fuzz {

using namespace gradwire::control;
using security::Mode;

inline constexpr std::size_t kRanks = 4;
inline constexpr std::size_t kFiles = 3;  ///< of clusters; behind them those of jobs
inline constexpr std::size_t kJobFiles = 2;
inline constexpr std::size_t kKeysAt = offsetof(ipc::RankInfo, keys);
inline constexpr std::array<uid_t, 2> kUsers = {500, 501};
/// Which files a daemon has; the first one first.
inline const std::array<std::vector<std::size_t>, 8> kSets = {
    {{0}, {0, 1}, {1, 0}, {1}, {0, 2}, {2, 1}, {2}, {}}};

inline Bytes32 file_bytes(std::size_t file) {
  Bytes32 bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(41 * file + 7 * i);
  return bytes;
}
inline security::Secret32 file_secret(std::size_t file) {
  security::Secret32 secret;
  std::ranges::copy(file_bytes(file), secret.span().begin());
  return secret;
}

inline std::vector<LocalAddress> addresses_of_rank(std::size_t rank) {
  const wire::IpAddress ip{.family = 4, .bytes = {10, 0, 0, static_cast<std::uint8_t>(rank + 1)}};
  return {{0, ip, 24}};
}
/// As that daemon describes itself, but for keys.
inline ipc::RankInfo described(std::size_t rank, uid_t user) {
  DaemonInfo daemon;
  daemon.version = "fuzz";
  daemon.incarnation = 100 + rank;
  daemon.secret = {daemon.incarnation, 77};
  daemon.max_payload_bytes = 8192;
  daemon.base_udp_port = 18515;
  // So that packets go between any two ranks.
  daemon.transfers = daemon.tiles = true;
  ipc::RankInfo info = make_rank_info(daemon, 2, addresses_of_rank(rank));
  info.secret = secret_for(daemon.secret, user);
  info.checksum = checksum_of(info);
  return info;
}

/// Rank r's daemon, with one of kSets. Its keys stay for the life of the program.
struct Daemon {
  Daemon(std::size_t rank, const std::vector<std::size_t>& files) : rank(rank) {
    if (files.size() == 1) options.cluster.reset(new ClusterKeys(file_secret(files[0])));
    if (files.size() == 2) {
      options.cluster.reset(new ClusterKeys(file_secret(files[0]), file_secret(files[1])));
    }
    options.sealed_payload_bytes = 64;
    keys = std::make_unique<DaemonKeys>(options, 100 + rank);
    for (const uid_t user : kUsers) {
      own_keys.push_back(ReferenceEntry(entry(user, Mode::kOff, {})).public_key());
    }
  }
  ipc::RankInfo entry(uid_t user, Mode wanted, const security::KeyId& job) const {
    ipc::RankInfo info = described(rank, user);
    FUZZ_CHECK(keys->write(info, user, wanted, job).has_value());
    info.checksum = checksum_of(info);
    return info;
  }
  std::size_t rank;
  KeyOptions options;
  std::unique_ptr<DaemonKeys> keys;
  std::vector<Bytes32> own_keys;  ///< public ones, by user
};

inline std::vector<ReferenceFile> files;
inline std::array<std::deque<Daemon>, kRanks> daemons;  ///< by set
inline std::vector<JobKeyPtr> jobs;                     ///< none, then those of the files

/// Once.
inline void make_daemons() {
  for (std::size_t file = 0; file < kFiles + kJobFiles; ++file)
    files.emplace_back(file_bytes(file));
  jobs.push_back(nullptr);
  for (std::size_t job = 0; job < kJobFiles; ++job) {
    jobs.emplace_back(new JobKey(security::FileKeys(file_secret(kFiles + job))));
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (const auto& set : kSets) daemons[rank].emplace_back(rank, set);
  }
}

}  // namespace gradwire::fuzz
