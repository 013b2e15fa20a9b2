// SPDX-License-Identifier: BSD-3-Clause
// What is random in a table's entry, and what of it only one user's processes learn.
#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/sip_hash.h"
#include "control/formation/table.h"

namespace gradwire::control {
namespace {

/// In a hash's input, so that no two uses of a key give the same; table.cc has 3.
constexpr std::uint8_t kUserSecretLabel = 2;

}  // namespace

Result<std::uint64_t> random_incarnation() {
  std::uint64_t value = 0;
  while (value == 0) {
    if (getrandom(&value, sizeof value, 0) != sizeof value) {
      return fail(ErrorCode::kSystem, fmt::format("getrandom: {}", std::strerror(errno)));
    }
  }
  return value;
}

Result<SipHashKey> random_secret() {
  SipHashKey secret;
  if (getrandom(&secret, sizeof secret, 0) != sizeof secret) {
    return fail(ErrorCode::kSystem, fmt::format("getrandom: {}", std::strerror(errno)));
  }
  return secret;
}

std::uint32_t secret_for(const SipHashKey& daemon_secret, uid_t uid) noexcept {
  std::array<std::byte, 1 + sizeof uid> input{};
  input[0] = std::byte{kUserSecretLabel};
  std::memcpy(&input[1], &uid, sizeof uid);
  return static_cast<std::uint32_t>(sip_hash(daemon_secret, input));
}

}  // namespace gradwire::control
