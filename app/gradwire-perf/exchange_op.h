// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// For small ops: every rank's whole input goes round the ring, and each rank folds all of them
/// itself, each segment in the ring's order, so that the bits are the same. It takes half the
/// ring's hops, and with two ranks the same bytes: one message each way.
#pragma once

#include <cstdint>

#include "tcp/stream_op.h"

namespace gradwire::perf {

/// Whether an op is small enough for it: of n ranks each receives n-1 inputs, n/2 times what the
/// ring brings it.
/// @param most_bytes  of an input, if there are two ranks.
[[nodiscard]] inline bool is_exchanged(const OpSpec& spec, std::uint64_t most_bytes) noexcept {
  return spec.bytes() * (spec.nranks - 1) * spec.nranks / 2 <= most_bytes;
}

class ExchangeOp final : public StreamOp {
 public:
  /// @param gathered [nranks * spec.bytes()], used by this op until it is finished.
  ExchangeOp(const OpSpec& spec, std::span<std::byte> gathered, Folder& folder) noexcept;

  [[nodiscard]] std::span<const std::byte> to_send() noexcept override;
  void sent(std::size_t bytes) noexcept override;
  [[nodiscard]] std::span<std::byte> to_receive() noexcept override;
  void received(std::size_t bytes) noexcept override;
  [[nodiscard]] StreamPiece sending() const noexcept override;
  [[nodiscard]] StreamPiece receiving() const noexcept override;
  void stage(std::byte* /*at*/) noexcept override {}  // each input has a place
  [[nodiscard]] bool finished() noexcept override;

 private:
  [[nodiscard]] const std::byte* input_of(std::uint32_t rank) const noexcept;
  /// The input that goes over the stream from rank `sender` in a step.
  [[nodiscard]] StreamPiece piece(std::uint32_t sender, std::uint64_t step) const noexcept;
  void fold_all() noexcept;

  const OpSpec spec_;
  const std::uint64_t bytes_;  ///< of one input
  const std::span<std::byte> gathered_;
  Folder& folder_;
  /// Each stream carries nranks-1 inputs: this rank's own, and then those that it received, in
  /// order.
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t received_bytes_ = 0;
  bool folded_ = false;
};

}  // namespace gradwire::perf
