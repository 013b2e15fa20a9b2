// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Bytes as the C interfaces of OpenSSL and ipsec-mb take them. Private to lib/security.
#pragma once

#include <cstddef>

namespace gradwire::security {

inline unsigned char* raw(std::byte* bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes);
}
inline const unsigned char* raw(const std::byte* bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace gradwire::security
