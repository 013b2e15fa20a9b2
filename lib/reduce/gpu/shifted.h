// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Folds and copies of arrays that are not all aligned to 16 bytes, by accesses that are. The
/// payload of a received packet lies behind 42 or 62 bytes of Ethernet, IP and UDP, so it never is;
/// and an access of one byte takes a request over the bus as one of 16 does.
///
/// A source's vector is put together from the two aligned ones that hold it. Results for a target
/// that is not aligned are gathered in memory that the block shares, and written from there by
/// vectors that are. The first and the last vector of a tile are left to the caller: so nothing
/// outside of a tile is touched, which another block may be writing.
///
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reduce/gpu/batch.h"
#include "reduce/gpu/kernel_parts.h"

namespace gradwire::reduce {

inline constexpr std::uint32_t kVectorBytes = sizeof(Vector16);
inline constexpr std::uint32_t kVectorsPerTile = kTileBytes / kVectorBytes;

GRADWIRE_ANYWHERE inline std::uint32_t past_aligned(std::uint64_t address) noexcept {
  return static_cast<std::uint32_t>(address % kVectorBytes);
}

/// @return the 16 bytes from `shift`, 0 to 15, on of two vectors that lie behind each other.
GRADWIRE_ANYWHERE inline Vector16 shifted(const Vector16& low, const Vector16& high,
                                          std::uint32_t shift) noexcept {
  const bool by_two = (shift & 8) != 0;
  const bool by_one = (shift & 4) != 0;
  const std::uint32_t bits = shift % 4 * 8;
  const std::uint32_t words[8] = {low.word[0],  low.word[1],  low.word[2],  low.word[3],
                                  high.word[0], high.word[1], high.word[2], high.word[3]};
  std::uint32_t twos[6];
  GRADWIRE_FLATTEN
  for (std::uint32_t w = 0; w < 6; ++w) twos[w] = by_two ? words[w + 2] : words[w];
  std::uint32_t ones[5];
  GRADWIRE_FLATTEN
  for (std::uint32_t w = 0; w < 5; ++w) ones[w] = by_one ? twos[w + 1] : twos[w];
  Vector16 out;
  GRADWIRE_FLATTEN
  for (std::uint32_t w = 0; w < 4; ++w) {
    const std::uint64_t both = std::uint64_t{ones[w + 1]} << 32 | ones[w];
    out.word[w] = static_cast<std::uint32_t>(both >> bits);
  }
  return out;
}

/// The two aligned vectors that hold a vector of an array, not yet put together: so that whoever
/// asks for several has them all on their way before it uses the first.
struct LoadedVector {
  Vector16 low;
  Vector16 high;

  template <class Load>
  GRADWIRE_ANYWHERE static LoadedVector load(std::uint64_t array, std::uint32_t at) noexcept {
    const std::uint32_t past = past_aligned(array);
    const auto* from = at_address<const Vector16>(array - past) + at;
    // Of an aligned one the same again, which no branch tells apart.
    return {Load::load(from), Load::load(from + (past != 0 ? 1 : 0))};
  }
  [[nodiscard]] GRADWIRE_ANYWHERE Vector16 joined(std::uint64_t array) const noexcept {
    return shifted(low, high, past_aligned(array));
  }
};

/// A tile with fewer whole vectors has none between its first and its last.
inline constexpr std::uint32_t kShiftedFrom = 3;

/// What of a tile no vector takes: [begin, skip_from) and [skip_to, end), in elements, or bytes of
/// a copy.
struct Rest {
  std::uint32_t begin = 0;
  std::uint32_t skip_from = 0;
  std::uint32_t skip_to = 0;
  std::uint32_t end = 0;

