// SPDX-License-Identifier: BSD-3-Clause
#include "config/value.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <bit>
#include <charconv>

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

/// @return canonical text, or nothing if `text` is no IPv4 address that a host can have.
std::optional<std::string> canonical_ip(std::string_view text) {
  in_addr address{};
  if (inet_pton(AF_INET, std::string(text).c_str(), &address) != 1) return std::nullopt;
  const std::uint32_t host_order = ntohl(address.s_addr);
  // 0.0.0.0/8, and from 224.0.0.0 on multicast, reserved and broadcast.
  if ((host_order >> 24) == 0 || (host_order >> 28) >= 0xe) return std::nullopt;
  char out[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address, out, sizeof out);
  return out;
}

bool is_ipv6(std::string_view text) { return text.find(':') != std::string_view::npos; }

std::string ip_mistake(const Key& key, std::string_view text) {
  return is_ipv6(text) ? "IPv6 is not supported yet: must be an IPv4 address"
                       : "must be " + describe_bounds(key);
}

std::optional<std::string> assign_ip_prefix(const Key& key, const IpPrefixField& field,
                                            std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto ip = canonical_ip(text.substr(0, slash));
  if (!ip) return ip_mistake(key, text);
  if (slash == std::string_view::npos) {
    return fmt::format("has no prefix: must be {}", describe_bounds(key));
  }
  const auto bits = number<std::uint64_t>(text.substr(slash + 1));
  if (!bits || *bits < 1 || *bits > 32) return "must have a prefix from /1 to /32";
  *field.address = *ip;
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
      const auto ip = canonical_ip(text);
      if (!ip) return ip_mistake(key, text);
      *std::get<std::string*>(field) = *ip;
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
  *std::get<std::uint64_t*>(field) = unsigned_value;
  return std::nullopt;
}

}  // namespace gradwire::config
