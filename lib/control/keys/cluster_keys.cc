// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/cluster_keys.h"

#include "security/key_file.h"

namespace gradwire::control {

Result<ClusterKeysPtr> read_cluster_keys(const KeyFiles& files) {
  if (files.first.empty()) return ClusterKeysPtr();
  const auto first = security::read_key_file(files.first);
  if (!first) return tl::unexpected(first.error());
  if (files.second.empty()) return ClusterKeysPtr(new ClusterKeys(*first));
  const auto second = security::read_key_file(files.second);
  if (second) return ClusterKeysPtr(new ClusterKeys(*first, *second));
  if (second.error().code != ErrorCode::kNotFound) return tl::unexpected(second.error());
  return ClusterKeysPtr(new ClusterKeys(*first));
}

}  // namespace gradwire::control
