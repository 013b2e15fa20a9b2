// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// AES-128-GCM as NIST SP 800-38D says it, block by block and bit by bit. Slow; for tests, which
/// hold it to NIST's answers and the ciphers to it. Only AES itself is OpenSSL's.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/require.h"
#include "hex.h"

namespace gradwire::security {

class ReferenceGcm {
 public:
  using Block = std::array<std::byte, 16>;

  explicit ReferenceGcm(std::span<const std::byte, 16> key)
      : context_(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free) {
    require(EVP_EncryptInit_ex(context_.get(), EVP_aes_128_ecb(), nullptr,
                               reinterpret_cast<const unsigned char*>(key.data()), nullptr) == 1,
            "OpenSSL has AES");
    hash_key_ = aes(Block{});
  }

  struct Sealed {
    Bytes ciphertext;
    Block tag;
  };
  [[nodiscard]] Sealed seal(std::span<const std::byte> nonce, std::span<const std::byte> data,
                            std::span<const std::byte> plaintext) const {
    Block counter{};
    std::copy(nonce.begin(), nonce.end(), counter.begin());
    const auto counted = [&](std::uint32_t n) {
      for (int i = 0; i < 4; ++i) counter[12 + i] = static_cast<std::byte>(n >> (8 * (3 - i)));
      return aes(counter);
    };
    Sealed out;
    for (std::size_t at = 0; at < plaintext.size(); ++at) {
      const Block mask = counted(static_cast<std::uint32_t>(at / 16 + 2));
      out.ciphertext.push_back(plaintext[at] ^ mask[at % 16]);
    }
    Block hash{};
    absorb(hash, data);
    absorb(hash, out.ciphertext);
    Block lengths{};
    for (int i = 0; i < 8; ++i) {
      lengths[i] = static_cast<std::byte>(data.size() * 8 >> (8 * (7 - i)));
      lengths[8 + i] = static_cast<std::byte>(plaintext.size() * 8 >> (8 * (7 - i)));
    }
    absorb(hash, lengths);
    out.tag = counted(1);
    for (std::size_t i = 0; i < 16; ++i) out.tag[i] ^= hash[i];
    return out;
  }

 private:
  [[nodiscard]] Block aes(const Block& in) const {
    Block out;
    int length = 0;
    require(EVP_EncryptUpdate(context_.get(), reinterpret_cast<unsigned char*>(out.data()), &length,
                              reinterpret_cast<const unsigned char*>(in.data()), 16) == 1,
            "OpenSSL encrypts a block");
    return out;
  }
  /// GHASH of blocks, the last one filled up with zeros.
  void absorb(Block& hash, std::span<const std::byte> bytes) const {
    for (std::size_t at = 0; at < bytes.size(); at += 16) {
      for (std::size_t i = 0; i < 16 && at + i < bytes.size(); ++i) hash[i] ^= bytes[at + i];
      hash = multiply(hash, hash_key_);
    }
  }
  /// Algorithm 1 of the standard: bit 0 is the highest of the first byte.
  static Block multiply(const Block& x, Block v) {
    Block z{};
    for (int bit = 0; bit < 128; ++bit) {
      if ((x[bit / 8] >> (7 - bit % 8) & std::byte{1}) != std::byte{0}) {
        for (int i = 0; i < 16; ++i) z[i] ^= v[i];
      }
      const bool low = (v[15] & std::byte{1}) != std::byte{0};
      for (int i = 15; i > 0; --i) v[i] = v[i] >> 1 | v[i - 1] << 7;
      v[0] >>= 1;
      if (low) v[0] ^= std::byte{0xe1};
    }
    return z;
  }

  std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context_;
  Block hash_key_;
};

}  // namespace gradwire::security
