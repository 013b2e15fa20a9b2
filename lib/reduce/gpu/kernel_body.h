// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What one thread of a kernel does to one tile of a batch's item. CUDA's kernels consist of these
/// functions, and the emulated device uses them too, running a block's threads one after the other.
/// So tiles, tails and alignments are tested without a GPU.
///
/// Only the thread that reads an element writes it, so a target may be one of the sources. Loads
/// use `Load`, because a persistent kernel must not read stale bytes of a recycled packet from a
/// cache. Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce/gpu/batch.h"
#include "reduce/gpu/crc_ops.h"
#include "reduce/gpu/general_fold.h"
#include "reduce/gpu/kernel_parts.h"

namespace gradwire::reduce {

/// What a thread makes of the vectors of its sources, and where it writes it.
template <class Ops, RedOp kOp>
struct VectorFold {
  using Stored = typename Ops::Stored;
  static constexpr std::uint32_t kElements = sizeof(Vector16) / sizeof(Stored);
  typename Ops::Acc acc[kElements];

  GRADWIRE_ANYWHERE void begin(const Vector16& vector) noexcept {
    Stored values[kElements];
    std::memcpy(values, &vector, sizeof values);
    GRADWIRE_FLATTEN
    for (std::uint32_t k = 0; k < kElements; ++k) acc[k] = Ops::decode(values[k]);
  }
  GRADWIRE_ANYWHERE void add(const Vector16& vector) noexcept {
    Stored values[kElements];
    std::memcpy(values, &vector, sizeof values);
    GRADWIRE_FLATTEN
    for (std::uint32_t k = 0; k < kElements; ++k) {
      acc[k] = combine_as<Ops, kOp>(acc[k], Ops::decode(values[k]));
    }
  }
  GRADWIRE_ANYWHERE void end(const BatchItem& item, const std::uint64_t* targets, std::uint32_t at,
                             bool divides, typename Ops::Divisor divisor) noexcept {
    Stored values[kElements];
    GRADWIRE_FLATTEN
    for (std::uint32_t k = 0; k < kElements; ++k) {
      const typename Ops::Acc value = divides ? Ops::divide(acc[k], divisor) : acc[k];
      values[k] = Ops::round(Ops::seal(value));
    }
    Vector16 out;
    std::memcpy(&out, values, sizeof out);
    for (std::uint32_t t = 0; t < item.target_count; ++t) {
      at_address<Vector16>(targets[t])[at] = out;
    }
  }
};

/// One thread's share of a tile that all addresses of the item are aligned to 16 bytes for; whole
/// vectors only. Two vectors of two sources are asked for before the first is used: `kTwo` has no
/// branch between the loads, over which the compiler would not move them.
template <class Ops, RedOp kOp, class Load, bool kTwo>
GRADWIRE_ANYWHERE void fold_vectors(const BatchItem& item, const std::uint64_t* addresses,
                                    std::uint32_t first_vector, std::uint32_t end_vector,
                                    std::uint32_t thread, std::uint32_t threads) noexcept {
  constexpr std::uint32_t kUnroll = 2;
  const typename Ops::Divisor divisor = Ops::divisor(item.divisor);
  const bool divides = kOp == RedOp::kSum && item.divisor != 1;
  const std::uint64_t* const targets = addresses + item.source_count;

  for (std::uint32_t at = first_vector + thread; at < end_vector; at += threads * kUnroll) {
    const bool whole = at + threads < end_vector;  // else the second is past the end
    const std::uint32_t second = whole ? at + threads : at;
    VectorFold<Ops, kOp> folds[kUnroll];
    if constexpr (kTwo) {
      const auto* a = at_address<const Vector16>(addresses[0]);
      const auto* b = at_address<const Vector16>(addresses[1]);
      const Vector16 vectors[4] = {Load::load(a + at), Load::load(a + second), Load::load(b + at),
                                   Load::load(b + second)};
      folds[0].begin(vectors[0]);
      folds[1].begin(vectors[1]);
      folds[0].add(vectors[2]);
      folds[1].add(vectors[3]);
    } else {
      const std::uint32_t last = item.source_count - 1u;
      const auto* source = at_address<const Vector16>(addresses[0]);
      const Vector16 first[kUnroll] = {Load::load(source + at), Load::load(source + second)};
      // One source ahead; behind the last it is the last again, so that there is no branch.
      source = at_address<const Vector16>(addresses[last != 0 ? 1 : 0]);
      Vector16 next[kUnroll] = {Load::load(source + at), Load::load(source + second)};
      folds[0].begin(first[0]);
      folds[1].begin(first[1]);
      for (std::uint32_t s = 1; s <= last; ++s) {
        const Vector16 now[kUnroll] = {next[0], next[1]};
        source = at_address<const Vector16>(addresses[s < last ? s + 1 : last]);
        next[0] = Load::load(source + at);
        next[1] = Load::load(source + second);
        folds[0].add(now[0]);
        folds[1].add(now[1]);
      }
    }
    folds[0].end(item, targets, at, divides, divisor);
    if (whole) folds[1].end(item, targets, second, divides, divisor);
  }
}

/// One thread's share of elements, one at a time. `kAligned`: every address is a multiple of the
/// element's width; if not, elements are assembled from bytes.
template <class Ops, RedOp kOp, class Load, bool kAligned>
GRADWIRE_ANYWHERE void fold_elements(const BatchItem& item, const std::uint64_t* addresses,
                                     std::uint32_t begin, std::uint32_t end, std::uint32_t thread,
                                     std::uint32_t threads) noexcept {
  using Stored = typename Ops::Stored;
  const typename Ops::Divisor divisor = Ops::divisor(item.divisor);
  const bool divides = kOp == RedOp::kSum && item.divisor != 1;
  const std::uint64_t* const targets = addresses + item.source_count;
  const auto load = [](std::uint64_t address) noexcept {
    if constexpr (kAligned) {
      return Load::load(at_address<const Stored>(address));
    } else {
      unsigned char bytes[sizeof(Stored)];
      GRADWIRE_FLATTEN
      for (std::uint32_t b = 0; b < sizeof(Stored); ++b) {
        bytes[b] = Load::load(at_address<const unsigned char>(address + b));
      }
      Stored value;
      std::memcpy(&value, bytes, sizeof value);
      return value;
    }
  };
  for (std::uint32_t i = begin + thread; i < end; i += threads) {
    const std::uint64_t offset = std::uint64_t{i} * sizeof(Stored);
    typename Ops::Acc acc = Ops::decode(load(addresses[0] + offset));
    for (std::uint32_t s = 1; s < item.source_count; ++s) {
      acc = combine_as<Ops, kOp>(acc, Ops::decode(load(addresses[s] + offset)));
    }
    if (divides) acc = Ops::divide(acc, divisor);
    const Stored value = Ops::round(Ops::seal(acc));
    for (std::uint32_t t = 0; t < item.target_count; ++t) {
      if constexpr (kAligned) {
        *at_address<Stored>(targets[t] + offset) = value;
      } else {
        unsigned char bytes[sizeof(Stored)];
        std::memcpy(bytes, &value, sizeof value);
        GRADWIRE_FLATTEN
        for (std::uint32_t b = 0; b < sizeof(Stored); ++b) {
          at_address<unsigned char>(targets[t] + offset)[b] = bytes[b];
        }
      }
    }
  }
}

/// @param tile  of the item, from 0.
template <class Ops, RedOp kOp, class Load>
GRADWIRE_ANYWHERE void fold_tile(const BatchItem& item, const std::uint64_t* addresses,
                                 std::uint32_t tile, std::uint32_t thread,
                                 std::uint32_t threads) noexcept {
  constexpr std::uint32_t kWidth = sizeof(typename Ops::Stored);
  constexpr std::uint32_t kPerTile = kTileBytes / kWidth;
  constexpr std::uint32_t kPerVector = sizeof(Vector16) / kWidth;
  const std::uint32_t begin = tile * kPerTile;
  const std::uint32_t left = item.count - begin;
  const std::uint32_t end = begin + (left < kPerTile ? left : kPerTile);
  std::uint32_t done = begin;
  if (item.alignment == sizeof(Vector16)) {
    const std::uint32_t end_vector = end / kPerVector;
    item.source_count == 2 ? fold_vectors<Ops, kOp, Load, true>(item, addresses, begin / kPerVector,
                                                                end_vector, thread, threads)
                           : fold_vectors<Ops, kOp, Load, false>(
                                 item, addresses, begin / kPerVector, end_vector, thread, threads);
    done = end_vector * kPerVector;
  }
  if (item.alignment >= kWidth) {
    fold_elements<Ops, kOp, Load, true>(item, addresses, done, end, thread, threads);
  } else {
    fold_elements<Ops, kOp, Load, false>(item, addresses, done, end, thread, threads);
  }
}

/// Copies bits from one source to each target, if there is one; `count` is in bytes.
template <class Load>
GRADWIRE_ANYWHERE void copy_tile(const BatchItem& item, const std::uint64_t* addresses,
                                 std::uint32_t tile, std::uint32_t thread,
                                 std::uint32_t threads) noexcept {
  if (item.target_count == 0) return;
  const std::uint32_t begin = tile * kTileBytes;
  const std::uint32_t left = item.count - begin;
  const std::uint32_t end = begin + (left < kTileBytes ? left : kTileBytes);
  std::uint32_t done = begin;
  if (item.alignment == sizeof(Vector16)) {
    const std::uint32_t end_vector = end / sizeof(Vector16);
    for (std::uint32_t at = begin / sizeof(Vector16) + thread; at < end_vector; at += threads) {
      const Vector16 value = Load::load(at_address<const Vector16>(addresses[0]) + at);
      for (std::uint32_t t = 0; t < item.target_count; ++t) {
        at_address<Vector16>(addresses[1 + t])[at] = value;
      }
    }
    done = end_vector * static_cast<std::uint32_t>(sizeof(Vector16));
  }
  for (std::uint32_t i = done + thread; i < end; i += threads) {
    const unsigned char value = Load::load(at_address<const unsigned char>(addresses[0] + i));
    for (std::uint32_t t = 0; t < item.target_count; ++t) {
      *at_address<unsigned char>(addresses[1 + t] + i) = value;
    }
  }
}

/// The item that holds `tile` of the batch.
GRADWIRE_ANYWHERE inline std::uint32_t item_of_tile(const Batch& batch,
                                                    std::uint32_t tile) noexcept {
  std::uint32_t low = 0;
  std::uint32_t high = batch.item_count;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    if (batch.items[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

template <class Ops, class Load>
GRADWIRE_ANYWHERE void fold_tile_by_redop(const BatchItem& item, const std::uint64_t* addresses,
                                          std::uint32_t tile, std::uint32_t thread,
                                          std::uint32_t threads) noexcept {
  switch (item.redop) {
    case RedOp::kMin:
      return fold_tile<Ops, RedOp::kMin, Load>(item, addresses, tile, thread, threads);
    case RedOp::kMax:
      return fold_tile<Ops, RedOp::kMax, Load>(item, addresses, tile, thread, threads);
    case RedOp::kProd:
      return fold_tile<Ops, RedOp::kProd, Load>(item, addresses, tile, thread, threads);
    case RedOp::kSum:
    case RedOp::kAvg:
      return fold_tile<Ops, RedOp::kSum, Load>(item, addresses, tile, thread, threads);
    case RedOp::kBand:
    case RedOp::kBor:
    case RedOp::kBxor:
    case RedOp::kPremulSum:
      break;  // the item is `general`, or has become a sum
  }
}

/// One thread's share of a tile of a batch with any datatypes and redops.
template <class Load>
GRADWIRE_ANYWHERE void run_tile(const Batch& batch, std::uint32_t tile, std::uint32_t thread,
                                std::uint32_t threads) noexcept {
  const BatchItem& item = batch.items[item_of_tile(batch, tile)];
  const std::uint64_t* const addresses = batch.addresses + item.first_address;
  tile -= item.first_tile;
  if (item.copies != 0) return copy_tile<Load>(item, addresses, tile, thread, threads);
  if (item.general != 0) return general_tile<Load>(item, addresses, tile, thread, threads);
  switch (item.datatype) {
    case DataType::kFloat32:
      return fold_tile_by_redop<ScalarFloat<float>, Load>(item, addresses, tile, thread, threads);
    case DataType::kFloat64:
      return fold_tile_by_redop<ScalarFloat<double>, Load>(item, addresses, tile, thread, threads);
    case DataType::kFloat16:
      return fold_tile_by_redop<ScalarHalf, Load>(item, addresses, tile, thread, threads);
    case DataType::kBfloat16:
      return fold_tile_by_redop<ScalarBfloat, Load>(item, addresses, tile, thread, threads);
    case DataType::kInt8:
      return fold_tile_by_redop<ScalarInteger<std::int8_t>, Load>(item, addresses, tile, thread,
                                                                  threads);
    case DataType::kInt32:
      return fold_tile_by_redop<ScalarInteger<std::int32_t>, Load>(item, addresses, tile, thread,
                                                                   threads);
    case DataType::kInt64:
      return fold_tile_by_redop<ScalarInteger<std::int64_t>, Load>(item, addresses, tile, thread,
                                                                   threads);
    case DataType::kUint8:
      return fold_tile_by_redop<ScalarInteger<std::uint8_t>, Load>(item, addresses, tile, thread,
                                                                   threads);
    case DataType::kBytes:
      break;
  }
}

[[nodiscard]] GRADWIRE_ANYWHERE inline std::uint32_t* crc_words_of(const Batch& batch,
                                                                   const BatchItem& item) noexcept {
  return at_address<std::uint32_t>(
      batch.addresses[item.first_address + item.source_count + item.target_count + item.factors]);
}

#if defined(__CUDA_ARCH__)
/// Combines the states of this lane and of the lane that is kLanes away, each of which covers
/// kLanes pieces.
template <std::uint32_t kLanes, std::uint32_t kPiece>
__device__ inline std::uint32_t join_lanes(std::uint32_t part, std::uint32_t lane) noexcept {
  const std::uint32_t other = __shfl_xor_sync(~0u, part, kLanes);
  const bool first = (lane & kLanes) == 0;
  return crc32c_move_by<kLanes * kPiece>(first ? part : other) ^ (first ? other : part);
}
#endif

/// One thread's share of the CRC of a tile's bytes, after all of the block's threads have run the
/// tile. All threads of a warp call it together. Pieces are counted from the tile's end, so that
/// only the first can be short: it needs no advancing, because the bytes that it lacks count as
/// zeros before it.
template <class Load>
GRADWIRE_ANYWHERE void crc_tile(const Batch& batch, std::uint32_t tile,
                                std::uint32_t thread) noexcept {
  const BatchItem& item = batch.items[item_of_tile(batch, tile)];
  if (item.crc == 0) return;
  tile -= item.first_tile;
  constexpr std::uint32_t kPiece = kTileBytes / kThreadsPerBlock;
  constexpr std::uint32_t kWarpBytes = kPiece * kThreadsPerWarp;
  const std::uint32_t tile_begin = tile * kTileBytes;
  const std::uint32_t left = item.bytes - tile_begin;
  const std::uint32_t length = left < kTileBytes ? left : kTileBytes;
  const std::uint32_t behind = (kThreadsPerBlock - 1 - thread) * kPiece;
  const std::uint32_t end = tile_begin + (length > behind ? length - behind : 0);
  const std::uint32_t begin = end - tile_begin > kPiece ? end - kPiece : tile_begin;
  const std::uint64_t bytes = batch.addresses[item.first_address + item.crc_of];
  std::uint32_t part = begin == 0 && end != 0 ? ~0u : 0;
  if (end - begin == kPiece && (bytes + begin) % sizeof(Vector16) == 0) {
    for (std::uint32_t v = 0; v < kPiece / sizeof(Vector16); ++v) {
      const Vector16 vector = Load::load(at_address<const Vector16>(bytes + begin) + v);
      GRADWIRE_FLATTEN
      for (std::uint32_t w = 0; w < 4; ++w) part = crc32c_bits<32>(part ^ vector.word[w]);
    }
  } else {
    for (std::uint32_t i = begin; i < end; ++i) {
      part = crc32c_bits<8>(part ^ Load::load(at_address<const unsigned char>(bytes + i)));
    }
  }
  // The CRC is linear: a piece contributes its own state, advanced by the bytes after it.
  const std::uint32_t warp = thread / kThreadsPerWarp;
  const std::uint32_t lane = thread % kThreadsPerWarp;
  std::uint32_t* const word = crc_words_of(batch, item) + tile * kCrcWordsPerTile + warp;
#if defined(__CUDA_ARCH__)
  part = join_lanes<1, kPiece>(part, lane);
  part = join_lanes<2, kPiece>(part, lane);
  part = join_lanes<4, kPiece>(part, lane);
  part = join_lanes<8, kPiece>(part, lane);
  part = join_lanes<16, kPiece>(part, lane);
  const bool is_last = lane == 0;  // one lane writes for all, which have the same value
#else
  if (lane != 0) part ^= crc32c_move_by<kPiece>(*word);
  *word = part;
  const bool is_last = lane == kThreadsPerWarp - 1;
#endif
  if (!is_last) return;
  for (std::uint32_t w = warp + 1; w < kCrcWordsPerTile; ++w) {
    part = crc32c_move_by<kWarpBytes>(part);
  }
  *word = part;
}

}  // namespace gradwire::reduce
