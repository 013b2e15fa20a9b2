// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whether the next rank on the ring calls what this rank calls. Packets of an op show that, but
/// ops of no elements and barriers send none, and some others none to where it would be seen. So
/// each acknowledgement says what one op is there, and a digest of all ops up to it: equal digests
/// mean equal calls up to there. Where digests differ, the first op that differs is searched for by
/// halves, since the next rank tells of the op that it is asked for.
///
/// One lane owns it; it allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "collective/ops/op_table.h"
#include "wire/packet.h"

namespace gradwire::collective {

class CallWatch {
 public:
  explicit CallWatch(const OpTable& ops) noexcept : ops_(ops) {}

  /// What the next rank said of an op that it has posted.
  /// @param posted  the last that it has posted.
  void hear(const wire::SaidCall& said, std::uint64_t posted) noexcept;
  /// An op was posted here: it may have been heard of before.
  void on_posted(std::uint64_t op_seq) noexcept;
  /// The next rank left, and is through with all ops up to that one.
  /// @param digest  of their calls; 0: not said.
  void hear_last(std::uint64_t op_seq, std::uint64_t digest) noexcept;

  /// Up to which op calls are alike, or cannot be compared any more.
  [[nodiscard]] std::uint64_t agreed() const noexcept {
    return std::max({agreed_, too_old_, last_.op_seq});
  }
  /// Which op the next rank is to tell of; 0: none.
  /// @param needed  up to which op this rank has to know: it has posted it.
  [[nodiscard]] std::uint64_t asks(std::uint64_t needed) const noexcept;
  /// The first op that differs, if it has been found, or the first that can be told: see first().
  [[nodiscard]] const wire::SaidCall* mismatch() const noexcept {
    return differs_.op_seq != 0 && differs_.op_seq <= lower() + 1 ? &differs_ : nullptr;
  }
  /// The first op that may be called otherwise: all before are known to be alike. If mismatch() is
  /// a later one, those between are too old to be told by one of both ranks.
  [[nodiscard]] std::uint64_t first() const noexcept { return agreed_ + 1; }
  /// Whether it left, and had called something else in some op up to last_of_who_left().
  [[nodiscard]] bool differs_from_who_left() const noexcept;
  [[nodiscard]] std::uint64_t last_of_who_left() const noexcept { return last_.op_seq; }
  /// Whether calls differ. Then nothing is said onwards of what all have posted.
  [[nodiscard]] bool differ() const noexcept { return differs_.op_seq != 0; }

 private:
  static constexpr std::size_t kAhead = 16;

  void compare(const wire::SaidCall& said) noexcept;
  /// The first op that differs is above: what is older nobody can compare.
  [[nodiscard]] std::uint64_t lower() const noexcept {
    const std::uint64_t kept = OpTable::kDescriptorsKept;
    return std::max({agreed_, too_old_, ops_.posted() > kept ? ops_.posted() - kept : 0});
  }

  const OpTable& ops_;
  std::uint64_t agreed_ = 0;
  std::uint64_t too_old_ = 0;  ///< the next rank tells of it no more
  std::uint64_t posted_there_ = 0;
  wire::SaidCall last_;  ///< its bye's: number and digest alone. It tells of no op any more
  bool left_ = false;
  wire::SaidCall differs_;                    ///< the oldest known to; op_seq 0: none is
  std::array<wire::SaidCall, kAhead> ahead_;  ///< of ops that are not posted here, by number
};

}  // namespace gradwire::collective
