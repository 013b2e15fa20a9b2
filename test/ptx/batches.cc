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

/// Waits for entries, all of them, since they use the caller's arrays.
/// @return what `judge(completion)` says first, or an empty string.
template <class Judge>
std::string await(std::size_t taken, Backend& backend, const Reach& reach, Judge&& judge) {
  if (taken == 0) return "not taken";
  std::string first_wrong;
  for (std::size_t finished = 0; finished < taken;) {
    Completion done;
    if (backend.poll({&done, 1}) == 0) {
      if (!reach.asynchronous()) return "not completed";
      std::this_thread::yield();
      continue;
    }
    ++finished;
    const std::string wrong = judge(done);
    if (!wrong.empty() && first_wrong.empty()) {
      first_wrong =
          "entry " + std::to_string(done.cookie) + " of " + std::to_string(taken) + ", " + wrong;
    }
  }
  return first_wrong;
}

}  // namespace

std::string check_batch(const std::vector<Case>& cases, Backend& backend, Reach& reach,
                        std::mt19937_64& random, const std::vector<OrderCase>& folds) {
  std::deque<OrderWork> works;
  std::deque<Part> parts;
  std::vector<Entry> loads;
  std::vector<Entry> entries;
  for (const OrderCase& c : folds) {
    OrderWork& work = works.emplace_back(c, random);
    work.enter(reach);
    loads.insert(loads.end(), work.loads.begin(), work.loads.end());
    entries.push_back(work.fold);
  }
  for (const Case& c : cases) entries.push_back(parts.emplace_back(c, reach, random).work.entry);
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i].cookie = i;

  const auto loads_well = [](const Completion& done) {
    return std::string(done.ok ? "" : "a contribution: failed");
  };
  std::string wrong;
  for (std::size_t loaded = 0, taken = 0; loaded < loads.size() && wrong.empty(); loaded += taken) {
    taken = backend.submit(std::span(loads).subspan(loaded));
    wrong = await(taken, backend, reach, loads_well);
  }
  const auto folds_well = [&](const Completion& done) {
    const bool is_fold = done.cookie < works.size();
    const std::size_t i = is_fold ? done.cookie : done.cookie - works.size();
    std::string found = !done.ok ? "failed" : is_fold ? works[i].wrong() : parts[i].wrong(done);
    if (found.empty()) return found;
    return (is_fold ? describe(folds[i], backend.name()) : describe(cases[i], backend.name())) +
           ": " + found;
  };
  if (wrong.empty()) wrong = await(backend.submit(entries), backend, reach, folds_well);
  for (OrderWork& work : works) work.leave(reach);
  return wrong;
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

std::vector<OrderCase> random_folds(std::size_t count, std::mt19937_64& random) {
  std::vector<OrderCase> folds;
  for (std::size_t i = 0; i < count; ++i) {
    OrderCase c{};
    c.type = kDataTypes[random() % kDataTypes.size()];
    c.redop = kRedOps[random() % kRedOps.size()];
    if (!fits(c.redop, c.type)) c.redop = RedOp::kSum;
    c.ranks = 2 + random() % (random() % 4 == 0 ? 15 : 5);
    c.members = 1 + random() % 2;
    // Otherwise the contribution of several members, and a product, lose bits on their way.
    c.wide = c.members > 1 || c.redop == RedOp::kPremulSum || random() % 2 == 0;
    const std::size_t bytes = random() % 4 == 0 ? 2 * reduce::kTileBytes : 200;
    c.count = 1 + random() % (bytes / element_bytes(c.type));
    constexpr std::array<std::size_t, 4> kMisalignments = {0, 0, 1, 8};
    c.misalignment = kMisalignments[random() % kMisalignments.size()];
    c.finalize = random() % 2 == 0;
    c.outputs = random() % 3;
    c.packet = c.outputs == 0 || random() % 2 == 0;
    c.in_place = random() % 2 == 0;
    folds.push_back(c);
  }
  return folds;
}

}  // namespace gradwire::ptx
