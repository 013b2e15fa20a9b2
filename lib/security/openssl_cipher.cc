// SPDX-License-Identifier: BSD-3-Clause
// AES-GCM by OpenSSL: where ipsec-mb is not to be had, and to compare it with. Its expanded keys
// lie in OpenSSL's own heap, which it clears when they are freed, and which core dumps have.
#include <openssl/evp.h>

#include "base/require.h"
#include "security/cipher_states.h"
#include "security/raw.h"

namespace gradwire::security {
namespace {

class OpenSslState final : public PacketKey::State {
 public:
  explicit OpenSslState(const SecretBytes<16>& key) : context_(EVP_CIPHER_CTX_new()) {
    require(context_ != nullptr && EVP_CipherInit_ex(context_, EVP_aes_128_gcm(), nullptr,
                                                     raw(key.span().data()), nullptr, 1) == 1,
            "OpenSSL has AES-128-GCM");
  }
  ~OpenSslState() override { EVP_CIPHER_CTX_free(context_); }

  void seal(Mode mode, const Nonce& nonce, Header header, Segments payload, std::byte* out,
            Tag tag) noexcept override {
    begin(nonce, header, true);
    std::byte* crc = header.data() + kPayloadCrcAt;
    for (const auto piece : payload) {
      if (mode == Mode::kEncrypt) {
        crypt(out, piece);
      } else {
        copy_piece(out, piece);
        add({out, piece.size()});
      }
      out += piece.size();
    }
    if (mode == Mode::kEncrypt) {
      crypt(crc, {crc, 4});
    } else {
      add({crc, 4});
    }
    require(finish(), "OpenSSL makes a tag");
    require(EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1,
            "OpenSSL gives the tag");
  }

  bool open(Mode mode, const Nonce& nonce, Header header, std::span<const std::byte> sealed,
            std::byte* out, TagIn tag) noexcept override {
    begin(nonce, header, false);
    std::byte* crc = header.data() + kPayloadCrcAt;
    if (mode == Mode::kEncrypt) {
      crypt(out, sealed);
      crypt(crc, {crc, 4});
    } else {
      add(sealed);
      add({crc, 4});
    }
    std::array<std::byte, kTagBytes> said;
    std::copy(tag.begin(), tag.end(), said.begin());
    require(EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kTagBytes, said.data()) == 1,
            "OpenSSL takes a tag");
    if (!finish()) [[unlikely]] {
      if (mode == Mode::kEncrypt) {
        clear({out, sealed.size()});
        clear({crc, 4});
      }
      return false;
    }
    if (mode == Mode::kAuthenticate) copy_piece(out, sealed);
    return true;
  }

 private:
  void begin(const Nonce& nonce, Header header, bool seals) noexcept {
    require(EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, raw(nonce.data()),
                              seals ? 1 : 0) == 1,
            "OpenSSL takes a nonce");
    add(header_data(header));
  }
  /// Additional data.
  void add(std::span<const std::byte> data) noexcept {
    if (data.empty()) return;
    int length = 0;
    require(EVP_CipherUpdate(context_, nullptr, &length, raw(data.data()),
                             static_cast<int>(data.size())) == 1,
            "OpenSSL takes additional data");
  }
  void crypt(std::byte* out, std::span<const std::byte> in) noexcept {
    if (in.empty()) return;
    int length = 0;
    require(EVP_CipherUpdate(context_, raw(out), &length, raw(in.data()),
                             static_cast<int>(in.size())) == 1,
            "OpenSSL encrypts and decrypts");
  }
  bool finish() noexcept {
    std::array<unsigned char, 16> none;
    int length = 0;
    return EVP_CipherFinal_ex(context_, none.data(), &length) == 1;
  }

  EVP_CIPHER_CTX* context_;
};

}  // namespace

std::unique_ptr<PacketKey::State> make_openssl_state(const SecretBytes<16>& key) {
  return std::make_unique<OpenSslState>(key);
}

}  // namespace gradwire::security
