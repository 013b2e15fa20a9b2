// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One AES-128-GCM key by which packets are sealed and opened: doc/security.md, A sealed packet.
/// Made by the control thread, used by one lane at a time. Making one allocates; sealing and
/// opening allocate nothing, lock nothing and do not fail but by the tag.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "security/key_schedule.h"
#include "security/secret.h"

namespace gradwire::security {

inline constexpr std::size_t kTagBytes = 16;
inline constexpr std::size_t kSealedHeaderBytes = 64;
/// Of the header: the payload's CRC, which goes with the payload.
inline constexpr std::size_t kPayloadCrcAt = 52;
using Tag = std::span<std::byte, kTagBytes>;
using TagIn = std::span<const std::byte, kTagBytes>;
using Header = std::span<std::byte, kSealedHeaderBytes>;
using Segments = std::span<const std::span<const std::byte>>;

/// Whose code does the work.
enum class Cipher : std::uint8_t { kIpsecMb, kOpenSsl };
/// "ipsec-mb 1.3.0 (AVX2)", "OpenSSL 3.0.19".
[[nodiscard]] std::string text_of(Cipher cipher);
/// Whether this build has it, and this CPU what it needs.
[[nodiscard]] bool available(Cipher cipher) noexcept;
/// ipsec-mb if it is available: its code for short packets is the faster.
[[nodiscard]] Cipher best_cipher() noexcept;
/// What a PacketKey by the best cipher takes: ipsec-mb's tables for it differ between releases.
[[nodiscard]] std::size_t packet_key_bytes() noexcept;
/// Whether the CPU has instructions for AES-GCM; without them all is a tenth as fast or less.
[[nodiscard]] bool cpu_has_aes() noexcept;

class PacketKey {
 public:
  /// What a cipher does; the nonce is made already.
  class State : public InSecretMemory {
   public:
    using Nonce = std::array<std::byte, 12>;
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    virtual ~State() = default;
    virtual void seal(Mode mode, const Nonce& nonce, Header header, Segments payload,
                      std::byte* out, Tag tag) noexcept = 0;
    virtual bool open(Mode mode, const Nonce& nonce, Header header,
                      std::span<const std::byte> sealed, std::byte* out, TagIn tag) noexcept = 0;
  };

  /// No key: not to be used.
  PacketKey() = default;
  /// @param mode    kAuthenticate or kEncrypt.
  /// @param cipher  available.
  PacketKey(Mode mode, const PacketSecret& secret, Cipher cipher = best_cipher());
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

  /// Seals a packet while its payload is copied together.
  /// @param number   of the packet: never used before with this key.
  /// @param header   complete but for its own CRC. With kEncrypt the payload's CRC (bytes 52 to 55)
  ///                 is replaced by its ciphertext.
  /// @param payload  pieces that follow each other; what they hold is not changed.
  /// @param out      [sum of the pieces' bytes]; may be where the only piece lies, else overlaps
  ///                 none.
  /// @param tag      16 bytes, mostly behind `out`.
  void seal(std::uint64_t number, Header header, Segments payload, std::byte* out,
            Tag tag) noexcept {
    state_->seal(mode_, nonce(number), header, payload, out, tag);
  }
  /// The same within the packet.
  void seal_in_place(std::uint64_t number, Header header, std::span<std::byte> payload,
                     Tag tag) noexcept {
    const std::span<const std::byte> only = payload;
    seal(number, header, {&only, 1}, payload.data(), tag);
  }

  /// @param header  as received; with kEncrypt the payload's CRC in it is decrypted.
  /// @param sealed  the payload as received, without the tag.
  /// @param out     [sealed.size()]; may be sealed's own place, else does not overlap it. Never a
  ///                client's memory: it is written before it is known whether the tag fits.
  /// @return whether the tag fits. If not: with kEncrypt `out` and the payload's CRC in the header
  ///         are zeros, with kAuthenticate nothing was written.
  [[nodiscard]] bool open(std::uint64_t number, Header header, std::span<const std::byte> sealed,
                          std::byte* out, TagIn tag) noexcept {
    return state_->open(mode_, nonce(number), header, sealed, out, tag);
  }

 private:
  [[nodiscard]] State::Nonce nonce(std::uint64_t number) const noexcept {
    State::Nonce nonce;
    const auto iv = iv_->bytes.span();
    for (std::size_t i = 0; i < 4; ++i) nonce[i] = iv[i];
    for (std::size_t i = 4; i < 12; ++i) {
      nonce[i] = iv[i] ^ static_cast<std::byte>(number >> (8 * (11 - i)));
    }
    return nonce;
  }

  struct Iv : InSecretMemory {
    SecretBytes<12> bytes;
  };
  Mode mode_ = Mode::kOff;
  std::unique_ptr<Iv> iv_;
  std::unique_ptr<State> state_;
};

}  // namespace gradwire::security
