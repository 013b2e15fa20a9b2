// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The ring, chunk by chunk, cut through. Segment s starts with rank s; a chunk that arrives in its
/// reducing hops is folded with this rank's input into the output, and sent on from there while it
/// is still in the cache; in the gathering hops it is received into the output and sent on.
///
/// Order on a stream: in tick t each hop h sends chunk t - h * lag, the highest hop first. So a
/// chunk is sent on `lag` ticks after it arrived, and all hops share the stream from the first to
/// the last chunk. A rank therefore works on memory that it has just used, and neither direction
/// waits for a whole segment. After the first ticks, `lag` chunks of each hop are in flight.
#pragma once

#include <cstdint>
#include <optional>

#include "collective/shapes/partition.h"
#include "tcp/stream_op.h"

namespace gradwire::perf {

struct RingShape {
  std::uint32_t chunk_bytes = 64 * 1024;  ///< a multiple of 64
  std::uint32_t lag = 2;                  ///< from 1
};

/// One chunk on one stream.
struct StreamItem {
  std::uint32_t hop = 0;
  std::uint64_t tick = 0;
  std::uint64_t chunk = 0;  ///< in the partition
  friend bool operator==(const StreamItem&, const StreamItem&) = default;
};

/// Iterates over the chunks that rank `sender` sends, in order. Both ends of a stream use the same
/// order.
class StreamCursor {
 public:
  StreamCursor() = default;
  StreamCursor(const collective::Partition& partition, std::uint16_t sender, std::uint16_t nranks,
               std::uint32_t lag) noexcept;
  [[nodiscard]] bool at_end() const noexcept { return at_end_; }
  [[nodiscard]] const StreamItem& item() const noexcept { return item_; }  ///< not at the end
  void advance() noexcept;
  /// Whether the chunk of this tick and hop, if there is one, lies behind.
  [[nodiscard]] bool is_past(std::uint64_t tick, std::uint32_t hop) const noexcept;

 private:
  bool settle() noexcept;  ///< sets item_ for the tick and hop, if there is such a chunk
  void step() noexcept;

  const collective::Partition* partition_ = nullptr;
  std::uint16_t sender_ = 0;
  std::uint16_t nranks_ = 2;
  std::uint32_t lag_ = 1;
  std::uint64_t last_tick_ = 0;
  bool at_end_ = true;
  StreamItem item_;
};

class RingOp final : public StreamOp {
 public:
  /// @param staging  [shape.chunk_bytes], of this op until it is finished; unless each piece is
  ///                 told where it is staged.
  RingOp(const OpSpec& spec, const RingShape& shape, std::span<std::byte> staging,
         Folder& folder) noexcept;
  // The cursors point to the partition.
  RingOp(const RingOp&) = delete;
  RingOp& operator=(const RingOp&) = delete;

  [[nodiscard]] std::span<const std::byte> to_send() noexcept override;
  void sent(std::size_t bytes) noexcept override;
  [[nodiscard]] std::span<std::byte> to_receive() noexcept override;
  void received(std::size_t bytes) noexcept override;
  [[nodiscard]] StreamPiece sending() const noexcept override { return piece(sending_.item()); }
  [[nodiscard]] StreamPiece receiving() const noexcept override { return piece(receiving_.item()); }
  void stage(std::byte* at) noexcept override { staging_ = at; }
  [[nodiscard]] bool finished() noexcept override {
    return sending_.at_end() && receiving_.at_end();
  }

 private:
  [[nodiscard]] std::size_t bytes_of(std::uint64_t chunk) const noexcept;
  [[nodiscard]] StreamPiece piece(const StreamItem& item) const noexcept;

  const OpSpec spec_;
  const std::uint32_t lag_;
  const collective::Partition partition_;
  std::byte* staging_;
  Folder& folder_;
  StreamCursor sending_;
  StreamCursor receiving_;
  std::size_t sent_bytes_ = 0;      ///< of the chunk that is being sent
  std::size_t received_bytes_ = 0;  ///< of the chunk that is being received
};

}  // namespace gradwire::perf
