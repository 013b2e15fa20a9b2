// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the tests include and name, which Catch2 3 has in other headers and by other names. On the
/// include path only where Catch2 3 is found.
#pragma once

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_adapters.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#if defined(CATCH_CONFIG_RUNNER)
#include <catch2/catch_session.hpp>
#endif

namespace Catch {
namespace Matchers {

inline StringContainsMatcher Contains(const std::string& part) { return ContainsSubstring(part); }

}  // namespace Matchers

using Matchers::Contains;
using Matchers::EndsWith;
using Matchers::Matches;
using Matchers::StartsWith;

}  // namespace Catch

using Catch::Approx;
