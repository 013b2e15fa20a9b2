// SPDX-License-Identifier: BSD-3-Clause
// How ops by tiles are cut (lib/collective/tiles), against a reference that goes through an op
// element by element, as doc/protocol/tiles.md describes it.
#include "collective/tiles/tile_cut.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

using namespace gradwire;
using collective::TileCall;
using collective::TileCut;
using collective::TileGroup;
using collective::TileRefusal;
using collective::TileShares;

namespace {

struct RefElement {
  std::uint64_t index = 0;  ///< in the op or block
  std::uint16_t first_rank = 0;
};
struct RefTile {
  std::uint32_t block = 0;
  std::vector<std::vector<RefElement>> chunks;
};

/// The page's words, one element after the other.
class Reference {
 public:
  Reference(const TileGroup& group, const TileCall& call) : group_(group), call_(call) {
    const std::uint64_t payload = group.payload_bytes;
    const std::uint64_t n = group.processes.nranks;
    const std::uint64_t element = element_bytes(call.datatype);
    switch (call.format) {
      case WireFormat::kSame:
        e = payload / element;
        break;
      case WireFormat::kBf16:
        e = payload / 2;
        break;
      case WireFormat::kInt8:
        e = payload / 260 * 256;
        break;
    }
    c = (1u << 20) / (n * payload);
    c = std::min(c, std::max<std::uint64_t>(1, (64u << 10) / payload));
    c = std::max<std::uint64_t>(c, 1);
    line_ = 64 / element;
    ring_segment_ = ((call.count + n - 1) / n + line_ - 1) / line_ * line_;
    owned_.resize(group.all_ranks);
    cut();
  }

  std::uint64_t e = 1;
  std::uint64_t c = 1;
  /// All tiles of an owner, in their order.
  [[nodiscard]] const std::vector<RefTile>& of(std::uint16_t owner) const { return owned_[owner]; }
  [[nodiscard]] std::vector<const RefTile*> of(std::uint16_t owner, std::uint16_t lane) const {
    std::vector<const RefTile*> tiles;
    const std::uint32_t place = call_.collective == Collective::kReduce ? 0 : owner;
    for (std::uint32_t i = 0; i < owned_[owner].size(); ++i) {
      if ((place + i) % group_.lanes == lane) tiles.push_back(&owned_[owner][i]);
    }
    return tiles;
  }

 private:
  void cut() {
    const auto n = group_.processes.nranks;
    if (call_.collective == Collective::kAllReduce) {
      std::uint16_t owner = 0;
      for (std::uint64_t at = 0; at < call_.count; ++at) {
        bool begins = at == 0;
        for (; !is_owner(owner, at); ++owner) begins = true;
        put(owner, 0, begins, {at, static_cast<std::uint16_t>(at / ring_segment_)});
      }
      return;
    }
    for (std::uint32_t process = 0; process < group_.processes.count(); ++process) {
      const bool rooted = call_.collective == Collective::kReduce;
      if (rooted && process != call_.root) continue;
      const std::uint16_t owner = group_.processes.rank_of(process);
      for (std::uint64_t at = 0; at < call_.count; ++at) {
        const std::uint16_t first = static_cast<std::uint16_t>(owner + 1) == n ? 0 : owner + 1;
        put(owner, rooted ? 0 : process, at == 0, {at, first});
      }
    }
  }
  bool is_owner(std::uint16_t owner, std::uint64_t at) const {
    const std::uint64_t n = group_.processes.nranks;
    const bool in_blocks = call_.format == WireFormat::kInt8;
    const std::uint64_t unit = in_blocks ? 256 : line_;
    const std::uint64_t units = (call_.count + unit - 1) / unit;
    if (group_.shares != nullptr) {
      // The next owner begins at floor(units x before / all), which is above this unit.
      std::uint64_t before = 0;
      for (std::uint16_t rank = 0; rank <= owner; ++rank) before += group_.shares->share_of(rank);
      // Small numbers here: they fit.
      REQUIRE(units < (1u << 20));
      return owner + 1 == group_.all_ranks ||
             units * before >= (at / unit + 1) * group_.shares->all();
    }
    return in_blocks ? at / 256 / ((units + n - 1) / n) == owner : at / ring_segment_ == owner;
  }
  void put(std::uint16_t owner, std::uint32_t block, bool begins, RefElement element) {
    std::vector<RefTile>& tiles = owned_[owner];
    if (begins || (tiles.back().chunks.size() == c && tiles.back().chunks.back().size() == e)) {
      tiles.push_back({block, {}});
    }
    RefTile& tile = tiles.back();
    if (tile.chunks.empty() || tile.chunks.back().size() == e) tile.chunks.emplace_back();
    tile.chunks.back().push_back(element);
  }

