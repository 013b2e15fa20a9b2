// SPDX-License-Identifier: BSD-3-Clause
#include "exchange_op.h"

#include <algorithm>
#include <cstring>

#include "collective/shapes/partition.h"

namespace gradwire::perf {

ExchangeOp::ExchangeOp(const OpSpec& spec, std::span<std::byte> gathered, Folder& folder) noexcept
    : spec_(spec), bytes_(spec.bytes()), gathered_(gathered), folder_(folder) {
  // If the op is in place, the output would overwrite this rank's input before the others are
  // folded onto it.
  if (spec.input == spec.output && bytes_ > 0) {
    std::memcpy(gathered_.data() + spec.rank * bytes_, spec.input, bytes_);
  }
}

const std::byte* ExchangeOp::input_of(std::uint32_t rank) const noexcept {
  if (rank == spec_.rank && spec_.input != spec_.output) return spec_.input;
  return gathered_.data() + rank * bytes_;
}

StreamPiece ExchangeOp::piece(std::uint32_t sender, std::uint64_t step) const noexcept {
  const std::uint64_t rank = (sender + spec_.nranks - step) % spec_.nranks;
  return {rank, static_cast<std::uint32_t>(step), gathered_.data() + rank * bytes_};
}

StreamPiece ExchangeOp::sending() const noexcept { return piece(spec_.rank, sent_bytes_ / bytes_); }

StreamPiece ExchangeOp::receiving() const noexcept {
  return piece(spec_.rank + spec_.nranks - 1u, received_bytes_ / bytes_);
}

std::span<const std::byte> ExchangeOp::to_send() noexcept {
  if (sent_bytes_ == (spec_.nranks - 1u) * bytes_) return {};
  const std::uint64_t step = sent_bytes_ / bytes_;
  const std::uint64_t done = sent_bytes_ % bytes_;
  // As much as has been received.
  const std::uint64_t ready =
      step == 0 ? bytes_ : std::min(bytes_, received_bytes_ - (step - 1) * bytes_);
  return {input_of(static_cast<std::uint32_t>(sending().chunk)) + done, ready - done};
}

void ExchangeOp::sent(std::size_t bytes) noexcept { sent_bytes_ += bytes; }

std::span<std::byte> ExchangeOp::to_receive() noexcept {
  if (received_bytes_ == (spec_.nranks - 1u) * bytes_) return {};
  const std::uint64_t done = received_bytes_ % bytes_;
  return {receiving().place + done, bytes_ - done};
}

void ExchangeOp::received(std::size_t bytes) noexcept { received_bytes_ += bytes; }

bool ExchangeOp::finished() noexcept {
  const std::uint64_t all = (spec_.nranks - 1u) * bytes_;
  if (sent_bytes_ < all || received_bytes_ < all) return false;
  if (!folded_) fold_all();
  folded_ = true;
  return true;
}

void ExchangeOp::fold_all() noexcept {
  // One chunk is a segment then: segments are all that matters here.
  const collective::Partition partition(spec_.count, spec_.datatype, spec_.nranks, 64);
  const std::uint64_t segment_elements = partition.segment_elements();
  for (std::uint64_t segment = 0; segment * segment_elements < spec_.count; ++segment) {
    const std::uint64_t first = segment * segment_elements;
    const std::uint64_t count = std::min(segment_elements, spec_.count - first);
    const std::uint64_t offset = first * element_bytes(spec_.datatype);
    const auto at = [&](std::uint64_t position) {
      return input_of(static_cast<std::uint32_t>((segment + position) % spec_.nranks)) + offset;
    };
    std::byte* const output = spec_.output + offset;
    folder_.fold(spec_, at(0), at(1), output, count, spec_.nranks == 2);
    for (std::uint32_t position = 2; position < spec_.nranks; ++position) {
      folder_.fold(spec_, at(position), output, output, count, position + 1 == spec_.nranks);
    }
  }
}

}  // namespace gradwire::perf
