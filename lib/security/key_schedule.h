// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// From a key file to the keys of packets: doc/security.md, The key schedule. Pure functions. Any
/// thread; they allocate within OpenSSL, so none runs on a lane.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/types.h"
#include "security/hkdf.h"
#include "security/secret.h"
#include "security/x25519.h"

namespace gradwire::security {

/// What a group does with its packets. The values stand in entries and in the schedule.
enum class Mode : std::uint8_t { kOff = 0, kAuthenticate = 1, kEncrypt = 2 };
[[nodiscard]] const char* name_of(Mode mode) noexcept;

using KeyId = std::array<std::byte, 8>;
/// 16 hexadecimal digits.
[[nodiscard]] std::string text_of(const KeyId& id);

/// What follows from a file alone.
struct FileKeys {
  explicit FileKeys(const Secret32& file);
  KeyId id;
  Secret32 entry;    ///< MACs of entries
  Secret32 cluster;  ///< goes into pairs, if it is the cluster's key
  Secret32 job;      ///< goes into roots, if it is a job's
};

/// One end of a pair: what its entry says.
struct PairEnd {
  PublicKey public_key;
  std::uint64_t incarnation = 0;
};
/// The same on both ends. @return X25519Exchange::with()'s error.
[[nodiscard]] Result<Secret32> pair_secret(const Secret32& cluster, const X25519Exchange& own,
                                           std::uint64_t own_incarnation, const PairEnd& other);

/// @param job  FileKeys::job, or zeros if the job has no key.
[[nodiscard]] Secret32 root_secret(const Secret32& job, const Secret32& pair);

/// One direction between two ranks on a lane.
struct LinkContext {
  GroupKey group;
  std::uint8_t lane = 0;
  Mode mode = Mode::kEncrypt;
  std::uint16_t from_rank = 0;
  std::uint16_t to_rank = 0;
  std::uint64_t from_incarnation = 0;
  std::uint64_t to_incarnation = 0;
};
inline constexpr std::size_t kLinkContextBytes = 34;
[[nodiscard]] std::array<std::byte, kLinkContextBytes> bytes_of(const LinkContext& link) noexcept;

/// Key and iv of an AES-128-GCM.
struct PacketSecret {
  SecretBytes<16> key;
  SecretBytes<12> iv;
};

/// What needs no table: the token, and the key of hello, hello-ack and abort.
struct OpeningKeys {
  std::uint64_t token = 0;
  PacketSecret hello;
};
[[nodiscard]] OpeningKeys opening_keys(const Secret32& root, const LinkContext& link);

/// The chain of the generations of a link's data keys. It lives as long as the group: made by new,
/// it lies in secret memory.
class KeyChain : public InSecretMemory {
 public:
  /// @param table_hash  sha256() of what the table's digest is taken of.
  KeyChain(const Secret32& root, const LinkContext& link, const Sha256& table_hash);

  /// The secret of generation(), and goes on to the next: what went before is cleared.
  [[nodiscard]] PacketSecret next();
  /// Which one next() gives.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

 private:
  Secret32 chain_;
  std::uint64_t generation_ = 0;
};

}  // namespace gradwire::security
