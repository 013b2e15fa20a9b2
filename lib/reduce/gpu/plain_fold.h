// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The usual folds of a GPU: of a datatype, by one redop, rounded at the end. By vectors where all
/// addresses are aligned to 16 bytes, by shifted.h where they are not, and element by element at
/// the ends.
///
/// Only the thread that reads an element writes it, or all of a tile has been read before any of it
/// is written: so a target may be one of the sources.
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reduce/gpu/batch.h"
#include "reduce/gpu/kernel_parts.h"
#include "reduce/gpu/shifted.h"

namespace gradwire::reduce {

/// What a thread makes of the vectors of its sources.
template <class Ops>
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
  template <RedOp kOp>
  GRADWIRE_ANYWHERE void add(const Vector16& vector) noexcept {
    Stored values[kElements];
    std::memcpy(values, &vector, sizeof values);
    GRADWIRE_FLATTEN
    for (std::uint32_t k = 0; k < kElements; ++k) {
      acc[k] = combine_as<Ops, kOp>(acc[k], Ops::decode(values[k]));
    }
  }
  [[nodiscard]] GRADWIRE_ANYWHERE Vector16 end(bool divides,
                                               typename Ops::Divisor divisor) const noexcept {
    Stored values[kElements];
    GRADWIRE_FLATTEN
    for (std::uint32_t k = 0; k < kElements; ++k) {
      const typename Ops::Acc value = divides ? Ops::divide(acc[k], divisor) : acc[k];
      values[k] = Ops::round(Ops::seal(value));
    }
    Vector16 out;
    std::memcpy(&out, values, sizeof out);
    return out;
  }
};

/// The same for one redop.
template <class Ops, RedOp kOp>
struct OneFold {
  VectorFold<Ops> fold;

  GRADWIRE_ANYWHERE explicit OneFold(RedOp /*redop*/) noexcept {}
  GRADWIRE_ANYWHERE void begin(const Vector16& vector) noexcept { fold.begin(vector); }
  GRADWIRE_ANYWHERE void add(const Vector16& vector) noexcept { fold.template add<kOp>(vector); }
};

/// The same with a redop that is looked up for each vector, which memory hides.
template <class Ops>
struct AnyFold {
  RedOp redop;
  VectorFold<Ops> fold;

  GRADWIRE_ANYWHERE explicit AnyFold(RedOp given) noexcept : redop(given) {}
  GRADWIRE_ANYWHERE void begin(const Vector16& vector) noexcept { fold.begin(vector); }
  GRADWIRE_ANYWHERE void add(const Vector16& vector) noexcept {
    switch (redop) {
      case RedOp::kMin:
        return fold.template add<RedOp::kMin>(vector);
      case RedOp::kMax:
        return fold.template add<RedOp::kMax>(vector);
      case RedOp::kProd:
        return fold.template add<RedOp::kProd>(vector);
      default:
        return fold.template add<RedOp::kSum>(vector);
    }
  }
};

