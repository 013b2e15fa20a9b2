// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// An all-reduce over two byte streams: one to the next rank of the ring, one from the rank before.
/// The streams have no headers, because both ends know the order. Nothing here uses a socket or a
/// queue pair, so that tests can move the bytes by themselves. One thread; an op allocates nothing
/// once it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/types.h"
#include "reduce/backend.h"

namespace gradwire::perf {

/// The same on every rank, except rank and memory.
struct OpSpec {
  std::uint16_t rank = 0;
  std::uint16_t nranks = 2;  ///< from 2
  std::uint64_t count = 0;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  const std::byte* input = nullptr;  ///< [count] of datatype
  std::byte* output = nullptr;       ///< likewise; the input itself, or disjoint from it

  [[nodiscard]] std::uint64_t bytes() const noexcept { return count * element_bytes(datatype); }
};

/// A chunk on its way: what both ends of a stream know of it without a header.
struct StreamPiece {
  std::uint64_t chunk = 0;  ///< in the partition; in an exchange the rank whose input it is
  std::uint32_t hop = 0;
  /// Where it lies once it has come, at the same place of each rank's memory; nullptr if it is put
  /// wherever there is room, since it is folded from there.
  std::byte* place = nullptr;
};

class StreamOp {
 public:
  virtual ~StreamOp() = default;
  /// The bytes that can be sent now; empty if something must be received first, or if all was sent.
  /// They do not change until every rank has them.
  [[nodiscard]] virtual std::span<const std::byte> to_send() noexcept = 0;
  virtual void sent(std::size_t bytes) noexcept = 0;
  /// Where to receive the next bytes; empty if all have come.
  [[nodiscard]] virtual std::span<std::byte> to_receive() noexcept = 0;
  virtual void received(std::size_t bytes) noexcept = 0;
  /// What to_send() is of; not if that is empty.
  [[nodiscard]] virtual StreamPiece sending() const noexcept = 0;
  /// What to_receive() is of; not if that is empty.
  [[nodiscard]] virtual StreamPiece receiving() const noexcept = 0;
  /// The piece that is being received, which has no place of its own, is put here.
  virtual void stage(std::byte* at) noexcept = 0;
  /// All was sent and received, and the output is there.
  [[nodiscard]] virtual bool finished() noexcept = 0;
};

/// The folds of lib/reduce, one chunk at a time.
class Folder {
 public:
  Folder();
  /// output = fold(first, second), divided for avg if `final`. `output` may be `second`.
  void fold(const OpSpec& spec, const std::byte* first, const std::byte* second, std::byte* output,
            std::uint64_t count, bool final) noexcept;

 private:
  std::unique_ptr<reduce::Backend> backend_;
};

}  // namespace gradwire::perf
