// SPDX-License-Identifier: BSD-3-Clause
#include "config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <span>

#include "wire/frame.h"

namespace gradwire::config {
namespace {

/// A whole string as a number, or nothing.
template <class T>
std::optional<T> number(std::string_view text, int base = 10) {
  T value{};
  const char* const end = text.data() + text.size();
  std::from_chars_result result{};
  if constexpr (std::is_floating_point_v<T>) {
    result = std::from_chars(text.data(), end, value);
  } else {
    result = std::from_chars(text.data(), end, value, base);
  }
  if (result.ec != std::errc{} || result.ptr != end || text.empty()) return std::nullopt;
  return value;
}

/// Whether a host can have it.
bool is_host_address(const wire::IpAddress& ip) {
  // 0.0.0.0/8, and from 224.0.0.0 on multicast, reserved and broadcast.
  if (ip.family == 4) return ip.bytes[0] != 0 && ip.bytes[0] < 0xe0;
  // Multicast; ::, ::1, and IPv4 addresses written as IPv6.
  const auto front = std::span(ip.bytes).first<10>();
  const bool zeros = std::ranges::all_of(front, [](std::uint8_t byte) { return byte == 0; });
  return ip.bytes[0] != 0xff && !zeros;
}

/// @return nothing if `text` is no address that a host can have.
std::optional<wire::IpAddress> host_ip(std::string_view text) {
  const auto ip = wire::parse_ip(text);
  return ip && is_host_address(*ip) ? ip : std::nullopt;
}

std::optional<std::string> assign_ip_prefix(const Key& key, const IpPrefixField& field,
                                            std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto ip = host_ip(text.substr(0, slash));
  if (!ip) return "must be " + describe_bounds(key);
  if (slash == std::string_view::npos) {
    return fmt::format("has no prefix: must be {}", describe_bounds(key));
  }
  const auto bits = number<std::uint64_t>(text.substr(slash + 1));
  const std::uint64_t most = ip->family == 4 ? 32 : 128;
  if (!bits || *bits < 1 || *bits > most) {
    return fmt::format("must have a prefix from /1 to /{}", most);
  }
  *field.address = wire::to_string(*ip);
  *field.prefix_bits = *bits;
  return std::nullopt;
}

std::optional<std::string> assign_mac(const Key& key, std::string& field, std::string_view text) {
  const std::string wrong = "must be " + describe_bounds(key);
  if (text.size() != 17) return wrong;
  std::uint64_t all = 0;
  std::string canonical;
  for (std::size_t i = 0; i < 6; ++i) {
    const auto byte = number<std::uint8_t>(text.substr(3 * i, 2), 16);
    if (!byte || (i < 5 && text[3 * i + 2] != ':')) return wrong;
    if (i == 0 && (*byte & 1) != 0) return wrong;  // group addresses
    all = all << 8 | *byte;
    canonical += fmt::format("{}{:02x}", i == 0 ? "" : ":", *byte);
  }
  if (all == 0) return wrong;
  field = canonical;
  return std::nullopt;
}

std::optional<std::string> assign_text(const Key& key, const Field& field,
                                       const std::string& text) {
  const std::string wrong = "must be " + describe_bounds(key);
  switch (key.kind) {
    case Kind::kText: {
      const auto length = static_cast<double>(text.size());
      if (length < key.min || length > key.max) return wrong;
      if (text.find('\0') != std::string::npos) return "must not contain a NUL";
      *std::get<std::string*>(field) = text;
      return std::nullopt;
    }
    case Kind::kChoice: {
      if (text.empty() || text.find('|') != std::string::npos) return wrong;
      if (fmt::format("|{}|", key.choices).find(fmt::format("|{}|", text)) == std::string::npos) {
        return wrong;
      }
      *std::get<std::string*>(field) = text;
      return std::nullopt;
    }
    case Kind::kMode: {
      const auto mode = number<std::uint64_t>(text, 8);
      if (!mode || text.size() < 3 || text.size() > 4 || *mode > 0777) return wrong;
      *std::get<std::uint64_t*>(field) = *mode;
      return std::nullopt;
    }
    case Kind::kIpPrefix:
      return assign_ip_prefix(key, std::get<IpPrefixField>(field), text);
    case Kind::kIp: {
      if (text.empty() && !key.required) {
        std::get<std::string*>(field)->clear();
        return std::nullopt;
      }
      const auto ip = host_ip(text);
      if (!ip) return wrong;
      *std::get<std::string*>(field) = wire::to_string(*ip);
      return std::nullopt;
    }
    case Kind::kMac:
      return assign_mac(key, *std::get<std::string*>(field), text);
    case Kind::kInteger:
    case Kind::kPowerOfTwo:
      if (!key.may_be_auto || text != "auto") return wrong;
      *std::get<std::uint64_t*>(field) = kAuto;
      return std::nullopt;
    case Kind::kBool:
    case Kind::kReal:
      return wrong;
  }
  return wrong;
}

}  // namespace

Value value_of_flag(const Key& key, std::string_view text) {
  switch (key.kind) {
    case Kind::kInteger:
    case Kind::kPowerOfTwo:
      if (const auto value = number<std::int64_t>(text)) return *value;
      break;
    case Kind::kReal:
      if (const auto value = number<double>(text)) return *value;
      break;
    case Kind::kBool:
      if (text == "true") return true;
      if (text == "false") return false;
      break;
    default:
      break;
  }
  return std::string(text);
}

std::optional<std::string> assign(const Key& key, const Field& field, const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return assign_text(key, field, *text);
  const std::string wrong = "must be " + describe_bounds(key);
  if (const auto* boolean = std::get_if<bool>(&value)) {
    if (key.kind != Kind::kBool) return wrong;
    *std::get<bool*>(field) = *boolean;
    return std::nullopt;
  }
  const auto* const whole = std::get_if<std::int64_t>(&value);
  const double real = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
  // Written so that NaN fails too.
  const bool in_bounds = real >= key.min && real <= key.max;
  if (key.kind == Kind::kReal) {
    if (!in_bounds) return wrong;
    *std::get<double*>(field) = real;
    return std::nullopt;
  }
  if ((key.kind != Kind::kInteger && key.kind != Kind::kPowerOfTwo) || whole == nullptr ||
      !in_bounds) {
    return wrong;
  }
  if (auto* const* signed_field = std::get_if<std::int64_t*>(&field)) {
    **signed_field = *whole;
    return std::nullopt;
  }
  const auto unsigned_value = static_cast<std::uint64_t>(*whole);
  if (key.kind == Kind::kPowerOfTwo && !std::has_single_bit(unsigned_value)) return wrong;
  if (auto* const* small = std::get_if<std::uint32_t*>(&field)) {
    **small = static_cast<std::uint32_t>(unsigned_value);  // the bounds of its key fit
    return std::nullopt;
  }
  *std::get<std::uint64_t*>(field) = unsigned_value;
  return std::nullopt;
}

}  // namespace gradwire::config