  const TileGroup& group_;
  const TileCall& call_;
  std::uint64_t line_ = 1;
  std::uint64_t ring_segment_ = 1;
  std::vector<std::vector<RefTile>> owned_;
};

/// Whether the runs of a tile say of each element from which rank on it is folded.
bool runs_agree(const TileCut& cut, const TileCut::Tile& tile, const RefTile& right,
                bool all_gather) {
  if (all_gather) return cut.runs(tile) == 0;
  std::vector<std::uint16_t> first;
  for (std::uint32_t i = 0; i < cut.runs(tile); ++i) {
    const TileCut::Run run = cut.run(tile, i);
    if (run.at != first.size() || run.count == 0) return false;
    if (!first.empty() && first.back() == run.first_rank) return false;
    first.insert(first.end(), run.count, run.first_rank);
  }
  std::vector<std::uint16_t> wanted;
  for (const auto& chunk : right.chunks) {
    for (const RefElement& element : chunk) wanted.push_back(element.first_rank);
  }
  return first == wanted;
}

bool chunk_agrees(const TileCut::Tile& tile, const TileCut::Chunk& chunk, std::uint32_t index,
                  const RefTile& right, std::uint64_t in_tile) {
  if (chunk.tile != index) return false;
  if (in_tile >= right.chunks.size()) return chunk.count == 0 && chunk.at == 0;
  const auto& elements = right.chunks[in_tile];
  return chunk.count == elements.size() && tile.first + chunk.at == elements.front().index &&
         tile.first + chunk.at + chunk.count - 1 == elements.back().index;
}

void compare(const TileGroup& group, const TileCall& call) {
  const TileCut cut(group, call);
  REQUIRE(cut.supported());
  const Reference reference(group, call);
  REQUIRE(cut.chunk_elements() == reference.e);
  REQUIRE(cut.chunks_of_tile() == reference.c);
  std::uint64_t all = 0;
  for (std::uint16_t owner = 0; owner < group.all_ranks; ++owner) {
    CAPTURE(owner);
    REQUIRE(cut.owns(owner) == !reference.of(owner).empty());
    for (std::uint16_t lane = 0; lane < group.lanes; ++lane) {
      CAPTURE(lane);
      const auto tiles = reference.of(owner, lane);
      REQUIRE(cut.tiles(owner, lane) == tiles.size());
      REQUIRE(cut.chunks(owner, lane) == tiles.size() * reference.c);
      for (std::uint32_t i = 0; i < tiles.size(); ++i) {
        CAPTURE(i);
        const RefTile& right = *tiles[i];
        const TileCut::Tile tile = cut.tile(owner, lane, i);
        REQUIRE(tile.owner == owner);
        REQUIRE(tile.process_block == right.block);
        REQUIRE(tile.first == right.chunks.front().front().index);
        REQUIRE(tile.first + tile.count - 1 == right.chunks.back().back().index);
        REQUIRE(tile.chunks == right.chunks.size());
        REQUIRE(runs_agree(cut, tile, right, call.collective == Collective::kAllGather));
        all += tile.count;
        for (std::uint32_t x = 0; x < reference.c; ++x) {
          const auto number = static_cast<std::uint32_t>(i * reference.c + x);
          const TileCut::Chunk chunk = cut.chunk(owner, lane, number);
          if (!chunk_agrees(tile, chunk, i, right, x)) FAIL("chunk " << number << " is wrong");
        }
      }
    }
  }
  const bool blocks =
      call.collective == Collective::kReduceScatter || call.collective == Collective::kAllGather;
  REQUIRE(all == call.count * (blocks ? group.processes.count() : 1));
}

/// What travels: a datatype and its format.
struct Type {
  DataType datatype;
  WireFormat format;
};
constexpr auto kTypes = std::to_array<Type>({
    {DataType::kUint8, WireFormat::kSame},
    {DataType::kFloat16, WireFormat::kSame},
    {DataType::kFloat32, WireFormat::kSame},
    {DataType::kFloat64, WireFormat::kSame},
    {DataType::kFloat32, WireFormat::kBf16},
    {DataType::kFloat32, WireFormat::kInt8},
    {DataType::kBfloat16, WireFormat::kInt8},
});

template <class T, std::size_t kSize>
T one_of(std::mt19937& random, const T (&values)[kSize]) {
  return values[random() % kSize];
}

/// At borders of blocks, chunks, tiles and segments, beside them, or anywhere.
std::uint64_t some_count(std::mt19937& random, const TileGroup& group, const Type& type) {
  const std::uint64_t chunk = elements_in_chunk(type.format, type.datatype, group.payload_bytes);
  const std::uint64_t tile =
      chunk * collective::chunks_of_tile(group.payload_bytes, group.processes.nranks);
  const std::uint64_t unit =
      one_of<std::uint64_t>(random, {1, 16, 256, chunk, tile, 256u * group.processes.nranks});
  const std::uint64_t count = unit * (random() % 7) + random() % 3;
  const std::uint64_t anywhere = random() % 60'000;
  const std::uint64_t chosen = random() % 3 == 0 ? anywhere : count == 0 ? 0 : count - 1;
  return std::min<std::uint64_t>(chosen, 120'000);
}

}  // namespace

TEST_CASE("ops are cut as an element by element walk cuts them", "[tiles]") {
  std::mt19937 random(37);
  for (int i = 0; i < 1500; ++i) {
    TileGroup group;
    group.payload_bytes = one_of<std::uint32_t>(random, {320, 1408, 4096, 8896, 66'560});
    group.lanes = static_cast<std::uint16_t>(1 + random() % 5);
    const bool large = random() % 8 == 0;
    const auto n = static_cast<std::uint16_t>(large ? 60 + random() % 400 : 1 + random() % 9);
    group.processes.nranks = n;
    group.all_ranks = n;
    // Members: as many of each rank, or any number, at processes in any order.
    std::optional<ProcessLayout> layout;
    if (!large && random() % 2 == 0) {
      std::vector<std::uint16_t> ranks;
      for (std::uint16_t rank = 0; rank < n; ++rank) {
        ranks.insert(ranks.end(), 1 + random() % 3, rank);
      }
      std::shuffle(ranks.begin(), ranks.end(), random);
      auto made = ProcessLayout::make(ranks, n);
      REQUIRE(made);
      layout = std::move(*made);
      group.processes.layout = &*layout;
    } else if (!large) {
      group.processes.members = static_cast<std::uint16_t>(1 + random() % 3);
    }
    TileCall call;
    call.collective = one_of<Collective>(
        random, {Collective::kAllReduce, Collective::kAllReduce, Collective::kReduceScatter,
                 Collective::kAllGather, Collective::kReduce});
    const Type type = kTypes[random() % kTypes.size()];
    call.datatype = type.datatype;
    call.format = type.format;
    call.count = some_count(random, group, type);
    if (large && call.collective != Collective::kAllReduce) call.count %= 700;
    call.root = static_cast<std::uint32_t>(random() % group.processes.count());
    std::optional<TileShares> shares;
    if (random() % 3 == 0) {
      group.all_ranks = static_cast<std::uint16_t>(n + random() % 4);
      std::vector<std::uint32_t> rates(group.all_ranks);
      for (std::uint32_t& rate : rates) rate = one_of<std::uint32_t>(random, {10, 10, 25, 1000});
      if (random() % 4 == 0) rates[random() % rates.size()] = 0;
      shares = TileShares::make(rates, n);
      if (shares) group.shares = &*shares;
    }
    CAPTURE(i, group.payload_bytes, group.lanes, n, group.all_ranks, call.count);
    CAPTURE(name_of(call.collective), name_of(call.datatype), name_of(call.format));
    compare(group, call);
  }
}

TEST_CASE("without a format owners have the ring's segments", "[tiles]") {
  for (const std::uint64_t count : {1u, 100u, 12'345u, 1u << 20}) {
    const TileGroup group{.payload_bytes = 1408, .all_ranks = 7, .processes = {.nranks = 7}};
    const TileCut cut(group, {.count = count});
    const collective::Partition ring(count, DataType::kFloat32, 7, 1408);
    for (std::uint16_t rank = 0; rank < 7; ++rank) {
      CAPTURE(count, rank);
      const bool has = ring.first_chunk(rank) < ring.end_chunk(rank);
      REQUIRE(cut.owns(rank) == has);
      if (!has) continue;
      const auto tile = cut.tile(rank, 0, 0);
      CHECK(tile.first == ring.first_element(ring.first_chunk(rank)));
      REQUIRE(cut.runs(tile) == 1);
      CHECK(cut.run(tile, 0).first_rank == rank);
    }
  }
}

TEST_CASE("ops of more elements than 32 bits count are cut, up to a limit", "[tiles]") {
  // 2^42 bytes: 3 ranks, 1 lane, and chunks of 16 elements.
  TileGroup group{.payload_bytes = 64, .all_ranks = 3, .processes = {.nranks = 3}};
  TileCall call{.count = std::uint64_t{1} << 37};
  const TileCut cut(group, call);
  REQUIRE(cut.supported());
  std::uint64_t next = 0;
  for (std::uint16_t owner = 0; owner < 3; ++owner) {
    const std::uint32_t tiles = cut.tiles(owner, 0);
    CHECK(cut.tile(owner, 0, 0).first == next);
    const auto last = cut.tile(owner, 0, tiles - 1);
    next = last.first + last.count;
    CHECK(cut.chunks(owner, 0) == std::uint64_t{tiles} * 1024);
    const auto number = static_cast<std::uint32_t>(cut.chunks(owner, 0) - 1);
    CHECK(cut.chunk(owner, 0, number).tile == tiles - 1);
  }
  CHECK(next == call.count);

  // The last numbers that there are: a tile has 1,024 chunks, and 2^22 tiles are one too many.
  const std::uint64_t tile = 1024 * 16;
  const std::uint64_t most = ((std::uint64_t{1} << 22) - 1) * tile;
  const auto refusal = [&](std::uint64_t count) {
    call.count = count;
    return TileCut(group, call).refusal();
  };
  CHECK(refusal(3 * most) == TileRefusal::kNone);
  CHECK(refusal(3 * most + 1) == TileRefusal::kTooManyChunks);
  group.lanes = 2;
  CHECK(refusal(3 * most + 1) == TileRefusal::kNone);
  CHECK(refusal(6 * most + 1) == TileRefusal::kTooManyChunks);
  group.lanes = 1;
  for (const auto collective : {Collective::kReduceScatter, Collective::kAllGather}) {
    call.collective = collective;
    CHECK(refusal(most) == TileRefusal::kNone);
    CHECK(refusal(most + 1) == TileRefusal::kTooManyChunks);
    group.processes.members = 2;
    CHECK(refusal(most / 2) == TileRefusal::kTooManyChunks);
    CHECK(refusal(most / 2 - tile) == TileRefusal::kNone);
    group.processes.members = 1;
  }
  call.collective = Collective::kReduce;
  CHECK(refusal(most) == TileRefusal::kNone);
  CHECK(refusal(most + 1) == TileRefusal::kTooManyChunks);
  // Shares of 3 and 1: each has whole lines, which tiles are too.
  call.collective = Collective::kAllReduce;
  const std::vector<std::uint32_t> rates{1, 1, 0, 1};
  const auto shares = TileShares::make(rates, 3);
  REQUIRE(shares);
  group.all_ranks = 4;
  group.shares = &*shares;
  CHECK(refusal(4 * most) == TileRefusal::kNone);
  CHECK(refusal(4 * most + 1) == TileRefusal::kTooManyChunks);
}

TEST_CASE("ops that cannot go by tiles are refused by name", "[tiles]") {
  TileGroup group{.payload_bytes = 1408, .all_ranks = 3, .processes = {.nranks = 3}};
  const auto refusal = [&](Collective collective, DataType datatype, WireFormat format) {
    const TileCall call{
        .collective = collective, .datatype = datatype, .format = format, .count = 1000};
    const TileCut cut(group, call);
    CHECK(cut.supported() == (cut.refusal() == TileRefusal::kNone));
    return cut.refusal();
  };
  using enum TileRefusal;
  for (const Collective collective : kCollectives) {
    const bool has_tiles =
        collective == Collective::kAllReduce || collective == Collective::kReduce ||
        collective == Collective::kReduceScatter || collective == Collective::kAllGather;
    CAPTURE(name_of(collective));
    CHECK(refusal(collective, DataType::kFloat32, WireFormat::kSame) ==
          (has_tiles ? kNone : kCollective));
  }
  CHECK(refusal(Collective::kAllReduce, DataType::kFloat64, WireFormat::kInt8) == kFormat);
  CHECK(refusal(Collective::kAllReduce, DataType::kBfloat16, WireFormat::kBf16) == kFormat);
  group.payload_bytes = 256;
  CHECK(refusal(Collective::kAllReduce, DataType::kFloat32, WireFormat::kInt8) == kPayload);
  CHECK(refusal(Collective::kAllReduce, DataType::kFloat32, WireFormat::kBf16) == kNone);
  group.all_ranks = 4;
  CHECK(refusal(Collective::kAllReduce, DataType::kFloat32, WireFormat::kSame) == kOwners);
  CHECK(refusal(Collective::kReduceScatter, DataType::kFloat32, WireFormat::kSame) == kNone);
}
