// SPDX-License-Identifier: BSD-3-Clause
#include "batches.h"

#include <deque>
#include <memory>
#include <thread>

#include "reduce/gpu/batch.h"

namespace gradwire::ptx {

using namespace gradwire::test;

namespace {

std::uint32_t crc32c_of(const std::byte* bytes, std::size_t count) {
  std::uint32_t state = ~0u;
  for (std::size_t i = 0; i < count; ++i) {
    state ^= std::to_integer<std::uint32_t>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~state;
}

/// Whether its packet holds what the world's does in the end.
bool has_crc(Kind kind) {
  return kind == Kind::kLoad || kind == Kind::kReduceInPacket || kind == Kind::kReduceAndStore ||
         kind == Kind::kReduceToOutput;  // as it was
}

/// One entry of a batch, and what it is to come to.
struct Part {
  Part(const Case& of, Reach& reach, std::mt19937_64& random)
      : c(of), world(c, random), expected(world), work(c, world) {
    expect(c, expected);
    reached = std::make_unique<Reached>(world, reach);
    work.entry.crc = has_crc(c.kind) && random() % 2 == 0;
  }
  std::string wrong(const Completion& done) {
    if (!done.ok) return "failed";
    const std::size_t bytes = c.count * element_bytes(c.type);
    std::string found = compare(c, world, expected);
    if (found.empty() && work.entry.crc && done.crc != crc32c_of(expected.packet.data(), bytes)) {
      found = "its CRC";
    }
    return found;
  }
  const Case c;
  World world;
  World expected;
  Work work;
  std::unique_ptr<Reached> reached;
};

}  // namespace

std::string check_batch(const std::vector<Case>& cases, Backend& backend, Reach& reach,
                        std::mt19937_64& random) {
  std::deque<Part> parts;
  std::vector<Entry> entries;
  for (const Case& c : cases) {
    parts.emplace_back(c, reach, random);
    parts.back().work.entry.cookie = entries.size();
    entries.push_back(parts.back().work.entry);
  }
  const std::size_t taken = backend.submit(entries);
  if (taken == 0) return "not taken";
  std::string first_wrong;  // all are waited for: they use this function's arrays
  for (std::size_t finished = 0; finished < taken;) {
    Completion done;
    if (backend.poll({&done, 1}) == 0) {
      if (!reach.asynchronous()) return "not completed";
      std::this_thread::yield();
      continue;
    }
    ++finished;
    const std::string wrong = parts[done.cookie].wrong(done);
    if (!wrong.empty() && first_wrong.empty()) {
      first_wrong = "entry " + std::to_string(done.cookie) + " of " + std::to_string(taken) + ", " +
                    describe(cases[done.cookie], backend.name()) + ": " + wrong;
    }
  }
  return first_wrong;
}

std::vector<Case> random_cases(std::size_t count, bool uniform, std::mt19937_64& random) {
  std::vector<Case> cases;
  for (std::size_t i = 0; i < count; ++i) {
    Case c{};
    c.type = uniform && i > 0 ? cases[0].type : kDataTypes[random() % kDataTypes.size()];
    c.redop = uniform && i > 0 ? cases[0].redop : kRedOps[random() % kRedOps.size()];
    if (!fits(c.redop, c.type)) c.redop = RedOp::kSum;
    c.kind = kKinds[random() % kKinds.size()];
    if (uniform) c.kind = random() % 2 == 0 ? Kind::kReduceInPacket : Kind::kReduceAndStore;
    c.members = 1 + random() % 3;
    const std::size_t bytes = random() % 4 == 0 ? 3 * reduce::kTileBytes : 200;
    c.count = 1 + random() % (bytes / element_bytes(c.type));
    constexpr std::array<std::size_t, 4> kMisalignments = {0, 0, 1, 8};
    c.misalignment = kMisalignments[random() % kMisalignments.size()];
    c.finalize = random() % 2 == 0;
    c.in_place = random() % 2 == 0;
    c.divisor = static_cast<std::uint32_t>(c.members * (1 + random() % 5));
    cases.push_back(c);
  }
  return cases;
}

}  // namespace gradwire::ptx
