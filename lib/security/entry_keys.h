// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the entry by which a daemon describes itself says of keys: doc/security.md, In the entry.
/// It works on the entry's bytes, which lib/ipc has as RankInfo. Any thread; OpenSSL allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "security/key_schedule.h"

namespace gradwire::security {

inline constexpr std::size_t kEntryBytes = 512;
inline constexpr std::size_t kKeysMax = 2;
inline constexpr std::uint16_t kKeySchedule = 1;
using EntryMac = std::array<std::byte, 16>;
using EntryIn = std::span<const std::byte, kEntryBytes>;
using EntryOut = std::span<std::byte, kEntryBytes>;

struct EntryKeys {
  Mode wanted = Mode::kOff;
  std::uint32_t user = 0;           ///< for whom the entry was made: a user id
  std::uint32_t payload_bytes = 0;  ///< the largest of a sealed packet; a multiple of 64
  std::uint8_t key_count = 0;       ///< 0: the daemon has no key, and nothing else is said
  PublicKey public_key{};
  std::array<KeyId, kKeysMax> ids{};
  std::array<EntryMac, kKeysMax> macs{};
  KeyId job{};  ///< zeros: the job has none
};

/// Writes the fields, and a MAC under each of `keys`, which has 1 or 2. The entry's checksum is the
/// caller's, and comes after. `fields` gives all but the ids and MACs.
void write_keys(EntryOut entry, const EntryKeys& fields, std::span<const FileKeys> keys);

/// @return nothing if the fields are not as the page has them; a key_count of 0 if there is no key.
[[nodiscard]] std::optional<EntryKeys> read_keys(EntryIn entry);

/// Whether the entry has a MAC of this key, and it fits.
[[nodiscard]] bool mac_fits(EntryIn entry, const FileKeys& key);

/// @return the first id of `first` that all of `entries` have, if there is one.
[[nodiscard]] std::optional<KeyId> common_key(const EntryKeys& first,
                                              std::span<const EntryKeys> entries);

/// Whether all were made for that user.
[[nodiscard]] bool all_of_user(std::span<const EntryKeys> entries, std::uint32_t user) noexcept;

/// What a sealed packet carries in a group of these, one at least.
[[nodiscard]] std::uint32_t sealed_payload_of(std::span<const EntryKeys> entries) noexcept;

/// The highest that any entry wants.
[[nodiscard]] Mode mode_of(std::span<const EntryKeys> entries) noexcept;

}  // namespace gradwire::security
