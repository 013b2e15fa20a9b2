// SPDX-License-Identifier: BSD-3-Clause
// What CUDA's kernels are made of, run as a block's threads one after the other.
#include "reduce/gpu/kernel_body.h"

#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "reduce/gpu/append.h"
#include "reference.h"
#include "support/seed.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using gradwire::test::awkward_element;
using gradwire::test::expected_fold;
using gradwire::test::load_element;
using gradwire::test::store_element;

constexpr std::array kPlainRedOps = {RedOp::kSum, RedOp::kMin, RedOp::kMax, RedOp::kProd};

void run(const Batch& batch) {
  for (std::uint32_t tile = 0; tile < batch.tile_count; ++tile) {
    for (std::uint32_t thread = 0; thread < kThreadsPerBlock; ++thread) {
      run_tile<PlainLoad>(batch, tile, thread, kThreadsPerBlock);
    }
  }
}

/// A batch of one fold of the arrays of `sources` into `target`.
Batch fold_batch(DataType type, RedOp redop, std::uint32_t divisor, std::uint32_t count,
                 const std::vector<std::byte*>& sources, std::byte* target) {
  Batch batch;
  BatchItem& item = batch.items[batch.item_count++];
  item.count = count;
  item.divisor = divisor;
  item.datatype = type;
  item.redop = redop;
  item.source_count = static_cast<std::uint16_t>(sources.size());
  item.target_count = 1;
  std::uint64_t bits = 0;
  for (std::byte* source : sources) {
    bits |= batch.addresses[batch.address_count++] = reinterpret_cast<std::uintptr_t>(source);
  }
  bits |= batch.addresses[batch.address_count++] = reinterpret_cast<std::uintptr_t>(target);
  const std::uint32_t width = element_bytes(type);
  item.alignment = bits % 16 == 0      ? std::uint8_t{16}
                   : bits % width == 0 ? static_cast<std::uint8_t>(width)
                                       : std::uint8_t{1};
  batch.tile_count = (count * width + kTileBytes - 1) / kTileBytes;
  return batch;
}

TEST_CASE("every fp16 and bf16 pattern folds with its partners to the reference's bits") {
  const std::array<std::uint16_t, 14> partners = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff,
                                                  0x0400, 0x3c00, 0xbc01, 0x4c00, 0x7bff,
                                                  0x7c00, 0xfc00, 0x7d55, 0x3f80};
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    std::vector<std::byte> patterns(65536 * 2 + 16);
    std::vector<std::byte> other(patterns.size());
    std::vector<std::byte> result(patterns.size());
    for (std::size_t i = 0; i < 65536; ++i) store_element(patterns.data(), i, 2, i);
    for (const std::uint16_t partner : partners) {
      for (std::size_t i = 0; i < 65536; ++i) store_element(other.data(), i, 2, partner);
      for (const RedOp redop : kPlainRedOps) {
        for (const std::uint32_t divisor : {1u, 3u}) {
          if (divisor != 1 && redop != RedOp::kSum) continue;
          run(fold_batch(type, redop, divisor, 65536, {patterns.data(), other.data()},
                         result.data()));
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < 65536; ++i) {
            const std::array<std::uint64_t, 2> values = {i, partner};
            const RedOp as = divisor != 1 ? RedOp::kAvg : redop;
            wrong += load_element(result.data(), i, 2) == expected_fold(type, as, values, divisor)
                         ? 0
                         : 1;
          }
          INFO(name_of(type) << " " << name_of(redop) << " with " << partner << " / " << divisor);
          CHECK(wrong == 0);
        }
      }
    }
  }
}

TEST_CASE("tiles, tails and alignments cover every element once and nothing else") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int type_value = 0; type_value < kDataTypeCount; ++type_value) {
    const auto type = static_cast<DataType>(type_value);
    const std::uint32_t width = element_bytes(type);
    for (const std::uint32_t bytes : {8u, 16u, 24u, 2040u, 4096u, 4104u, 8192u, 20'008u}) {
      for (const std::uint32_t shift : {0u, width, 1u}) {
        const std::uint32_t count = bytes / width;
        INFO(name_of(type) << " count " << count << " shift " << shift);
        std::vector<std::vector<std::byte>> arrays(3, std::vector<std::byte>(bytes + 64));
        for (auto& array : arrays) {
          for (std::byte& byte : array) byte = static_cast<std::byte>(random());
          for (std::uint32_t i = 0; i < count; ++i) {
            store_element(array.data() + 16 + shift, i, width, awkward_element(type, random));
          }
        }
        auto before = arrays;
        run(fold_batch(type, RedOp::kSum, 1, count,
                       {arrays[0].data() + 16 + shift, arrays[1].data() + 16 + shift},
                       arrays[2].data() + 16 + shift));
        for (std::uint32_t i = 0; i < count; ++i) {
          const std::array<std::uint64_t, 2> values = {
              load_element(before[0].data() + 16 + shift, i, width),
              load_element(before[1].data() + 16 + shift, i, width)};
          store_element(before[2].data() + 16 + shift, i, width,
                        expected_fold(type, RedOp::kSum, values, 1));
        }
        CHECK(arrays == before);
      }
    }
  }
}

TEST_CASE("the parts of a CRC come to that of the whole, whatever the length and alignment") {
  std::mt19937_64 random(4);
  std::vector<std::byte> packet(3 * kTileBytes + 64);
  for (std::byte& byte : packet) byte = static_cast<std::byte>(random());
  for (const std::uint32_t bytes :
       {1u, 31u, 32u, 33u, 1000u, 1024u, 1025u, 4095u, 4096u, 4097u, 8176u, 8192u, 12'288u}) {
    for (const std::uint32_t shift : {0u, 3u}) {
      const std::byte* const source = packet.data() + shift;
      std::vector<std::uint32_t> words(4 * kCrcWordsPerTile, 0x5a5a5a5a);
      Entry entry;
      entry.datatype = DataType::kUint8;
      entry.count = bytes;
      entry.crc = true;
      Batch batch;
      clear(batch);
      append(batch, entry, Fold{&source, nullptr, 1, 0, bytes}, words.data());
      for (std::uint32_t tile = 0; tile < batch.tile_count; ++tile) {
        for (std::uint32_t thread = 0; thread < kThreadsPerBlock; ++thread) {
          crc_tile<PlainLoad>(batch, tile, thread);
        }
      }
      std::uint32_t whole = ~0u;
      for (std::uint32_t i = 0; i < bytes; ++i) {
        whole ^= std::to_integer<std::uint32_t>(source[i]);
        for (int bit = 0; bit < 8; ++bit) whole = whole >> 1 ^ (whole % 2 != 0 ? 0x82f63b78 : 0);
      }
      INFO(bytes << " bytes, shifted by " << shift);
      CHECK(crc_of(batch, 0, words.data()) == ~whole);
    }
  }
}

TEST_CASE("a tile finds its item in a batch of many") {
  Batch batch;
  std::uint32_t tile = 0;
  for (std::uint32_t i = 0; i < Batch::kItems; ++i) {
    batch.items[batch.item_count++].first_tile = tile;
    tile += 1 + i % 3;
  }
  batch.tile_count = tile;
  std::uint32_t item = 0;
  for (std::uint32_t t = 0; t < tile; ++t) {
    while (item + 1 < batch.item_count && batch.items[item + 1].first_tile <= t) ++item;
    CHECK(item_of_tile(batch, t) == item);
  }
}

}  // namespace
