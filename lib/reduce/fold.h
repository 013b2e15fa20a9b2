// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The fold over whole arrays, written once for every instruction set. The file that includes this
/// header defines GRADWIRE_KERNEL_TARGET first (empty, or a target attribute): functions with
/// different targets cannot be one template, so each including file gets its own, in an anonymous
/// namespace. Lambdas are avoided below because they do not inherit the attribute.
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#ifndef GRADWIRE_KERNEL_TARGET
#error "define GRADWIRE_KERNEL_TARGET before including fold.h"
#endif

#include <array>
#include <cstddef>
#include <utility>

#include "reduce/cpu_kernels.h"

/// A strip has to stay in registers, and at -O2 gcc unrolls loops only if told to.
#if defined(__clang__)
#define GRADWIRE_UNROLL _Pragma("clang loop unroll_count(8)")
#else
#define GRADWIRE_UNROLL _Pragma("GCC unroll 8")
#endif

namespace gradwire::reduce {
namespace {

/// Accumulators of one block, on the stack: a block of every source is folded in turn, so that each
/// source is read in runs long enough for the prefetcher and fp16 and bf16 are rounded once.
inline constexpr std::size_t kBlockBytes = 1024;
/// Vectors that are computed before the first of them is stored. If one of two targets crosses
/// cache lines, alternating stores cost twice as much as runs of stores to each (measured on Zen
/// 3).
inline constexpr std::size_t kStrip = 8;

template <class Ops, RedOp kOp>
GRADWIRE_KERNEL_TARGET inline __attribute__((always_inline)) typename Ops::Acc combine(
    typename Ops::Acc a, typename Ops::Acc b) noexcept {
  if constexpr (kOp == RedOp::kMin) {
    return Ops::min(a, b);
  } else if constexpr (kOp == RedOp::kMax) {
    return Ops::max(a, b);
  } else if constexpr (kOp == RedOp::kProd) {
    return Ops::prod(a, b);
  } else if constexpr (kOp == RedOp::kBand) {
    return Ops::band(a, b);
  } else if constexpr (kOp == RedOp::kBor) {
    return Ops::bor(a, b);
  } else if constexpr (kOp == RedOp::kBxor) {
    return Ops::bxor(a, b);
  } else {
    static_assert(kOp == RedOp::kSum || kOp == RedOp::kAvg || kOp == RedOp::kPremulSum);
    return Ops::sum(a, b);
  }
}

/// Turns an accumulator into the value to store: divides it, makes NaNs canonical, rounds.
template <class Ops, bool kDivide>
GRADWIRE_KERNEL_TARGET inline __attribute__((always_inline)) typename Ops::Stored finish(
    typename Ops::Acc value, [[maybe_unused]] typename Ops::Divisor divisor) noexcept {
  if constexpr (kDivide) {
    value = Ops::divide(value, divisor);
  }
  return Ops::round(Ops::seal(value));
}

/// Two sources, one or two targets: the hop of a ring with one member a rank. Straight from memory
/// to memory. @return elements done, a multiple of Ops::kElements.
template <class Ops, RedOp kOp, bool kDivide, bool kTwoTargets>
GRADWIRE_KERNEL_TARGET std::size_t fold_pair(const Fold& fold, std::size_t first) noexcept {
  const std::byte* const a = fold.sources[0];
  const std::byte* const b = fold.sources[1];
  std::byte* const target = fold.targets[0];
  [[maybe_unused]] std::byte* const second_target = kTwoTargets ? fold.targets[1] : nullptr;
  const typename Ops::Divisor divisor = Ops::divisor(fold.divisor);
  const std::size_t vectors = (fold.count - first) / Ops::kElements;
  const std::size_t end = (first / Ops::kElements + vectors) * Ops::kBytes;
  std::size_t at = first / Ops::kElements * Ops::kBytes;
  for (; end - at >= kStrip * Ops::kBytes; at += kStrip * Ops::kBytes) {
    typename Ops::Stored strip[kStrip];
    GRADWIRE_UNROLL
    for (std::size_t k = 0; k < kStrip; ++k) {
      const std::size_t here = at + k * Ops::kBytes;
      strip[k] = finish<Ops, kDivide>(combine<Ops, kOp>(Ops::load(a + here), Ops::load(b + here)),
                                      divisor);
    }
    GRADWIRE_UNROLL
    for (std::size_t k = 0; k < kStrip; ++k) {
      Ops::store(target + at + k * Ops::kBytes, strip[k]);
    }
    if constexpr (kTwoTargets) {
      GRADWIRE_UNROLL
      for (std::size_t k = 0; k < kStrip; ++k) {
        Ops::store(second_target + at + k * Ops::kBytes, strip[k]);
      }
    }
  }
  for (; at != end; at += Ops::kBytes) {
    const typename Ops::Stored value =
        finish<Ops, kDivide>(combine<Ops, kOp>(Ops::load(a + at), Ops::load(b + at)), divisor);
    Ops::store(target + at, value);
    if constexpr (kTwoTargets) {
      Ops::store(second_target + at, value);
    }
  }
  return first + vectors * Ops::kElements;
}

/// A vector of the fold's source s; of a premul-sum times its factor, if it has one.
template <class Ops, RedOp kOp>
GRADWIRE_KERNEL_TARGET inline __attribute__((always_inline)) typename Ops::Acc load_source(
    const Fold& fold, [[maybe_unused]] std::size_t s, const std::byte* from) noexcept {
  const typename Ops::Acc value = Ops::load(from);
  if constexpr (kOp == RedOp::kPremulSum) {
    if (s < fold.factor_count) return Ops::prod(value, Ops::factor(fold.factors[s]));
  }
  return value;
}

/// Any number of sources and targets. @return as fold_pair.
template <class Ops, RedOp kOp, bool kDivide>
GRADWIRE_KERNEL_TARGET std::size_t fold_blocks(const Fold& fold, std::size_t first) noexcept {
  constexpr std::size_t kBlock = kBlockBytes / sizeof(typename Ops::Acc);
  static_assert(kBlock % kStrip == 0);
  typename Ops::Acc block[kBlock];
  const typename Ops::Divisor divisor = Ops::divisor(fold.divisor);
  std::size_t vectors_left = (fold.count - first) / Ops::kElements;
  const std::size_t done = first + vectors_left * Ops::kElements;
  std::size_t at = first / Ops::kElements * Ops::kBytes;
  while (vectors_left > 0) {
    const std::size_t vectors = vectors_left < kBlock ? vectors_left : kBlock;
    const std::byte* source = fold.sources[0] + at;
    for (std::size_t i = 0; i < vectors; ++i) {
      block[i] = load_source<Ops, kOp>(fold, 0, source + i * Ops::kBytes);
    }
    for (std::size_t s = 1; s < fold.source_count; ++s) {
      source = fold.sources[s] + at;
      GRADWIRE_UNROLL
      for (std::size_t i = 0; i < vectors; ++i) {
        block[i] =
            combine<Ops, kOp>(block[i], load_source<Ops, kOp>(fold, s, source + i * Ops::kBytes));
      }
    }
    // Every source of the block is read: from here on a target may overwrite it.
    for (std::size_t i = 0; i < vectors; i += kStrip) {
      const std::size_t length = vectors - i < kStrip ? vectors - i : kStrip;
      typename Ops::Stored strip[kStrip];
      for (std::size_t k = 0; k < length; ++k) {
        strip[k] = finish<Ops, kDivide>(block[i + k], divisor);
      }
      for (std::size_t t = 0; t < fold.target_count; ++t) {
        for (std::size_t k = 0; k < length; ++k) {
          Ops::store(fold.targets[t] + at + (i + k) * Ops::kBytes, strip[k]);
        }
      }
    }
    at += vectors * Ops::kBytes;
    vectors_left -= vectors;
  }
  return done;
}

template <class Ops, RedOp kOp, bool kDivide>
GRADWIRE_KERNEL_TARGET inline std::size_t fold_with(const Fold& fold, std::size_t first) noexcept {
  if constexpr (kOp == RedOp::kPremulSum) return fold_blocks<Ops, kOp, kDivide>(fold, first);
  if (fold.source_count == 2 && fold.target_count == 1) {
    return fold_pair<Ops, kOp, kDivide, false>(fold, first);
  }
  if (fold.source_count == 2 && fold.target_count == 2) {
    return fold_pair<Ops, kOp, kDivide, true>(fold, first);
  }
  return fold_blocks<Ops, kOp, kDivide>(fold, first);
}

/// Folds whole vectors with `Ops`, and the remaining elements with `Tail`, one by one.
template <class Ops, class Tail, RedOp kOp>
GRADWIRE_KERNEL_TARGET void fold_all(const Fold& fold) noexcept {
  static_assert(Tail::kElements == 1);
  // min, max and prod never divide, whatever the divisor.
  constexpr bool kMayDivide = kOp == RedOp::kSum;
  if (kMayDivide && fold.divisor != 1) {
    const std::size_t done = fold_with<Ops, kOp, kMayDivide>(fold, 0);
    fold_with<Tail, kOp, kMayDivide>(fold, done);
  } else {
    const std::size_t done = fold_with<Ops, kOp, false>(fold, 0);
    fold_with<Tail, kOp, false>(fold, done);
  }
}

/// One vector of a source of a fold in order.
template <class Ops, bool kWide>
struct Source {
  static constexpr std::size_t kBytes = Ops::kBytes;
  GRADWIRE_KERNEL_TARGET static inline __attribute__((always_inline)) typename Ops::Acc load(
      const std::byte* from) noexcept {
    return Ops::load(from);
  }
};
template <class Ops>
struct Source<Ops, true> {
  static constexpr std::size_t kBytes = Ops::kWideBytes;
  GRADWIRE_KERNEL_TARGET static inline __attribute__((always_inline)) typename Ops::Acc load(
      const std::byte* from) noexcept {
    return Ops::load_wide(from);
  }
};

/// Rounded after each source. Strips go through all sources in registers. @return as fold_pair.
template <class Ops, RedOp kOp, bool kDivide, bool kWide>
GRADWIRE_KERNEL_TARGET std::size_t fold_sources(const Fold& fold, std::size_t first) noexcept {
  using From = Source<Ops, kWide>;
  const typename Ops::Divisor divisor = Ops::divisor(fold.divisor);
  const std::size_t end = fold.count / Ops::kElements;
  // What the first rank sends on is rounded; one that is not wide is already.
  const bool settles_first = kWide && fold.source_count > 1;
  std::size_t at = first / Ops::kElements;  // vector
  for (; end - at >= kStrip; at += kStrip) {
    typename Ops::Acc strip[kStrip];
    const std::byte* source = fold.sources[0] + at * From::kBytes;
    GRADWIRE_UNROLL
    for (std::size_t k = 0; k < kStrip; ++k) {
      const typename Ops::Acc value = From::load(source + k * From::kBytes);
      strip[k] = settles_first ? Ops::settle(value) : value;
    }
    std::size_t s = 1;
    for (; s + 1 < fold.source_count; ++s) {
      source = fold.sources[s] + at * From::kBytes;
      GRADWIRE_UNROLL
      for (std::size_t k = 0; k < kStrip; ++k) {
        strip[k] = Ops::settle(combine<Ops, kOp>(From::load(source + k * From::kBytes), strip[k]));
      }
    }
    if (s < fold.source_count) {  // The last one, which finish() rounds.
      source = fold.sources[s] + at * From::kBytes;
      GRADWIRE_UNROLL
      for (std::size_t k = 0; k < kStrip; ++k) {
        strip[k] = combine<Ops, kOp>(From::load(source + k * From::kBytes), strip[k]);
      }
    }
    // Every source of the strip is read: from here on a target may overwrite it.
    typename Ops::Stored stored[kStrip];
    GRADWIRE_UNROLL
    for (std::size_t k = 0; k < kStrip; ++k) stored[k] = finish<Ops, kDivide>(strip[k], divisor);
    for (std::size_t t = 0; t < fold.target_count; ++t) {
      std::byte* const target = fold.targets[t] + at * Ops::kBytes;
      GRADWIRE_UNROLL
      for (std::size_t k = 0; k < kStrip; ++k) Ops::store(target + k * Ops::kBytes, stored[k]);
    }
  }
  for (; at < end; ++at) {
    typename Ops::Acc value = From::load(fold.sources[0] + at * From::kBytes);
    if (settles_first) value = Ops::settle(value);
    for (std::size_t s = 1; s < fold.source_count; ++s) {
      value = combine<Ops, kOp>(From::load(fold.sources[s] + at * From::kBytes), value);
      if (s + 1 < fold.source_count) value = Ops::settle(value);
    }
    const typename Ops::Stored stored = finish<Ops, kDivide>(value, divisor);
    for (std::size_t t = 0; t < fold.target_count; ++t) {
      Ops::store(fold.targets[t] + at * Ops::kBytes, stored);
    }
  }
  return end * Ops::kElements;
}

template <class Ops, class Tail, RedOp kOp, bool kDivide, bool kWide>
GRADWIRE_KERNEL_TARGET inline void fold_sources_all(const Fold& fold) noexcept {
  const std::size_t done = fold_sources<Ops, kOp, kDivide, kWide>(fold, 0);
  fold_sources<Tail, kOp, kDivide, kWide>(fold, done);
}

/// @param kHasWide  whether the datatype's contributions have a wide form.
template <class Ops, class Tail, RedOp kOp, bool kHasWide>
GRADWIRE_KERNEL_TARGET void fold_in_order(const Fold& fold) noexcept {
  constexpr bool kMayDivide = kOp == RedOp::kSum;
  const bool divides = kMayDivide && fold.divisor != 1;
  if (kHasWide && fold.wide) {
    divides ? fold_sources_all<Ops, Tail, kOp, kMayDivide, kHasWide>(fold)
            : fold_sources_all<Ops, Tail, kOp, false, kHasWide>(fold);
  } else {
    divides ? fold_sources_all<Ops, Tail, kOp, kMayDivide, false>(fold)
            : fold_sources_all<Ops, Tail, kOp, false, false>(fold);
  }
}

/// What 16-bit sources come to, in fp32. @return as fold_pair.
template <class Ops, RedOp kOp>
GRADWIRE_KERNEL_TARGET std::size_t fold_vectors_wide(const Fold& fold, std::size_t first) noexcept {
  std::size_t at = first / Ops::kElements;  // vector
  const std::size_t end = fold.count / Ops::kElements;
  for (; at < end; ++at) {
    typename Ops::Acc sum = load_source<Ops, kOp>(fold, 0, fold.sources[0] + at * Ops::kBytes);
    for (std::size_t s = 1; s < fold.source_count; ++s) {
      sum = combine<Ops, kOp>(sum,
                              load_source<Ops, kOp>(fold, s, fold.sources[s] + at * Ops::kBytes));
    }
    sum = Ops::seal(sum);
    for (std::size_t t = 0; t < fold.target_count; ++t) {
      Ops::store_wide(fold.targets[t] + at * Ops::kWideBytes, sum);
    }
  }
  return end * Ops::kElements;
}

template <class Ops, class Tail, RedOp kOp>
GRADWIRE_KERNEL_TARGET void fold_wide(const Fold& fold) noexcept {
  const std::size_t done = fold_vectors_wide<Ops, kOp>(fold, 0);
  fold_vectors_wide<Tail, kOp>(fold, done);
}

/// Functions of one datatype, by redop; nullptr if it cannot be reduced so. `kOf<op>` is one.
template <class Ops, class Tail>
struct Plain {
  template <RedOp kOp>
  static constexpr FoldFunction kOf = &fold_all<Ops, Tail, kOp>;
};
template <class Ops, class Tail>
struct WideTargets {
  template <RedOp kOp>
  static constexpr FoldFunction kOf = &fold_wide<Ops, Tail, kOp>;
};
template <class Ops, class Tail, bool kHasWide>
struct InOrder {
  template <RedOp kOp>
  static constexpr FoldFunction kOf =  // the contributions of a premul-sum have their factors
      &fold_in_order<Ops, Tail, kOp == RedOp::kPremulSum ? RedOp::kSum : kOp, kHasWide>;
};

/// The entry of a redop in a row; it stays nullptr if the row's datatype is not reduced so.
template <class Functions, bool kHasBits, RedOp kOp>
constexpr FoldFunction entry_of() noexcept {
  if constexpr (kOp == RedOp::kAvg) {
    return Functions::template kOf<RedOp::kSum>;
  } else if constexpr (kHasBits ? kOp != RedOp::kPremulSum : !is_bitwise(kOp)) {
    return Functions::template kOf<kOp>;
  } else {
    return nullptr;
  }
}
/// A row of a kernel table: `Functions` by redop.
template <class Functions, bool kHasBits>
constexpr std::array<FoldFunction, kRedOpCount> row_of() noexcept {
  return []<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array<FoldFunction, kRedOpCount>{
        entry_of<Functions, kHasBits, kRedOps[kIndex]>()...};
  }
  (std::make_index_sequence<kRedOpCount>{});
}
template <class Ops, class Tail, bool kHasBits>
constexpr auto fold_row() noexcept {
  return row_of<Plain<Ops, Tail>, kHasBits>();
}
template <class Ops, class Tail>
constexpr auto fold_wide_row() noexcept {
  return row_of<WideTargets<Ops, Tail>, false>();
}
template <class Ops, class Tail, bool kHasWide, bool kHasBits>
constexpr auto in_order_row() noexcept {
  return row_of<InOrder<Ops, Tail, kHasWide>, kHasBits>();
}

/// All tables. `Vectors` and `Elements` name the operations of each datatype; the rows are in the
/// order of DataType's values.
template <class Vectors, class Elements>
constexpr Kernels kernels_of(const char* name, CopyFunction streaming_copy) noexcept {
  using V = Vectors;
  using E = Elements;
  const FoldTable fold = {fold_row<typename V::Float, typename E::Float, false>(),
                          fold_row<typename V::Double, typename E::Double, false>(),
                          fold_row<typename V::Half, typename E::Half, false>(),
                          fold_row<typename V::Bfloat, typename E::Bfloat, false>(),
                          fold_row<typename V::Int8, typename E::Int8, true>(),
                          fold_row<typename V::Int32, typename E::Int32, true>(),
                          fold_row<typename V::Int64, typename E::Int64, true>(),
                          fold_row<typename V::Uint8, typename E::Uint8, true>()};
  FoldTable wide = fold;
  wide[static_cast<std::size_t>(DataType::kFloat16)] =
      fold_wide_row<typename V::Half, typename E::Half>();
  wide[static_cast<std::size_t>(DataType::kBfloat16)] =
      fold_wide_row<typename V::Bfloat, typename E::Bfloat>();
  const FoldTable in_order = {in_order_row<typename V::Float, typename E::Float, false, false>(),
                              in_order_row<typename V::Double, typename E::Double, false, false>(),
                              in_order_row<typename V::Half, typename E::Half, true, false>(),
                              in_order_row<typename V::Bfloat, typename E::Bfloat, true, false>(),
                              in_order_row<typename V::Int8, typename E::Int8, false, true>(),
                              in_order_row<typename V::Int32, typename E::Int32, false, true>(),
                              in_order_row<typename V::Int64, typename E::Int64, false, true>(),
                              in_order_row<typename V::Uint8, typename E::Uint8, false, true>()};
  return {name, fold, wide, in_order, streaming_copy};
}

}  // namespace
}  // namespace gradwire::reduce
