// SPDX-License-Identifier: BSD-3-Clause
// All ranks of a group whose packets are sealed: production shards and keys, joined by a network
// that belongs to the input. It plays packets again, to other ranks, on other lanes and under other
// numbers, damages any byte of them, cuts and lengthens them, and holds keys of later generations
// back. In some inputs it loses packets too, and in some a rank lies: what it seals rightly has any
// content. A packet is opened if and only if the other rank sealed it so and it comes for the first
// time (sealed_link.h). One that is not opened changes nothing but the counter of its reason. No
// number of a link has two packets, and all that is sent is sealed. Unless a rank lies, sums are
// right; unless the input loses packets too, every op is done, and nobody aborts.
//
// The input: four bytes of configuration, then actions, a byte each and then their fields.
#include <algorithm>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/repair.h"
#include "fuzz/sealed_group.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;

constexpr std::size_t kMaxElements = 600;
constexpr std::size_t kPacketMax = 1500;

SealedGroup::Options options_from(Input& input) {
  SealedGroup::Options options;
  const std::uint8_t size = input.u8();
  options.nranks = static_cast<std::uint16_t>(2 + (size & 1));
  options.lanes = static_cast<std::uint8_t>(1 + (size >> 1 & 1));
  options.mode = (size & 4) != 0 ? Mode::kEncrypt : Mode::kAuthenticate;
  options.generation_bits = 6u + (size >> 3 & 3);
  options.shape = input.u8();
  options.window = 2u + input.pick(30);
  return options;
}

class Run {
 public:
  explicit Run(Input& input) : Run(input, options_from(input)) {}

  explicit Run(Input& input, const SealedGroup::Options& options)
      : input_(input), group_(options), generation_bits_(options.generation_bits) {
    loses_ = input.pick(4) == 3;
  }

  void act() {
    switch (input_.pick(20)) {
      case 0:
      case 1:
        group_.post(input_.u16() % kMaxElements);
        return group_.round();
      case 2:
      case 3:
      case 4:
        return group_.round();
      case 5:  // generations pass
        for (std::uint32_t n = input_.pick(40); n > 0; --n) {
          group_.pass(40'000'000);  // so long that links ask each other whether they are there
          group_.round();
        }
        return;
      case 6: {
        const TimeNs time = input_.u8();
        group_.pass(time << (loses_ ? input_.pick(24) : 16));
        return group_.round();
      }
      case 7:
        return loses_ ? lose() : group_.round();
      case 8:
        if (loses_) group_.delay_keys(input_.pick(64));
        return group_.round();
      case 9:
      case 10:
        return lie();
      case 11:
        if (input_.pick(16) == 15) end();
        return group_.round();
      default:
        return attack();
    }
  }

