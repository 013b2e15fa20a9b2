// SPDX-License-Identifier: BSD-3-Clause
#include "security/key_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/require.h"

namespace gradwire::security {
namespace {

/// Integers in network byte order, one after the other.
class Writer {
 public:
  explicit Writer(std::span<std::byte> out) noexcept : out_(out) {}
  template <class T>
  void integer(T value) noexcept {
    for (std::size_t i = sizeof(T); i-- > 0;) {
      out_[at_++] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
    }
  }
  void bytes(std::span<const std::byte> more) noexcept {
    std::copy(more.begin(), more.end(), out_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ += more.size();
  }
  [[nodiscard]] bool full() const noexcept { return at_ == out_.size(); }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

KeyId id_of(const Secret32& master) {
  KeyId id;
  expand(master.span(), "gw1 id", {}, id);
  return id;
}

}  // namespace

const char* name_of(Mode mode) noexcept {
  switch (mode) {
    case Mode::kOff:
      return "off";
    case Mode::kAuthenticate:
      return "authenticate";
    case Mode::kEncrypt:
      return "encrypt";
  }
  return "unknown";
}

std::string text_of(const KeyId& id) {
  std::string text;
  for (const std::byte b : id) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

FileKeys::FileKeys(const Secret32& file) {
  const Secret32 master = extract("gradwire key file v1", file.span());
  id = id_of(master);
  entry = expand<32>(master.span(), "gw1 entry");
  cluster = expand<32>(master.span(), "gw1 cluster");
  job = expand<32>(master.span(), "gw1 job");
}

Result<Secret32> pair_secret(const Secret32& cluster, const X25519Exchange& own,
                             std::uint64_t own_incarnation, const PairEnd& other) {
  const auto shared = own.with(other.public_key);
  if (!shared) return tl::unexpected(shared.error());
  const PairEnd self{own.public_key(), own_incarnation};
  const bool self_first = self.public_key < other.public_key;
  std::array<std::byte, 80> both;
  Writer writer(both);
  for (const PairEnd* end : {self_first ? &self : &other, self_first ? &other : &self}) {
    writer.bytes(end->public_key);
    writer.integer(end->incarnation);
  }
  require(writer.full(), "the context of a pair is filled");
  return expand<32>(extract(cluster.span(), shared->span()).span(), "gw1 pair", both);
}

Secret32 root_secret(const Secret32& job, const Secret32& pair) {
  return extract(job.span(), pair.span());
}

std::array<std::byte, kLinkContextBytes> bytes_of(const LinkContext& link) noexcept {
  std::array<std::byte, kLinkContextBytes> out;
  Writer writer(out);
  writer.integer(link.group.group_id);
  writer.integer(link.group.epoch);
  writer.integer(link.lane);
  writer.integer(static_cast<std::uint8_t>(link.mode));
  writer.integer(link.from_rank);
  writer.integer(link.to_rank);
  writer.integer(link.from_incarnation);
  writer.integer(link.to_incarnation);
  require(writer.full(), "the context of a link is filled");
  return out;
}

OpeningKeys opening_keys(const Secret32& root, const LinkContext& link) {
  const auto bytes = expand<36>(root.span(), "gw1 link", bytes_of(link));
  OpeningKeys keys;
  for (const std::byte b : bytes.span().first<8>()) {
    keys.token = keys.token << 8 | std::to_integer<std::uint64_t>(b);
  }
  keys.hello.key = SecretBytes<16>(bytes.span().subspan<8, 16>());
  keys.hello.iv = SecretBytes<12>(bytes.span().subspan<24, 12>());
  return keys;
}

KeyChain::KeyChain(const Secret32& root, const LinkContext& link, const Sha256& table_hash) {
  std::array<std::byte, kLinkContextBytes + 32> context;
  Writer writer(context);
  writer.bytes(bytes_of(link));
  writer.bytes(table_hash);
  require(writer.full(), "the context of data is filled");
  chain_ = expand<32>(root.span(), "gw1 data", context);
}

PacketSecret KeyChain::next() {
  const auto bytes = expand<28>(chain_.span(), "gw1 key");
  chain_ = expand<32>(chain_.span(), "gw1 next");
  ++generation_;
  return {SecretBytes<16>(bytes.span().first<16>()), SecretBytes<12>(bytes.span().last<12>())};
}

}  // namespace gradwire::security
