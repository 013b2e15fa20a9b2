// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What doc/security.md says of entries and tables, a second time and from that page alone: its
/// fields by their offsets, MACs by OpenSSL's HMAC, and whether a rank forms a group of a table. It
/// uses nothing of lib/security and lib/control but plain types.
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/input.h"
#include "ipc/control_messages.h"

namespace gradwire::fuzz {

using Bytes32 = std::array<std::byte, 32>;
using Bytes16 = std::array<std::byte, 16>;
using Bytes8 = std::array<std::byte, 8>;

inline Bytes32 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data) {
  Bytes32 out;
  unsigned bytes = 0;
  FUZZ_CHECK(::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                    reinterpret_cast<const unsigned char*>(data.data()), data.size(),
                    reinterpret_cast<unsigned char*>(out.data()), &bytes) != nullptr &&
             bytes == out.size());
  return out;
}

/// What of a key file stands in entries.
struct ReferenceFile {
  explicit ReferenceFile(const Bytes32& file) {
    const std::string_view salt = "gradwire key file v1";
    const Bytes32 extracted = hmac_sha256(std::as_bytes(std::span(salt)), file);
    const Bytes32 first = expand(extracted, "gw1 id");
    std::copy_n(first.begin(), id.size(), id.begin());
    entry = expand(extracted, "gw1 entry");
  }
  Bytes8 id;
  Bytes32 entry;

 private:
  /// The first block, which is all that is wanted.
  static Bytes32 expand(const Bytes32& secret, std::string_view label) {
    std::vector<std::byte> info;
    for (const char letter : label) info.push_back(static_cast<std::byte>(letter));
    info.push_back(std::byte{0});
    info.push_back(std::byte{1});
    return hmac_sha256(secret, info);
  }
};

/// An entry as the page has it.
class ReferenceEntry {
 public:
  explicit ReferenceEntry(const ipc::RankInfo& info) { std::memcpy(bytes_.data(), &info, 512); }

  bool has_keys() const { return number(280, 2) != 0; }
  std::uint8_t wanted() const { return static_cast<std::uint8_t>(number(282, 1)); }
  std::size_t key_count() const { return has_keys() ? number(283, 1) : 0; }
  std::uint32_t user() const { return static_cast<std::uint32_t>(number(284, 4)); }
  std::uint32_t payload() const { return static_cast<std::uint32_t>(number(376, 4)); }
  Bytes32 public_key() const { return part<32>(288); }
  Bytes8 job() const { return part<8>(368); }
  Bytes8 id(std::size_t k) const { return part<8>(k == 0 ? 320 : 344); }
  bool has(const Bytes8& wanted_id) const { return place_of(wanted_id) != SIZE_MAX; }

  bool well_formed() const {
    if (!has_keys()) return zeros(280, 512);
    if (number(280, 2) != 1 || wanted() > 2 || key_count() < 1 || key_count() > 2) return false;
    if (payload() == 0 || payload() % 64 != 0 || !zeros(380, 512)) return false;
    return key_count() == 2 ? id(0) != id(1) : zeros(344, 368);
  }
  /// Has a MAC of that file's key, and it is right.
  bool fits(const ReferenceFile& file) const {
    const std::size_t k = place_of(file.id);
    return k != SIZE_MAX && part<16>(k == 0 ? 328 : 352) == mac(file);
  }
  Bytes16 mac(const ReferenceFile& file) const {
    std::array<std::byte, 512> cleared = bytes_;
    for (const auto& [from, to] : {std::pair{36, 40}, {328, 344}, {352, 368}}) {
      std::fill(cleared.begin() + from, cleared.begin() + to, std::byte{0});
    }
    const Bytes32 whole = hmac_sha256(file.entry, cleared);
    Bytes16 first;
    std::copy_n(whole.begin(), first.size(), first.begin());
    return first;
  }

