// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Keys of what goes between this rank and another one on a lane, both ways: doc/security.md, Keys
/// of a link. The control thread makes it and frees it; one lane uses it in between, and tells when
/// the next generation's key is wanted, which the control thread makes too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "security/generations.h"
#include "security/packet_key.h"
#include "security/replay_window.h"

namespace gradwire::security {

/// Of one other rank on one lane.
struct LinkKeys {
  PacketKey hello_to;  ///< hello, hello-ack and abort
  PacketKey hello_from;
  std::array<PacketKey, 2> to;  ///< all others: generations 0 and 1
  std::array<PacketKey, 2> from;
};

/// Which key a packet has: its type says so.
enum class KeyUse : std::uint8_t { kHello, kData };
/// Which of a link's two rows of data keys.
enum class Direction : std::uint8_t { kTo, kFrom };

/// Why a packet was not opened.
enum class OpenResult : std::uint8_t {
  kYes,
  kGeneration,  ///< of none that there is a key of
  kOld,         ///< its number is too old to tell
  kSeen,        ///< its number was taken before
  kForged,      ///< the tag does not fit
};

class LinkSeal : public InSecretMemory {
 public:
  LinkSeal(Mode mode, LinkKeys keys, unsigned generation_bits = kGenerationBits) noexcept
      : mode_(mode),
        hello_to_(std::move(keys.hello_to)),
        hello_from_(std::move(keys.hello_from)),
        to_(std::move(keys.to[0]), std::move(keys.to[1]), generation_bits),
        from_(std::move(keys.from[0]), std::move(keys.from[1]), generation_bits) {}

  [[nodiscard]] Mode mode() const noexcept { return mode_; }

  /// Whether a packet of that number, the next one, may be made. If not, the next generation's key
  /// is awaited.
  [[nodiscard]] bool can_seal(std::uint64_t number) const noexcept { return to_.has(number); }
  /// As PacketKey::seal(). @param number  can_seal(), and is sealed for the first time.
  void seal(KeyUse use, std::uint64_t number, Header header, Segments payload, std::byte* out,
            Tag tag) noexcept {
    // A hello's number is of a generation too: one in which nothing else went must not end the
    // link.
    PacketKey* const key = to_.of(number);
    if (use == KeyUse::kHello) return hello_to_.seal(number, header, payload, out, tag);
    require(key != nullptr, "a packet is sealed if there is a key of its generation");
    key->seal(number, header, payload, out, tag);
  }

  /// Opens a packet, and takes its number if the tag fits: each is taken once. As
  /// PacketKey::open().
  [[nodiscard]] OpenResult open(KeyUse use, std::uint64_t number, Header header,
                                std::span<const std::byte> sealed, std::byte* out,
                                TagIn tag) noexcept {
    PacketKey* const key = use == KeyUse::kHello ? &hello_from_ : from_.of(number);
    if (key == nullptr) return OpenResult::kGeneration;
    switch (window_.look(number)) {
      case ReplayWindow::Verdict::kOld:
        return OpenResult::kOld;
      case ReplayWindow::Verdict::kSeen:
        return OpenResult::kSeen;
      case ReplayWindow::Verdict::kNew:
        break;
    }
    if (!key->open(number, header, sealed, out, tag)) return OpenResult::kForged;
    window_.take(number);
    if (from_.of(number) != nullptr) from_.authenticated(number);
    return OpenResult::kYes;
  }

  /// Whether the key of wanted() is to be supplied. It is looked at after each packet, so it costs
  /// two comparisons.
  [[nodiscard]] bool wants(Direction direction) const noexcept {
    return direction == Direction::kTo ? to_.wants() : from_.wants();
  }
  [[nodiscard]] std::uint64_t wanted(Direction direction) const noexcept {
    return direction == Direction::kTo ? to_.wanted() : from_.wanted();
  }
  /// @param next  of generation wanted(); only if wants().
  /// @return the one in whose place it comes: the control thread frees it.
  [[nodiscard]] PacketKey supply(Direction direction, PacketKey next) noexcept {
    return direction == Direction::kTo ? to_.supply(std::move(next))
                                       : from_.supply(std::move(next));
  }

 private:
  Mode mode_;
  PacketKey hello_to_;
  PacketKey hello_from_;
  SendGenerations to_;
  ReceiveGenerations from_;
  ReplayWindow window_;
};

}  // namespace gradwire::security
