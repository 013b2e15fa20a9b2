// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A link whose packets are sealed, as somebody knows it who has all of its keys and sees all of
/// its packets: which of them its receiver has to take (doc/security.md, A sealed packet). It makes
/// packets of any content with right tags too, as a rank that lies does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "fuzz/input.h"
#include "security/link_start.h"
#include "wire/sealed.h"

namespace gradwire::fuzz {

using PacketBytes = std::vector<std::byte>;

inline security::KeyUse use_of(wire::PacketType type) {
  const bool hello = type == wire::PacketType::kHello || type == wire::PacketType::kHelloAck ||
                     type == wire::PacketType::kAbort;
  return hello ? security::KeyUse::kHello : security::KeyUse::kData;
}

/// From one rank to another on a lane.
class SealedLink {
 public:
  /// @param root  of the two daemons.
  SealedLink(const security::Secret32& root, const security::LinkContext& context,
             unsigned generation_bits)
      : root_(root),
        context_(context),
        bits_(generation_bits),
        token_(security::opening_keys(root, context).token) {}

  std::uint64_t token() const { return token_; }

  /// The link's packet, as it goes out, is one that its receiver may take.
  /// @return whether its number was free, or the packet went out before: no number has two.
  bool sent(std::span<const std::byte> packet) {
    const PacketBytes same = without_crc(packet);
    const auto [before, is_new] = sealed_.try_emplace(wire::kind_of(packet.data()).packet_number);
    if (!is_new && std::ranges::find(before->second, same) != before->second.end()) return true;
    before->second.push_back(same);
    return is_new;
  }

  /// What its receiver has to do with a packet whose token and flags are right, and takes note of
  /// it if that is to take it.
  wire::Drop receive(std::span<const std::byte> packet) {
    if (packet.size() < wire::kHeaderBytes + wire::kSealTagBytes) return wire::Drop::kShort;
    const wire::Kind kind = wire::kind_of(packet.data());
    const std::uint64_t number = kind.packet_number;
    const std::uint64_t generation = number >> bits_;
    const bool has_key = generation <= supplied_ && generation + 1 >= newest_generation_;
    if (use_of(kind.type) == security::KeyUse::kData && !has_key) return wire::Drop::kGeneration;
    if (number <= newest_ && newest_ - number >= kWindow) return wire::Drop::kReplay;
    if (taken_.contains(number)) return wire::Drop::kDuplicate;
    const auto found = sealed_.find(number);
    const bool is_right =
        found != sealed_.end() &&
        std::ranges::find(found->second, without_crc(packet)) != found->second.end();
    if (!is_right) return wire::Drop::kTag;
    taken_.insert(number);
    newest_ = std::max(newest_, number);
    if (has_key) newest_generation_ = std::max(newest_generation_, generation);
    return wire::Drop::kNone;
  }
  /// Its receiver has got the key of one more generation.
  void supplied() { ++supplied_; }
  std::uint64_t newest() const { return newest_; }

  /// A packet that went out, opened. @return nothing if it is of a generation too late for that.
  PacketBytes opened(std::span<const std::byte> packet) {
    PacketBytes out(packet.begin(), packet.end());
    const wire::Kind kind = wire::kind_of(out.data());
    security::PacketKey* const key = key_of(use_of(kind.type), kind.packet_number);
    if (key == nullptr || out.size() < wire::kHeaderBytes + wire::kSealTagBytes) return {};
    const auto [header, payload, tag] = parts(out);
    if (!key->open(kind.packet_number, header, payload, payload.data(), tag)) return {};
    out.resize(out.size() - wire::kSealTagBytes);
    return out;
  }
  /// Seals any packet, which has room for its tag at the end already. It counts as sent.
  /// @return whether there is a key of its generation.
  bool seal(PacketBytes& packet) {
    const wire::Kind kind = wire::kind_of(packet.data());
    security::PacketKey* const key = key_of(use_of(kind.type), kind.packet_number);
    if (key == nullptr) return false;
    packet[wire::kFlagsAt] = static_cast<std::byte>(context_.mode == security::Mode::kEncrypt
                                                        ? wire::kEncryptedFlag
                                                        : wire::kAuthenticatedFlag);
    const auto [header, payload, tag] = parts(packet);
    key->seal_in_place(kind.packet_number, header, payload, tag);
    wire::renew_header_crc(packet.data());
    static_cast<void>(sent(packet));
    return true;
  }

 private:
  static constexpr std::uint64_t kWindow = 8192;
  static constexpr std::uint64_t kGenerationsMax = 64;
  struct Parts {
    security::Header header;
    std::span<std::byte> payload;
    security::Tag tag;
  };
  static Parts parts(PacketBytes& packet) {
    const std::span<std::byte> all = packet;
    return {all.first<wire::kHeaderBytes>(),
            all.subspan(wire::kHeaderBytes, all.size() - wire::kHeaderBytes - wire::kSealTagBytes),
            all.last<wire::kSealTagBytes>()};
  }
  /// Nothing but the header's own CRC may be changed unseen.
  static PacketBytes without_crc(std::span<const std::byte> packet) {
    PacketBytes out(packet.begin(), packet.end());
    std::fill(out.begin() + 48, out.begin() + 52, std::byte{0});
    return out;
  }
  security::PacketKey* key_of(security::KeyUse use, std::uint64_t number) {
    if (use == security::KeyUse::kHello) {
      if (!hello_) {
        hello_ = security::PacketKey(context_.mode, security::opening_keys(root_, context_).hello);
      }
      return &hello_;
    }
    const std::uint64_t generation = number >> bits_;
    if (generation > kGenerationsMax) return nullptr;
    while (data_.size() <= generation) {
      data_.emplace_back(context_.mode, chain_.next());
    }
    return &data_[generation];
  }

  security::Secret32 root_;
  security::LinkContext context_;
  unsigned bits_;
  std::uint64_t token_;
  security::KeyChain chain_{root_, context_, security::Sha256{}};
  std::vector<security::PacketKey> data_;  ///< by generation
  security::PacketKey hello_;
  std::map<std::uint64_t, std::vector<PacketBytes>> sealed_;  ///< by number
  // Of its receiver.
  std::set<std::uint64_t> taken_;
  std::uint64_t newest_ = 0;
  std::uint64_t newest_generation_ = 0;
  std::uint64_t supplied_ = 1;
};

}  // namespace gradwire::fuzz