  void finish() {
    const bool goes_on = !loses_ && !lied_ && !ended_;
    group_.delay_keys(0);
    for (int i = 0; i < 4'000 && goes_on && !group_.all_done(); ++i) group_.round();
    FUZZ_CHECK(!goes_on || group_.all_done());
    group_.close();
    FUZZ_CHECK(!goes_on || !group_.aborted());
  }

 private:
  void lose() {
    const std::uint8_t which = input_.u8();
    std::size_t n = 0;
    std::erase_if(group_.on_way(),
                  [&](const SealedPacket&) { return (which >> (n++ % 8) & 1) != 0; });
  }

  void end() {
    ended_ = true;
    const std::size_t which = input_.pick(8);
    group_.end(which, input_.pick(2) != 0);
  }

  // Whoever holds the cable.

  void attack() {
    if (group_.seen().empty()) return;
    SealedPacket packet = group_.seen()[input_.pick(SealedGroup::kSeenMax) % group_.seen().size()];
    const std::uint8_t how = input_.u8();
    if ((how & 1) != 0) {
      for (std::uint32_t n = 1 + input_.pick(3); n > 0; --n) damage(packet);
    }
    // It knows the tokens, since it has seen them.
    if ((how & 2) != 0) address(packet, (how & 4) != 0);
    if ((how & 0x18) != 0x18 && packet.bytes.size() >= wire::kHeaderBytes) {
      wire::renew_header_crc(packet.bytes.data());
    }
    group_.deliver(packet);
  }
  void damage(SealedPacket& packet) {
    PacketBytes& bytes = packet.bytes;
    const auto put_number = [&](std::uint64_t number) {
      for (std::size_t i = 0; i < 8; ++i) {
        if (8 + i < bytes.size()) bytes[8 + i] = static_cast<std::byte>(number >> (56 - 8 * i));
      }
    };
    switch (input_.pick(10)) {
      case 0: {
        const std::size_t bit = input_.u16();
        if (!bytes.empty()) bytes[bit / 8 % bytes.size()] ^= static_cast<std::byte>(1u << bit % 8);
        return;
      }
      case 1: {
        std::size_t at = input_.u16() % kPacketMax;
        for (const std::byte b : input_.bytes(input_.pick(32))) {
          if (at < bytes.size()) bytes[at++] = b;
        }
        return;
      }
      case 2:
        return bytes.resize(std::min<std::size_t>(input_.u16(), bytes.size()));
      case 3: {
        const auto more = input_.bytes(input_.pick(64));
        if (bytes.size() + more.size() <= kPacketMax) {
          bytes.insert(bytes.end(), more.begin(), more.end());
        }
        return;
      }
      case 4: {
        const std::uint64_t by = input_.u8();
        return put_number(group_.link(packet.lane, packet.from, packet.to).newest() + by - 64);
      }
      case 5: {  // of another generation, mostly one of which there is a key
        const std::uint64_t by = input_.pick(8);
        const std::uint64_t newest = group_.link(packet.lane, packet.from, packet.to).newest();
        if (by == 7) return put_number(input_.u64());
        return put_number(newest + ((by - 2) << generation_bits_));
      }
      case 6:
        if (bytes.size() > 1) bytes[1] = static_cast<std::byte>(input_.pick(20));
        return;
      case 7:
        if (bytes.size() > 2) bytes[2] = static_cast<std::byte>(input_.u8());
        return;
      case 8:
        if (bytes.size() >= 16) std::fill(bytes.end() - 16, bytes.end(), std::byte{0});
        return;
      default:
        if (!bytes.empty()) bytes.pop_back();
    }
  }
  /// To another rank, or lane, or back to where it came from.
  void address(SealedPacket& packet, bool all_of_it) {
    packet.lane = static_cast<std::uint8_t>(input_.pick(group_.lanes()));
    packet.to = static_cast<std::uint16_t>(input_.pick(group_.nranks()));
    packet.from = static_cast<std::uint16_t>((packet.to + 1 + input_.pick(group_.nranks() - 1u)) %
                                             group_.nranks());
    if (all_of_it) write_address(packet);
  }
  /// Lane, rank and token of its link; the group's tag.
  void write_address(SealedPacket& packet) {
    if (packet.bytes.size() < wire::kHeaderBytes) return;
    const auto put = [&](std::size_t at, std::size_t wide, std::uint64_t value) {
      for (std::size_t i = 0; i < wide; ++i) {
        packet.bytes[at + i] = static_cast<std::byte>(value >> (8 * (wide - 1 - i)));
      }
    };
    put(3, 1, packet.lane);
    put(4, 4, wire::group_tag(kSealedGroup));
    put(46, 2, packet.from);
    put(56, 8, group_.link(packet.lane, packet.from, packet.to).token());
  }

  /// A rank seals what no rank should say.
  void lie() {
    if (group_.seen().empty()) return;
    SealedPacket packet = group_.seen()[input_.pick(SealedGroup::kSeenMax) % group_.seen().size()];
    SealedLink& lies = group_.link(packet.lane, packet.from, packet.to);
    packet.bytes = lies.opened(packet.bytes);
    if (packet.bytes.empty()) return;
    const std::uint8_t how = input_.u8();
    if ((how & 1) != 0) packet.bytes[1] = static_cast<std::byte>(input_.pick(20));
    for (std::uint32_t n = how >> 1 & 3; n > 0; --n) {
      const std::size_t at = 16 + input_.pick(30);
      packet.bytes[at] = static_cast<std::byte>(input_.u8());
    }
    if ((how & 8) != 0) {
      const std::size_t at = wire::kHeaderBytes + input_.u8();
      const auto changed = input_.bytes(input_.pick(32));
      for (std::size_t i = 0; i < changed.size() && at + i < packet.bytes.size(); ++i) {
        packet.bytes[at + i] = changed[i];
      }
    }
    if ((how & 16) != 0) packet.bytes.resize(wire::kHeaderBytes + input_.u8());
    if ((how & 32) != 0) packet.bytes.resize(wire::kHeaderBytes);
    const std::uint64_t number =
        (how & 64) != 0 ? input_.u64() % wire::kLastPacketNumber : lies.newest() + input_.pick(32);
    for (std::size_t i = 0; i < 8; ++i) {
      packet.bytes[8 + i] = static_cast<std::byte>(number >> (56 - 8 * i));
    }
    packet.bytes[wire::kFlagsAt] = std::byte{0};
    write_address(packet);
    if ((how & 128) == 0) repair_packet(packet.bytes);
    packet.bytes.resize(packet.bytes.size() + wire::kSealTagBytes);
    if (!lies.seal(packet.bytes)) return;
    lied_ = true;
    group_.lies();
    group_.deliver(packet);
  }

  Input& input_;
  SealedGroup group_;
  unsigned generation_bits_;
  bool loses_ = false;
  bool lied_ = false;
  bool ended_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  make_pools();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  play<Run>(data, size, 400);
  return 0;
}