 private:
  template <std::size_t N>
  std::array<std::byte, N> part(std::size_t at) const {
    std::array<std::byte, N> out;
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), N, out.begin());
    return out;
  }
  std::uint64_t number(std::size_t at, std::size_t wide) const {
    std::uint64_t value = 0;
    for (std::size_t i = wide; i-- > 0;) {
      value = value << 8 | std::to_integer<std::uint8_t>(bytes_[at + i]);
    }
    return value;
  }
  bool zeros(std::size_t from, std::size_t to) const {
    return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(from),
                       bytes_.begin() + static_cast<std::ptrdiff_t>(to),
                       [](std::byte b) { return b == std::byte{0}; });
  }
  /// Of a MAC in the entry; as large as it gets if the entry has no such key.
  std::size_t place_of(const Bytes8& wanted_id) const {
    for (std::size_t k = 0; k < std::min<std::size_t>(key_count(), 2); ++k) {
      if (id(k) == wanted_id) return k;
    }
    return SIZE_MAX;
  }

  std::array<std::byte, 512> bytes_;
};

/// What a rank brings to a table.
struct ReferenceJoin {
  std::vector<const ReferenceFile*> files;  ///< the daemon's keys, the first one first
  std::set<Bytes32> own_keys;               ///< public keys that the daemon has for the user
  std::uint32_t user = 0;
  std::uint8_t wanted = 0;
  std::uint8_t minimum = 0;
  Bytes8 job{};
  bool can_seal = true;
};

struct ReferenceGroup {
  std::uint8_t mode = 0;
  Bytes8 key{};
  std::uint32_t payload = 0;
};

/// Rule 1 of the page.
inline bool own_entry_fits(const ReferenceEntry& own, const ReferenceJoin& join) {
  if (join.files.empty()) return true;
  bool known = false;
  for (const ReferenceFile* file : join.files) {
    if (!own.has(file->id)) continue;
    if (!own.fits(*file)) return false;
    known = true;
  }
  return own.well_formed() && known && own.user() == join.user &&
         join.own_keys.contains(own.public_key()) && own.wanted() == join.wanted &&
         own.job() == join.job;
}

/// The group that this rank forms; nothing: it has to refuse.
inline std::optional<ReferenceGroup> group_of(std::span<const ipc::RankInfo> table,
                                              std::size_t rank, const ReferenceJoin& join) {
  const std::vector<ReferenceEntry> entries(table.begin(), table.end());
  if (join.wanted < join.minimum || !own_entry_fits(entries[rank], join)) return {};
  ReferenceGroup group{.mode = join.wanted};
  for (const ReferenceEntry& entry : entries) {
    if (!entry.well_formed()) return {};
    if (entry.has_keys()) group.mode = std::max(group.mode, entry.wanted());
    // Rule 2.
    const auto common = std::ranges::find_if(
        join.files, [&](const ReferenceFile* file) { return entry.has(file->id); });
    if (common != join.files.end() && !entry.fits(**common)) return {};
  }
  const bool has_job = join.job != Bytes8{};
  if (group.mode == 0) return has_job ? std::nullopt : std::optional(group);
  const ReferenceFile* key = nullptr;
  for (std::size_t k = 0; k < entries[0].key_count() && key == nullptr; ++k) {
    const Bytes8 id = entries[0].id(k);
    if (!std::ranges::all_of(entries, [&](const ReferenceEntry& e) { return e.has(id); })) continue;
    const auto found = std::ranges::find(join.files, id, &ReferenceFile::id);
    if (found == join.files.end()) return {};
    key = *found;
  }
  if (key == nullptr || !join.can_seal) return {};
  std::set<Bytes32> public_keys;
  group.key = key->id;
  group.payload = UINT32_MAX;
  for (const ReferenceEntry& entry : entries) {
    if (!entry.fits(*key) || entry.job() != join.job) return {};
    if (!has_job && entry.user() != join.user) return {};
    if (!public_keys.insert(entry.public_key()).second) return {};
    group.payload = std::min(group.payload, entry.payload());
  }
  return group;
}

}  // namespace gradwire::fuzz