/// One thread's share of the vectors of a tile whose addresses are not all aligned to 16 bytes.
template <class Ops, class Load, class Fold>
GRADWIRE_ANYWHERE void fold_shifted(const BatchItem& item, const std::uint64_t* addresses,
                                    std::uint32_t begin, std::uint32_t end, std::uint32_t thread,
                                    std::uint32_t threads, Vector16* shared) noexcept {
  const typename Ops::Divisor divisor = Ops::divisor(item.divisor);
  const bool divides = item.redop == RedOp::kSum && item.divisor != 1;
  shifted_vectors<Load>(
      item, addresses, begin, end, thread, threads, shared,
      [&]() noexcept { return Fold(item.redop); },
      [&](const Fold& fold) noexcept { return fold.fold.end(divides, divisor); });
}
/// One function for all redops of a datatype.
template <class Ops, class Load>
GRADWIRE_APART GRADWIRE_ANYWHERE void fold_shifted_apart(
    const BatchItem& item, const std::uint64_t* addresses, std::uint32_t begin, std::uint32_t end,
    std::uint32_t thread, std::uint32_t threads, Vector16* shared) noexcept {
  fold_shifted<Ops, Load, AnyFold<Ops>>(item, addresses, begin, end, thread, threads, shared);
}

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
  const auto store = [&](const VectorFold<Ops>& fold, std::uint32_t at) noexcept {
    const Vector16 out = fold.end(divides, divisor);
    for (std::uint32_t t = 0; t < item.target_count; ++t) {
      at_address<Vector16>(targets[t])[at] = out;
    }
  };

  for (std::uint32_t at = first_vector + thread; at < end_vector; at += threads * kUnroll) {
    const bool whole = at + threads < end_vector;  // else the second is past the end
    const std::uint32_t second = whole ? at + threads : at;
    VectorFold<Ops> folds[kUnroll];
    if constexpr (kTwo) {
      const auto* a = at_address<const Vector16>(addresses[0]);
      const auto* b = at_address<const Vector16>(addresses[1]);
      const Vector16 vectors[4] = {Load::load(a + at), Load::load(a + second), Load::load(b + at),
                                   Load::load(b + second)};
      folds[0].begin(vectors[0]);
      folds[1].begin(vectors[1]);
      folds[0].template add<kOp>(vectors[2]);
      folds[1].template add<kOp>(vectors[3]);
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
        folds[0].template add<kOp>(now[0]);
        folds[1].template add<kOp>(now[1]);
      }
    }
    store(folds[0], at);
    if (whole) store(folds[1], second);
  }
}

/// One thread's share of elements, one at a time. `kAligned`: every address is a multiple of the
/// element's width; if not, elements are assembled from bytes.
template <class Ops, RedOp kOp, class Load, bool kAligned>
GRADWIRE_ANYWHERE void fold_elements(const BatchItem& item, const std::uint64_t* addresses,
                                     Rest rest, std::uint32_t thread,
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
  for (std::uint32_t place = thread; place < rest.size(); place += threads) {
    const std::uint64_t offset = std::uint64_t{rest.at(place)} * sizeof(Stored);
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

/// @param tile    of the item, from 0.
/// @param kAlone  one redop is all that the kernel has, so that it needs no function apart.
/// @param shared  as shifted_vectors() needs it.
template <class Ops, RedOp kOp, class Load, bool kAlone = false>
GRADWIRE_ANYWHERE void fold_tile(const BatchItem& item, const std::uint64_t* addresses,
                                 std::uint32_t tile, std::uint32_t thread, std::uint32_t threads,
                                 Vector16* shared) noexcept {
  constexpr std::uint32_t kWidth = sizeof(typename Ops::Stored);
  constexpr std::uint32_t kPerTile = kTileBytes / kWidth;
  constexpr std::uint32_t kPerVector = sizeof(Vector16) / kWidth;
  const std::uint32_t begin = tile * kPerTile;
  const std::uint32_t left = item.count - begin;
  const std::uint32_t end = begin + (left < kPerTile ? left : kPerTile);
  const std::uint32_t first_vector = begin / kPerVector;
  const std::uint32_t end_vector = end / kPerVector;
  Rest rest{begin, begin, begin, end};
  if (item.alignment == sizeof(Vector16)) {
    item.source_count == 2 ? fold_vectors<Ops, kOp, Load, true>(item, addresses, first_vector,
                                                                end_vector, thread, threads)
                           : fold_vectors<Ops, kOp, Load, false>(item, addresses, first_vector,
                                                                 end_vector, thread, threads);
    rest.skip_to = end_vector * kPerVector;
  } else if (end_vector >= first_vector + kShiftedFrom) {
    // Before the elements: vectors look at bytes of these, too.
    if constexpr (kAlone) {
      fold_shifted<Ops, Load, OneFold<Ops, kOp>>(item, addresses, first_vector + 1, end_vector - 1,
                                                 thread, threads, shared);
    } else {
      fold_shifted_apart<Ops, Load>(item, addresses, first_vector + 1, end_vector - 1, thread,
                                    threads, shared);
    }
    rest.skip_from = begin + kPerVector;
    rest.skip_to = (end_vector - 1) * kPerVector;
  }
  if (item.alignment >= kWidth) {
    fold_elements<Ops, kOp, Load, true>(item, addresses, rest, thread, threads);
  } else {
    fold_elements<Ops, kOp, Load, false>(item, addresses, rest, thread, threads);
  }
}

}  // namespace gradwire::reduce
