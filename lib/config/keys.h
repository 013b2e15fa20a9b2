// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The table of configuration keys: name, kind, unit, bounds and help of each, and where its value
/// lies in a DaemonConfig. Loading, printing, the flags and --help all read this one table. Any
/// thread; describe_keys() and find functions aside, nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "config/daemon_config.h"

namespace gradwire::config {

inline constexpr std::size_t kMaxPorts = 8;
inline constexpr std::size_t kMaxRoutes = 64;
inline constexpr std::size_t kMaxNeighbors = 64;

enum class Kind : std::uint8_t {
  kText,
  kChoice,  ///< one of the words in `choices`, separated by '|'
  kBool,
  kInteger,     ///< in [min, max]; or "auto" if `may_be_auto`, stored as kAuto
  kPowerOfTwo,  ///< an integer, and a power of two
  kReal,        ///< in [min, max]
  kMode,        ///< file mode, as text of octal digits
  kIpPrefix,    ///< "10.0.0.1/24", "fd00::1/64"
  kIp,          ///< "10.0.0.1"; or "" if it is not required
  kMac,         ///< "02:00:00:00:00:01"
};

/// `address` and `prefix_bits` of a kIpPrefix.
struct IpPrefixField {
  std::string* address;
  std::uint64_t* prefix_bits;
};
using Field = std::variant<std::string*, bool*, std::uint32_t*, std::uint64_t*, std::int64_t*,
                           double*, IpPrefixField>;

struct Key {
  const char* section;
  const char* name;
  Kind kind;
  const char* unit;  ///< "" if it has none
  double min;        ///< numbers; of kText the least and most characters
  double max;
  bool may_be_auto;
  bool required;
  const char* choices;
  const char* help;
  /// The value of element `index` of an array section, which must exist; others ignore `index`.
  Field (*field)(DaemonConfig& config, std::size_t index);
};

[[nodiscard]] std::span<const Key> keys() noexcept;
/// @return nullptr if there is no such key.
[[nodiscard]] const Key* find_key(std::string_view section, std::string_view name) noexcept;
[[nodiscard]] bool is_section(std::string_view section) noexcept;
/// Sections that are written [[section]]: "port", "route" and "neighbor".
[[nodiscard]] bool is_array_section(std::string_view section) noexcept;
[[nodiscard]] std::size_t max_elements(std::string_view array_section) noexcept;
/// How many elements `section` has in `config`; 1 if it is no array.
[[nodiscard]] std::size_t elements_in(const DaemonConfig& config,
                                      std::string_view section) noexcept;
/// Makes the array section at least so long; changes no other.
void resize_at_least(DaemonConfig& config, std::string_view section, std::size_t elements);

/// "an integer from 1 to 16, or \"auto\"": what a value of `key` must be, for messages.
[[nodiscard]] std::string describe_bounds(const Key& key);
/// The default as TOML writes it; "required" or "none" if there is none.
[[nodiscard]] std::string describe_default(const Key& key);
/// The value at `field` as TOML writes it.
[[nodiscard]] std::string to_toml_value(const Key& key, const Field& field);
/// All keys as flags, with unit, bounds and default: the body of --help.
[[nodiscard]] std::string describe_keys();

}  // namespace gradwire::config
