// SPDX-License-Identifier: BSD-3-Clause
#include "security/entry_keys.h"

#include <algorithm>
#include <array>

#include "base/require.h"

namespace gradwire::security {
namespace {

// Offsets in an entry.
constexpr std::size_t kChecksum = 36;  // 4 bytes
constexpr std::size_t kSchedule = 280;
constexpr std::size_t kWanted = 282;
constexpr std::size_t kKeyCount = 283;
constexpr std::size_t kUser = 284;
constexpr std::size_t kPublic = 288;
constexpr std::array<std::size_t, kKeysMax> kIds = {320, 344};
constexpr std::array<std::size_t, kKeysMax> kMacs = {328, 352};
constexpr std::size_t kJob = 368;
constexpr std::size_t kPayload = 376;
constexpr std::size_t kEnd = 380;
constexpr std::uint32_t kPayloadStep = 64;

void zero(std::span<std::byte> bytes) { std::fill(bytes.begin(), bytes.end(), std::byte{0}); }
bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}
template <std::size_t N>
void put(EntryOut entry, std::size_t at, const std::array<std::byte, N>& bytes) {
  std::copy(bytes.begin(), bytes.end(), entry.begin() + static_cast<std::ptrdiff_t>(at));
}
template <std::size_t N>
std::array<std::byte, N> get(EntryIn entry, std::size_t at) {
  std::array<std::byte, N> bytes;
  std::copy_n(entry.begin() + static_cast<std::ptrdiff_t>(at), N, bytes.begin());
  return bytes;
}
std::uint8_t byte_at(EntryIn entry, std::size_t at) {
  return std::to_integer<std::uint8_t>(entry[at]);
}

void put_number(EntryOut entry, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) entry[at + i] = static_cast<std::byte>(value >> 8 * i);
}
std::uint32_t number_at(EntryIn entry, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{byte_at(entry, at + i)} << 8 * i;
  return value;
}

EntryMac mac_of(EntryIn entry, const FileKeys& key) {
  std::array<std::byte, kEntryBytes> bytes;
  std::copy(entry.begin(), entry.end(), bytes.begin());
  const std::span all(bytes);
  zero(all.subspan(kChecksum, 4));
  for (const std::size_t at : kMacs) zero(all.subspan(at, sizeof(EntryMac)));
  const Secret32 whole = hmac(key.entry.span(), bytes);
  EntryMac mac;
  std::copy_n(whole.span().begin(), mac.size(), mac.begin());
  return mac;
}

}  // namespace

void write_keys(EntryOut entry, const EntryKeys& fields, std::span<const FileKeys> keys) {
  require(!keys.empty() && keys.size() <= kKeysMax, "a daemon with keys has one or two");
  zero(entry.subspan(kSchedule));
  entry[kSchedule] = std::byte{kKeySchedule};
  entry[kWanted] = static_cast<std::byte>(fields.wanted);
  entry[kKeyCount] = static_cast<std::byte>(keys.size());
  put_number(entry, kUser, fields.user);
  put_number(entry, kPayload, fields.payload_bytes);
  put(entry, kPublic, fields.public_key);
  put(entry, kJob, fields.job);
  for (std::size_t k = 0; k < keys.size(); ++k) put(entry, kIds[k], keys[k].id);
  std::array<EntryMac, kKeysMax> macs;
  for (std::size_t k = 0; k < keys.size(); ++k) macs[k] = mac_of(entry, keys[k]);
  for (std::size_t k = 0; k < keys.size(); ++k) put(entry, kMacs[k], macs[k]);
}

std::optional<EntryKeys> read_keys(EntryIn entry) {
  if (byte_at(entry, kSchedule) == 0 && byte_at(entry, kSchedule + 1) == 0) {
    if (!is_zero(entry.subspan(kSchedule))) return std::nullopt;
    return EntryKeys{};
  }
  EntryKeys keys;
  keys.key_count = byte_at(entry, kKeyCount);
  keys.wanted = static_cast<Mode>(byte_at(entry, kWanted));
  if (byte_at(entry, kSchedule) != kKeySchedule || byte_at(entry, kSchedule + 1) != 0 ||
      keys.key_count < 1 || keys.key_count > kKeysMax || keys.wanted > Mode::kEncrypt ||
      !is_zero(entry.subspan(kEnd))) {
    return std::nullopt;
  }
  keys.user = number_at(entry, kUser);
  keys.payload_bytes = number_at(entry, kPayload);
  if (keys.payload_bytes == 0 || keys.payload_bytes % kPayloadStep != 0) return std::nullopt;
  keys.public_key = get<32>(entry, kPublic);
  for (std::size_t k = 0; k < kKeysMax; ++k) {
    keys.ids[k] = get<sizeof(KeyId)>(entry, kIds[k]);
    keys.macs[k] = get<sizeof(EntryMac)>(entry, kMacs[k]);
    if (k >= keys.key_count && !(is_zero(keys.ids[k]) && is_zero(keys.macs[k]))) {
      return std::nullopt;
    }
  }
  if (keys.key_count == 2 && keys.ids[0] == keys.ids[1]) return std::nullopt;
  keys.job = get<sizeof(KeyId)>(entry, kJob);
  return keys;
}

bool mac_fits(EntryIn entry, const FileKeys& key) {
  const auto keys = read_keys(entry);
  if (!keys) return false;
  for (std::size_t k = 0; k < keys->key_count; ++k) {
    if (keys->ids[k] == key.id) return equal_in_constant_time(keys->macs[k], mac_of(entry, key));
  }
  return false;
}

std::optional<KeyId> common_key(const EntryKeys& first, std::span<const EntryKeys> entries) {
  for (std::size_t k = 0; k < first.key_count; ++k) {
    const KeyId& id = first.ids[k];
    const bool everywhere = std::all_of(entries.begin(), entries.end(), [&](const EntryKeys& e) {
      return std::find(e.ids.begin(), e.ids.begin() + e.key_count, id) !=
             e.ids.begin() + e.key_count;
    });
    if (everywhere) return id;
  }
  return std::nullopt;
}

bool all_of_user(std::span<const EntryKeys> entries, std::uint32_t user) noexcept {
  return std::all_of(entries.begin(), entries.end(),
                     [user](const EntryKeys& entry) { return entry.user == user; });
}

std::uint32_t sealed_payload_of(std::span<const EntryKeys> entries) noexcept {
  require(!entries.empty(), "a group has entries");
  return std::min_element(entries.begin(), entries.end(),
                          [](const EntryKeys& a, const EntryKeys& b) {
                            return a.payload_bytes < b.payload_bytes;
                          })
      ->payload_bytes;
}

Mode mode_of(std::span<const EntryKeys> entries) noexcept {
  Mode highest = Mode::kOff;
  for (const EntryKeys& entry : entries) highest = std::max(highest, entry.wanted);
  return highest;
}

}  // namespace gradwire::security
