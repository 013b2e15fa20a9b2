// SPDX-License-Identifier: BSD-3-Clause
// Made by `test/reference/tile_shares.py make`, in exact fractions. Not by hand.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace gradwire::test {

struct ShareVector {
  std::uint16_t nranks;
  std::vector<std::uint32_t> rates;
  std::vector<std::uint64_t> shares;
  std::vector<std::uint64_t> begins;  ///< digests, by kShareUnits
};
/// Of many ranks, by digests; rate i is 10 x (1 + ((7919 i + 13) i mod 40)).
struct LargeShareVector {
  std::uint16_t nranks;
  std::uint16_t all_ranks;
  std::uint64_t shares;
  std::uint64_t begins;  ///< of the last of kShareUnits
};

// clang-format off
inline constexpr std::array<std::uint64_t, 5> kShareUnits = {
    1u, 7u, 1000u, 1048577u, 4398046511103u};
inline const std::vector<ShareVector> kShareVectors = {
    {4, {100u, 100u, 100u, 100u, 100u, 100u},
     {429522944u,
      429522944u,
      429522944u,
      429522944u,
      1288503296u,
      1288503296u},
     {0u,
      6575724519154295757u,
      17509633685277928612u,
      1931875491458116912u,
      7675227288808978108u},
    },
    {4, {10u, 25u, 10u, 40u},
     {0u,
      1156349952u,
      0u,
      3138650112u},
     {0u,
      11400714819323198486u,
      4632770162154824478u,
      3234894510727277828u,
      10650467127738519512u},
    },
    {4, {100u, 100u, 100u, 1u, 400u},
     {0u,
      0u,
      0u,
      0u,
      4294967296u},
     {0u,
      0u,
      0u,
      0u,
      0u},
    },
    {3, {4294967295u, 1u, 7u},
     {4294967296u,
      0u,
      0u},
     {11400714819323198486u,
      6018027440424182938u,
      626981770695587312u,
      4165669544316795926u,
      10068041361375200234u},
    },
    {3, {1u, 1u, 1u, 1u, 1u, 1u},
     {0u,
      0u,
      0u,
      1431655765u,
      1431655765u,
      1431655765u},
     {0u,
      4354685564936845358u,
      14855499724167014891u,
      6085909351030183588u,
      9504929944377087651u},
    },
    {5, {10u, 20u, 40u, 100u, 100u, 400u, 25u},
     {0u,
      0u,
      0u,
      141595989u,
      141595989u,
      3775804211u,
      235987763u},
     {0u,
      6u,
      1484934928150084646u,
      8033054273107768557u,
      11307398186575939984u},
    },
    {3, {1u, 1u, 1u, 1000u},
     {0u,
      0u,
      0u,
      4294967296u},
     {0u,
      0u,
      0u,
      0u,
      0u},
    },
    {9, {10u, 10u, 10u, 10u, 10u, 10u, 10u, 10u, 11u},
     {465232403u,
      465232403u,
      465232403u,
      465232403u,
      465232403u,
      465232403u,
      465232403u,
      465232403u,
      573112320u},
     {0u,
      16793324838633498080u,
      17032615302666298931u,
      9150902675148617625u,
      13482868412270424888u},
    },
};
inline const std::vector<LargeShareVector> kLargeShareVectors = {
    {1000, 1000, 6580569589223765260u, 12448184883275763635u},
    {1000, 1024, 10500842125880296403u, 4195198488621236578u},
    {64, 1000, 14206529965872116580u, 2629108864357681646u},
    {3, 1024, 12959132208252369223u, 366888625846236109u},
};
// clang-format on

}  // namespace gradwire::test
