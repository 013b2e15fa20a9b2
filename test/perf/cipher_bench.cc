// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How fast one core seals and opens packets, by each cipher that this machine has, in both modes:
/// gigabytes of payload a second of the thread's own CPU time, the median (quartiles) of the
/// rounds, of which each measures every row once, and memcpy of the same payloads with it: others
/// use the machine too. Single thread.
///
/// usage: cipher_bench [ROUNDS]
#include <fmt/core.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "cpu_model.h"
#include "quartiles.h"
#include "security/packet_key.h"

namespace {

using namespace gradwire;
using namespace gradwire::security;

/// Behind Ethernet, IPv4 and UDP: not aligned, as in a frame.
constexpr std::size_t kOffset = 42;
constexpr double kRoundSeconds = 0.004;

/// Of CPU time: what other processes take does not count.
double now_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

enum class Work { kMemcpy, kSealCopy, kSeal, kOpen, kOpenCopy };
struct Row {
  Work work;
  const char* name;
};
constexpr Row kRows[] = {
    {Work::kMemcpy, "memcpy"},
    {Work::kSealCopy, "seal while copying"},
    {Work::kSeal, "seal in place"},
    {Work::kOpen, "open in place"},
    {Work::kOpenCopy, "open into another buffer"},
};

/// Packets one after the other, as many as the working set has.
class Packets {
 public:
  Packets(std::size_t payload, std::size_t working_set)
      : payload_(payload),
        stride_((kOffset + kSealedHeaderBytes + payload + kTagBytes + 127) / 64 * 64),
        count_(std::max<std::size_t>(1, working_set / stride_)),
        frames_(stride_ * count_),
        plain_(payload * count_),
        out_(payload * count_) {
    std::mt19937_64 random(1);
    for (std::byte& b : plain_) b = static_cast<std::byte>(random());
  }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] Header header(std::size_t i) {
    return Header(&frames_[i * stride_ + kOffset], kSealedHeaderBytes);
  }
  [[nodiscard]] std::span<std::byte> payload(std::size_t i) {
    return {&frames_[i * stride_ + kOffset + kSealedHeaderBytes], payload_};
  }
  [[nodiscard]] Tag tag(std::size_t i) {
    return Tag(&frames_[i * stride_ + kOffset + kSealedHeaderBytes + payload_], kTagBytes);
  }
  [[nodiscard]] std::span<const std::byte> plain(std::size_t i) const {
    return {&plain_[i * payload_], payload_};
  }
  [[nodiscard]] std::byte* out(std::size_t i) { return &out_[i * payload_]; }

 private:
  std::size_t payload_;
  std::size_t stride_;
  std::size_t count_;
  std::vector<std::byte> frames_;
  std::vector<std::byte> plain_;
  std::vector<std::byte> out_;
};

void seal_copy(PacketKey& key, Packets& packets, std::size_t i) {
  const auto piece = packets.plain(i);
  key.seal(i + 1, packets.header(i), {&piece, 1}, packets.payload(i).data(), packets.tag(i));
}

void open(PacketKey& key, Packets& packets, std::size_t i, std::byte* out) {
  if (key.open(i + 1, packets.header(i), packets.payload(i), out, packets.tag(i))) return;
  fmt::print(stderr, "a packet does not open\n");
  std::exit(1);
}

/// @return seconds for all packets.
double pass(PacketKey& key, Packets& packets, Work work) {
  if (work == Work::kOpen || work == Work::kOpenCopy) {
    for (std::size_t i = 0; i < packets.count(); ++i) seal_copy(key, packets, i);
  }
  const double begin = now_s();
  for (std::size_t i = 0; i < packets.count(); ++i) {
    switch (work) {
      case Work::kMemcpy:
        std::memcpy(packets.payload(i).data(), packets.plain(i).data(), packets.plain(i).size());
        break;
      case Work::kSealCopy:
        seal_copy(key, packets, i);
        break;
      case Work::kSeal:
        key.seal_in_place(i + 1, packets.header(i), packets.payload(i), packets.tag(i));
        break;
      case Work::kOpen:
        open(key, packets, i, packets.payload(i).data());
        break;
      case Work::kOpenCopy:
        open(key, packets, i, packets.out(i));
        break;
    }
  }
  return now_s() - begin;
}

double gbytes_per_second(PacketKey& key, Packets& packets, Work work, std::size_t payload) {
  double seconds = 0;
  std::size_t bytes = 0;
  while (seconds < kRoundSeconds) {
    seconds += pass(key, packets, work);
    bytes += packets.count() * payload;
  }
  return static_cast<double>(bytes) / seconds / 1e9;
}

void measure(Mode mode, std::size_t payload, std::size_t working_set, const char* where,
             int rounds) {
  std::vector<Cipher> ciphers = {Cipher::kOpenSsl};
  if (available(Cipher::kIpsecMb)) ciphers.insert(ciphers.begin(), Cipher::kIpsecMb);
  PacketSecret secret;
  secret.key.span()[0] = std::byte{1};
  Packets packets(payload, working_set);
  std::vector<PacketKey> keys;
  for (const Cipher cipher : ciphers) keys.emplace_back(mode, secret, cipher);
  std::vector<std::vector<double>> found(std::size(kRows) * keys.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i].push_back(
          gbytes_per_second(keys[i % keys.size()], packets, kRows[i / keys.size()].work, payload));
    }
  }
  fmt::print("\n{}, {} bytes, {}\n{:26}", name_of(mode), payload, where, "");
  for (const Cipher cipher : ciphers) fmt::print(" {:>24}", text_of(cipher));
  fmt::print("\n");
  for (std::size_t r = 0; r < std::size(kRows); ++r) {
    fmt::print("{:26}", kRows[r].name);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [low, middle, high] = perf::quartiles(found[r * keys.size() + i]);
      fmt::print(" {:8.2f} ({:5.2f} to {:5.2f})", middle, low, high);
    }
    fmt::print("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  if (rounds < 1) {
    fmt::print(stderr, "usage: cipher_bench [ROUNDS], 1 or more\n");
    return 2;
  }
  fmt::print("{}; GB/s of payload on one core, median (quartiles) of {} rounds\n",
             perf::cpu_model(), rounds);
  for (const std::size_t payload : {std::size_t{1408}, std::size_t{8896}}) {
    for (const Mode mode : {Mode::kAuthenticate, Mode::kEncrypt}) {
      measure(mode, payload, std::size_t{256} << 10, "in L2", rounds);
      measure(mode, payload, std::size_t{64} << 20, "in memory", rounds);
    }
  }
  return 0;
}
