// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What one thread of a kernel does to one tile of a batch's item. CUDA's kernels consist of these
/// functions, and the emulated device uses them too, running a block's threads one after the other.
/// So tiles, tails and alignments are tested without a GPU.
///
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce/gpu/batch.h"
#include "reduce/gpu/crc_ops.h"
#include "reduce/gpu/general_fold.h"
#include "reduce/gpu/kernel_parts.h"
#include "reduce/gpu/plain_fold.h"
#include "reduce/gpu/shifted.h"

namespace gradwire::reduce {

/// Copies bits from one source to each target, if there is one; `count` is in bytes.
/// @param shared  as shifted_vectors() needs it.
template <class Load>
GRADWIRE_ANYWHERE void copy_tile(const BatchItem& item, const std::uint64_t* addresses,
                                 std::uint32_t tile, std::uint32_t thread, std::uint32_t threads,
                                 Vector16* shared) noexcept {
  if (item.target_count == 0) return;
  const std::uint32_t begin = tile * kTileBytes;
  const std::uint32_t left = item.count - begin;
  const std::uint32_t end = begin + (left < kTileBytes ? left : kTileBytes);
  const std::uint32_t first_vector = begin / kVectorBytes;
  const std::uint32_t end_vector = end / kVectorBytes;
  Rest rest{begin, begin, begin, end};
  if (item.alignment == kVectorBytes) {
    for (std::uint32_t at = first_vector + thread; at < end_vector; at += threads) {
      const Vector16 value = Load::load(at_address<const Vector16>(addresses[0]) + at);
      for (std::uint32_t t = 0; t < item.target_count; ++t) {
        at_address<Vector16>(addresses[1 + t])[at] = value;
      }
    }
    rest.skip_to = end_vector * kVectorBytes;
  } else if (end_vector >= first_vector + kShiftedFrom) {
    shifted_vectors<Load>(
        item, addresses, first_vector + 1, end_vector - 1, thread, threads, shared,
        []() noexcept { return VectorCopy{}; },
        [](const VectorCopy& copy) noexcept { return copy.vector; });
    rest.skip_from = begin + kVectorBytes;
    rest.skip_to = (end_vector - 1) * kVectorBytes;
  }
  for (std::uint32_t place = thread; place < rest.size(); place += threads) {
    const std::uint32_t i = rest.at(place);
    const unsigned char value = Load::load(at_address<const unsigned char>(addresses[0] + i));
    for (std::uint32_t t = 0; t < item.target_count; ++t) {
      *at_address<unsigned char>(addresses[1 + t] + i) = value;
    }
  }
}

template <class Ops, class Load>
GRADWIRE_ANYWHERE void fold_tile_by_redop(const BatchItem& item, const std::uint64_t* addresses,
                                          std::uint32_t tile, std::uint32_t thread,
                                          std::uint32_t threads, Vector16* shared) noexcept {
  switch (item.redop) {
    case RedOp::kMin:
      return fold_tile<Ops, RedOp::kMin, Load>(item, addresses, tile, thread, threads, shared);
    case RedOp::kMax:
      return fold_tile<Ops, RedOp::kMax, Load>(item, addresses, tile, thread, threads, shared);
    case RedOp::kProd:
      return fold_tile<Ops, RedOp::kProd, Load>(item, addresses, tile, thread, threads, shared);
    case RedOp::kSum:
    case RedOp::kAvg:
      return fold_tile<Ops, RedOp::kSum, Load>(item, addresses, tile, thread, threads, shared);
    case RedOp::kBand:
    case RedOp::kBor:
    case RedOp::kBxor:
    case RedOp::kPremulSum:
      break;  // the item is `general`, or has become a sum
  }
}

/// One thread's share of a tile of a batch with any datatypes and redops.
/// @param shared  as shifted_vectors() needs it.
template <class Load>
GRADWIRE_ANYWHERE void run_tile(const Batch& batch, std::uint32_t tile, std::uint32_t thread,
                                std::uint32_t threads, Vector16* shared = nullptr) noexcept {
  const BatchItem& item = batch.items[item_of_tile(batch, tile)];
  const std::uint64_t* const addresses = batch.addresses + item.first_address;
  tile -= item.first_tile;
  if (item.copies != 0) return copy_tile<Load>(item, addresses, tile, thread, threads, shared);
  if (item.general != 0) return general_tile<Load>(item, addresses, tile, thread, threads);
  switch (item.datatype) {
    case DataType::kFloat32:
      return fold_tile_by_redop<ScalarFloat<float>, Load>(item, addresses, tile, thread, threads,
                                                          shared);
    case DataType::kFloat64:
      return fold_tile_by_redop<ScalarFloat<double>, Load>(item, addresses, tile, thread, threads,
                                                           shared);
    case DataType::kFloat16:
      return fold_tile_by_redop<ScalarHalf, Load>(item, addresses, tile, thread, threads, shared);
    case DataType::kBfloat16:
      return fold_tile_by_redop<ScalarBfloat, Load>(item, addresses, tile, thread, threads, shared);
    case DataType::kInt8:
      return fold_tile_by_redop<ScalarInteger<std::int8_t>, Load>(item, addresses, tile, thread,
                                                                  threads, shared);
    case DataType::kInt32:
      return fold_tile_by_redop<ScalarInteger<std::int32_t>, Load>(item, addresses, tile, thread,
                                                                   threads, shared);
    case DataType::kInt64:
      return fold_tile_by_redop<ScalarInteger<std::int64_t>, Load>(item, addresses, tile, thread,
                                                                   threads, shared);
    case DataType::kUint8:
      return fold_tile_by_redop<ScalarInteger<std::uint8_t>, Load>(item, addresses, tile, thread,
                                                                   threads, shared);
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
