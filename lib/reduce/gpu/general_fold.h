// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Folds of a GPU that are rare or small, by one function for each datatype: in order of ranks,
/// with a rounding after each, and to or from contributions that travel wide. The redop is looked
/// up for each vector, which memory hides. The sources of up to four ranks are asked for at once: a
/// small op waits for the bus, not for arithmetic.
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "reduce/gpu/batch.h"
#include "reduce/gpu/kernel_parts.h"

namespace gradwire::reduce {

/// How the elements of an array stand for accumulators: as the datatype has them, or wide.
template <class Ops>
struct NarrowForm {
  using Value = typename Ops::Stored;
  using Acc = typename Ops::Acc;
  GRADWIRE_ANYWHERE static Acc decode(Value value) noexcept { return Ops::decode(value); }
  GRADWIRE_ANYWHERE static Value encode(Acc acc) noexcept { return Ops::round(Ops::seal(acc)); }
};
template <class Ops>
struct WideForm {
  using Value = typename Ops::Acc;
  using Acc = typename Ops::Acc;
  GRADWIRE_ANYWHERE static Acc decode(Value value) noexcept { return value; }
  GRADWIRE_ANYWHERE static Value encode(Acc acc) noexcept { return Ops::seal(acc); }
};

template <std::uint32_t kBytes>
struct alignas(kBytes) Piece {
  unsigned char bytes[kBytes];
};
template <>
struct alignas(8) Piece<8> {
  std::uint32_t word[2];
};
template <>
struct alignas(16) Piece<16> {
  std::uint32_t word[4];
};

/// kCount elements that lie together, by one access if there are several, else byte by byte.
template <class Load, class Value, std::uint32_t kCount>
GRADWIRE_ANYWHERE inline void load_piece(std::uint64_t address, Value* values) noexcept {
  if constexpr (kCount > 1) {
    const auto piece = Load::load(at_address<const Piece<kCount * sizeof(Value)>>(address));
    std::memcpy(values, &piece, sizeof piece);
  } else {
    unsigned char bytes[sizeof(Value)];
    GRADWIRE_FLATTEN
    for (std::uint32_t b = 0; b < sizeof(Value); ++b) {
      bytes[b] = Load::load(at_address<const unsigned char>(address + b));
    }
    std::memcpy(values, bytes, sizeof bytes);
  }
}
template <class Value, std::uint32_t kCount>
GRADWIRE_ANYWHERE inline void store_piece(std::uint64_t address, const Value* values) noexcept {
  if constexpr (kCount > 1) {
    Piece<kCount * sizeof(Value)> piece;
    std::memcpy(&piece, values, sizeof piece);
    *at_address<Piece<kCount * sizeof(Value)>>(address) = piece;
  } else {
    unsigned char bytes[sizeof(Value)];
    std::memcpy(bytes, values, sizeof bytes);
    GRADWIRE_FLATTEN
    for (std::uint32_t b = 0; b < sizeof(Value); ++b) {
      at_address<unsigned char>(address)[b] = bytes[b];
    }
  }
}

/// acc[k] = acc[k] op next[k].
template <class Ops, RedOp kOp, std::uint32_t kCount>
GRADWIRE_ANYWHERE inline void combine_all(typename Ops::Acc* acc,
                                          const typename Ops::Acc* next) noexcept {
  GRADWIRE_FLATTEN
  for (std::uint32_t k = 0; k < kCount; ++k) acc[k] = combine_as<Ops, kOp>(next[k], acc[k]);
}
template <class Ops, std::uint32_t kCount>
GRADWIRE_ANYWHERE inline void combine_by(RedOp redop, typename Ops::Acc* acc,
                                         const typename Ops::Acc* next) noexcept {
  switch (redop) {
    case RedOp::kMin:
      return combine_all<Ops, RedOp::kMin, kCount>(acc, next);
    case RedOp::kMax:
      return combine_all<Ops, RedOp::kMax, kCount>(acc, next);
    case RedOp::kProd:
      return combine_all<Ops, RedOp::kProd, kCount>(acc, next);
    case RedOp::kSum:
    case RedOp::kAvg:
    case RedOp::kPremulSum:
      return combine_all<Ops, RedOp::kSum, kCount>(acc, next);
    case RedOp::kBand:
    case RedOp::kBor:
    case RedOp::kBxor:
      break;
  }
  if constexpr (std::is_integral_v<typename Ops::Acc>) {
    switch (redop) {
      case RedOp::kBand:
        return combine_all<Ops, RedOp::kBand, kCount>(acc, next);
      case RedOp::kBor:
        return combine_all<Ops, RedOp::kBor, kCount>(acc, next);
      default:
        return combine_all<Ops, RedOp::kBxor, kCount>(acc, next);
    }
  }
}

/// One thread's share of elements [begin, end), kCount at a time; the rest is left.
template <class Ops, class From, class To, class Load, std::uint32_t kCount>
GRADWIRE_ANYWHERE void general_pieces(const BatchItem& item, const std::uint64_t* addresses,
                                      std::uint32_t begin, std::uint32_t end, std::uint32_t thread,
                                      std::uint32_t threads) noexcept {
  using Acc = typename Ops::Acc;
  using Source = typename From::Value;
  using Target = typename To::Value;
  constexpr std::uint32_t kAhead = 4;
  const typename Ops::Divisor divisor = Ops::divisor(item.divisor);
  const std::uint32_t pieces = (end - begin) / kCount;
  for (std::uint32_t piece = thread; piece < pieces; piece += threads) {
    const std::uint64_t first = begin + std::uint64_t{piece} * kCount;
    Acc acc[kCount] = {};
    for (std::uint32_t s = 0; s < item.source_count; s += kAhead) {
      Source values[kAhead][kCount];
      GRADWIRE_FLATTEN
      for (std::uint32_t a = 0; a < kAhead; ++a) {
        // Past the end the last is loaded again, so that no branch stands between the loads.
        const std::uint32_t source = s + a < item.source_count ? s + a : item.source_count - 1u;
        load_piece<Load, Source, kCount>(addresses[source] + first * sizeof(Source), values[a]);
      }
      GRADWIRE_FLATTEN
      for (std::uint32_t a = 0; a < kAhead; ++a) {
        if (s + a >= item.source_count) break;
        Acc next[kCount];
        GRADWIRE_FLATTEN
        for (std::uint32_t k = 0; k < kCount; ++k) {
          next[k] = From::decode(values[a][k]);
          if constexpr (std::is_floating_point_v<Acc>) {
            if (s + a < item.factors) {
              const std::uint64_t bits = addresses[item.source_count + item.target_count + s + a];
              next[k] = Ops::prod(next[k], Ops::factor(std::bit_cast<double>(bits)));
            }
          }
          if (s + a == 0) {
            acc[k] = next[k];
          } else if (item.settles != 0) {  // as it left the rank before
            acc[k] = Ops::settle(acc[k]);
          }
        }
        if (s + a != 0) combine_by<Ops, kCount>(item.redop, acc, next);
      }
    }
    Target values[kCount];
    GRADWIRE_FLATTEN
    for (std::uint32_t k = 0; k < kCount; ++k) {
      values[k] = To::encode(item.divisor != 1 ? Ops::divide(acc[k], divisor) : acc[k]);
    }
    for (std::uint32_t t = 0; t < item.target_count; ++t) {
      store_piece<Target, kCount>(addresses[item.source_count + t] + first * sizeof(Target),
                                  values);
    }
  }
}

template <class Ops, class From, class To, class Load>
GRADWIRE_ANYWHERE void general_tile_of(const BatchItem& item, const std::uint64_t* addresses,
                                       std::uint32_t tile, std::uint32_t thread,
                                       std::uint32_t threads) noexcept {
  constexpr std::uint32_t kFrom = sizeof(typename From::Value);
  constexpr std::uint32_t kTo = sizeof(typename To::Value);
  constexpr std::uint32_t kPerPiece = sizeof(Vector16) / (kFrom > kTo ? kFrom : kTo);
  constexpr std::uint32_t kPerTile = kTileBytes / kTo;
  const std::uint32_t begin = tile * kPerTile;
  const std::uint32_t left = item.count - begin;
  const std::uint32_t end = begin + (left < kPerTile ? left : kPerTile);
  std::uint32_t done = begin;
  if (item.alignment == sizeof(Vector16)) {
    general_pieces<Ops, From, To, Load, kPerPiece>(item, addresses, begin, end, thread, threads);
    done = begin + (end - begin) / kPerPiece * kPerPiece;
  }
  general_pieces<Ops, From, To, Load, 1>(item, addresses, done, end, thread, threads);
}

template <class Ops, class Load>
GRADWIRE_ANYWHERE void general_tile_as(const BatchItem& item, const std::uint64_t* addresses,
                                       std::uint32_t tile, std::uint32_t thread,
                                       std::uint32_t threads) noexcept {
  using Narrow = NarrowForm<Ops>;
  if constexpr (sizeof(typename Ops::Stored) < sizeof(typename Ops::Acc)) {
    using AsAcc = WideForm<Ops>;
    if (item.wide == Wide::kSources) {
      return general_tile_of<Ops, AsAcc, Narrow, Load>(item, addresses, tile, thread, threads);
    }
    if (item.wide == Wide::kTargets) {
      return general_tile_of<Ops, Narrow, AsAcc, Load>(item, addresses, tile, thread, threads);
    }
  }
  general_tile_of<Ops, Narrow, Narrow, Load>(item, addresses, tile, thread, threads);
}

/// One thread's share of a tile of an item that is `general`.
template <class Load>
GRADWIRE_ANYWHERE void general_tile(const BatchItem& item, const std::uint64_t* addresses,
                                    std::uint32_t tile, std::uint32_t thread,
                                    std::uint32_t threads) noexcept {
  switch (item.datatype) {
    case DataType::kFloat32:
      return general_tile_as<ScalarOps::Float, Load>(item, addresses, tile, thread, threads);
    case DataType::kFloat64:
      return general_tile_as<ScalarOps::Double, Load>(item, addresses, tile, thread, threads);
    case DataType::kFloat16:
      return general_tile_as<ScalarOps::Half, Load>(item, addresses, tile, thread, threads);
    case DataType::kBfloat16:
      return general_tile_as<ScalarOps::Bfloat, Load>(item, addresses, tile, thread, threads);
    case DataType::kInt8:
      return general_tile_as<ScalarOps::Int8, Load>(item, addresses, tile, thread, threads);
    case DataType::kInt32:
      return general_tile_as<ScalarOps::Int32, Load>(item, addresses, tile, thread, threads);
    case DataType::kInt64:
      return general_tile_as<ScalarOps::Int64, Load>(item, addresses, tile, thread, threads);
    case DataType::kUint8:
      return general_tile_as<ScalarOps::Uint8, Load>(item, addresses, tile, thread, threads);
    case DataType::kBytes:
      break;
  }
}

}  // namespace gradwire::reduce
