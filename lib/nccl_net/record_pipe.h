// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Records on a TCP connection, without waiting: what does not fit waits in a ring of fixed size,
/// and whoever wants to say more asks for room first. One lock guards it, the caller's. Nothing
/// allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "nccl_net/descriptor.h"
#include "nccl_net/messages.h"

namespace gradwire::nccl_net {

class RecordPipe {
 public:
  void use(Descriptor socket) { socket_ = std::move(socket); }
  /// Nothing more is said: the other end hears so.
  void finish();
  void close();
  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] bool has_room(std::uint32_t records) const {
    return kRecords - (written_ - sent_ + sizeof(Record) - 1) / sizeof(Record) >= records;
  }
  /// Room is there.
  void put(const Record& record);
  /// As much as the kernel takes.
  void flush();
  [[nodiscard]] bool is_empty() const { return written_ == sent_; }
  /// The next record that has come whole. @return false: there is none now, or never if ended().
  bool next(Record& record);
  /// The other end has closed it, or it is broken.
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  static constexpr std::uint64_t kRecords = 1024;
  static constexpr std::uint64_t kBytes = kRecords * sizeof(Record);

  Descriptor socket_;
  bool ended_ = false;
  std::array<unsigned char, kBytes> out_{};
  std::uint64_t written_ = 0;
  std::uint64_t sent_ = 0;
  std::array<unsigned char, 64 * sizeof(Record)> in_{};
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
};

}  // namespace gradwire::nccl_net
