// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Daemons with keys, as far as a table shows them: daemon 100 + r of table_support.h is rank r.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/keys/daemon_keys.h"
#include "table_support.h"

namespace gradwire::control::test {

/// 32 bytes that no file check refuses.
inline security::Secret32 key_bytes(unsigned char first) {
  security::Secret32 key;
  for (std::size_t i = 0; i < 32; ++i) key.span()[i] = static_cast<std::byte>(first + 7 * i);
  return key;
}
inline security::KeyId key_id(unsigned char first) {
  return security::FileKeys(key_bytes(first)).id;
}
/// One or two keys; none: nullptr.
inline ClusterKeysPtr cluster_of(const std::vector<unsigned char>& firsts) {
  if (firsts.empty()) return nullptr;
  if (firsts.size() == 1) return ClusterKeysPtr(new ClusterKeys(key_bytes(firsts[0])));
  return ClusterKeysPtr(new ClusterKeys(key_bytes(firsts[0]), key_bytes(firsts[1])));
}
inline JobKeyPtr job_key(unsigned char first) {
  return JobKeyPtr(new JobKey(security::FileKeys(key_bytes(first))));
}

inline ipc::WantedMode wanted(security::Mode mode) {
  return static_cast<ipc::WantedMode>(static_cast<std::uint32_t>(mode) + 1);
}
inline ipc::JoinWants wants(security::Mode mode, const security::KeyId& job = {}) {
  ipc::JoinWants wants;
  wants.mode = wanted(mode);
  for (std::size_t i = 0; i < job.size(); ++i) wants.job[i] = std::to_integer<std::uint8_t>(job[i]);
  return wants;
}

/// What a daemon of a table has of keys.
struct KeyedDaemon {
  KeyedDaemon(std::size_t rank, const std::vector<unsigned char>& firsts,
              security::Mode mode = security::Mode::kOff)
      : rank(rank) {
    options.mode = mode;
    options.cluster = cluster_of(firsts);
    options.sealed_payload_bytes = 8128;
    keys = std::make_unique<DaemonKeys>(options, 100 + rank);
  }
  KeyedDaemon(const KeyedDaemon&) = delete;
  KeyedDaemon& operator=(const KeyedDaemon&) = delete;
  /// As it describes itself.
  ipc::RankInfo entry(security::Mode mode, uid_t uid = kUid, const security::KeyId& job = {}) {
    ipc::RankInfo info = rank_info(rank, 2, uid);
    REQUIRE(keys->write(info, uid, mode, job));
    info.checksum = checksum_of(info);
    return info;
  }
  std::size_t rank;
  KeyOptions options;
  std::unique_ptr<DaemonKeys> keys;
};

}  // namespace gradwire::control::test
