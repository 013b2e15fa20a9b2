// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Tables for tests: rank r is daemon 100 + r with address 10.0.0.(r + 1)/24; from 10.0.0.255 on
/// comes 10.0.1.0.
#pragma once

#include <string>
#include <vector>

#include "control/formation/table.h"

namespace gradwire::control::test {

inline LocalAddress local_address(std::uint16_t port, const std::string& ip, int prefix_bits = 24) {
  return {port, wire::parse_ip(ip).value(), static_cast<std::uint8_t>(prefix_bits)};
}

constexpr uid_t kUid = 500;  ///< whose processes the entries were described to

inline DaemonInfo daemon_info(std::uint64_t incarnation) {
  DaemonInfo daemon;
  daemon.version = "test";
  daemon.incarnation = incarnation;
  daemon.secret = {incarnation, 77};
  daemon.max_payload_bytes = 8192;
  daemon.base_udp_port = 18515;
  return daemon;
}

/// As that daemon describes itself to a process of `uid`.
inline ipc::RankInfo described(std::uint64_t incarnation, std::uint8_t lanes,
                               const std::vector<LocalAddress>& addresses, uid_t uid = kUid) {
  const DaemonInfo daemon = daemon_info(incarnation);
  ipc::RankInfo info = make_rank_info(daemon, lanes, addresses);
  info.secret = secret_for(daemon.secret, uid);
  info.checksum = checksum_of(info);
  return info;
}

inline ipc::RankInfo rank_info(std::size_t rank, std::uint8_t lanes = 2, uid_t uid = kUid) {
  const std::string ip =
      "10.0." + std::to_string((rank + 1) / 256) + "." + std::to_string((rank + 1) % 256);
  return described(100 + rank, lanes, {local_address(0, ip)}, uid);
}

inline std::vector<ipc::RankInfo> table_of(std::size_t nranks) {
  std::vector<ipc::RankInfo> table;
  for (std::size_t rank = 0; rank < nranks; ++rank) table.push_back(rank_info(rank));
  return table;
}

inline ipc::JoinBody join_body(std::size_t rank, std::vector<ipc::RankInfo> table,
                               std::uint16_t member = 0, std::uint16_t member_count = 1) {
  ipc::JoinBody join;
  join.request.group_id = 0xfeed;
  join.request.epoch = 1;
  join.request.rank = static_cast<std::uint16_t>(rank);
  join.request.nranks = static_cast<std::uint16_t>(table.size());
  join.request.member = member;
  join.request.member_count = member_count;
  join.table = std::move(table);
  for (ipc::RankInfo& info : join.table) info.checksum = checksum_of(info);
  return join;
}

}  // namespace gradwire::control::test
