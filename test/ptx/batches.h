// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Batches of random entries, for any backend on the interpreter. For tests alone: allocates.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "in_order_cases.h"

namespace gradwire::ptx {

/// @return cases of any kind, of one datatype and redop if `uniform`; few elements, or a few tiles.
[[nodiscard]] std::vector<test::Case> random_cases(std::size_t count, bool uniform,
                                                   std::mt19937_64& random);

/// @return folds in order of 2 to 16 ranks, of any datatype and redop.
[[nodiscard]] std::vector<test::OrderCase> random_folds(std::size_t count, std::mt19937_64& random);

/// Submits cases at once, with the packets' CRCs, and waits for those that were taken.
/// @param folds  stand before them in the batch. What they fold is loaded before it.
/// @return what is wrong, or an empty string.
[[nodiscard]] std::string check_batch(const std::vector<test::Case>& cases,
                                      reduce::Backend& backend, test::Reach& reach,
                                      std::mt19937_64& random,
                                      const std::vector<test::OrderCase>& folds = {});

}  // namespace gradwire::ptx