  [[nodiscard]] GRADWIRE_ANYWHERE std::uint32_t size() const noexcept {
    return skip_from - begin + end - skip_to;
  }
  [[nodiscard]] GRADWIRE_ANYWHERE std::uint32_t at(std::uint32_t place) const noexcept {
    const std::uint32_t i = begin + place;
    return i < skip_from ? i : i - skip_from + skip_to;
  }
};

/// What copies: the vector itself.
struct VectorCopy {
  Vector16 vector;
  GRADWIRE_ANYWHERE void begin(const Vector16& given) noexcept { vector = given; }
  GRADWIRE_ANYWHERE void add(const Vector16&) noexcept {}
};

#if defined(__CUDA_ARCH__)
/// Writes `count` vectors, which lie in the block's shared memory, to where no vector is aligned.
/// All of the block's threads call it together, and every one has written what it had to.
__device__ inline void store_shifted(std::uint64_t to, const Vector16* vectors, std::uint32_t count,
                                     std::uint32_t thread, std::uint32_t threads) noexcept {
  const std::uint32_t head = kVectorBytes - past_aligned(to);  // bytes to the first aligned one
  const auto* bytes = reinterpret_cast<const unsigned char*>(vectors);
  for (std::uint32_t at = thread; at + 1 < count; at += threads) {
    at_address<Vector16>(to + head)[at] = shifted(vectors[at], vectors[at + 1], head);
  }
  if (thread < kVectorBytes) {
    const std::uint32_t at = thread < head ? thread : (count - 1) * kVectorBytes + thread;
    at_address<unsigned char>(to)[at] = bytes[at];
  }
}
#endif

/// One thread's share of the vectors [begin, end) of an item's arrays, counted from their start.
/// @param end     more than begin. The vectors before and behind these belong to the same arrays.
/// @param make_fold  makes a OneFold, an AnyFold or a VectorCopy.
/// @param result     makes a vector of one of those.
/// @param shared     [kVectorsPerTile] of the block's shared memory; the host, whose threads run
///                   one after the other, needs none.
template <class Load, class MakeFold, class Result>
GRADWIRE_ANYWHERE void shifted_vectors(const BatchItem& item, const std::uint64_t* addresses,
                                       std::uint32_t begin, std::uint32_t end, std::uint32_t thread,
                                       std::uint32_t threads, [[maybe_unused]] Vector16* shared,
                                       MakeFold&& make_fold, Result&& result) noexcept {
  const std::uint64_t* const targets = addresses + item.source_count;
  const std::uint32_t last = item.source_count - 1u;
  [[maybe_unused]] std::uint32_t past = 0;
  for (std::uint32_t t = 0; t < item.target_count; ++t) past |= past_aligned(targets[t]);
  const auto store = [&](const Vector16& out, std::uint32_t at) noexcept {
    for (std::uint32_t t = 0; t < item.target_count; ++t) {
      if (past_aligned(targets[t]) == 0) {
        at_address<Vector16>(targets[t])[at] = out;
      } else {
#if !defined(__CUDA_ARCH__)
        std::memcpy(at_address<unsigned char>(targets[t]) + std::size_t{at} * kVectorBytes, &out,
                    sizeof out);
#endif
      }
    }
#if defined(__CUDA_ARCH__)
    if (past != 0) shared[at - begin] = out;
#endif
  };
  for (std::uint32_t at = begin + thread; at < end; at += threads * 2) {
    const bool whole = at + threads < end;  // else the second is past the end
    const std::uint32_t second = whole ? at + threads : at;
    LoadedVector now[2] = {LoadedVector::load<Load>(addresses[0], at),
                           LoadedVector::load<Load>(addresses[0], second)};
    // One source ahead; behind the last it is the last again, so that there is no branch.
    std::uint64_t source = addresses[last != 0 ? 1 : 0];
    LoadedVector next[2] = {LoadedVector::load<Load>(source, at),
                            LoadedVector::load<Load>(source, second)};
    auto first_fold = make_fold();
    auto second_fold = make_fold();
    first_fold.begin(now[0].joined(addresses[0]));
    second_fold.begin(now[1].joined(addresses[0]));
    for (std::uint32_t s = 1; s <= last; ++s) {
      now[0] = next[0];
      now[1] = next[1];
      source = addresses[s < last ? s + 1 : last];
      next[0] = LoadedVector::load<Load>(source, at);
      next[1] = LoadedVector::load<Load>(source, second);
      first_fold.add(now[0].joined(addresses[s]));
      second_fold.add(now[1].joined(addresses[s]));
    }
    store(result(first_fold), at);
    if (whole) store(result(second_fold), second);
  }
#if defined(__CUDA_ARCH__)
  if (past == 0) return;
  // All of the tile has been read: a target may be one of the sources.
  __syncthreads();
  for (std::uint32_t t = 0; t < item.target_count; ++t) {
    if (past_aligned(targets[t]) == 0) continue;
    store_shifted(targets[t] + std::uint64_t{begin} * kVectorBytes, shared, end - begin, thread,
                  threads);
  }
  __syncthreads();  // before the next tile's results
#endif
}

}  // namespace gradwire::reduce
