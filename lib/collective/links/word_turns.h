// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Words and pieces of one kind of op take turns at a port: whoever is answered late seems silent,
/// and where a port is slow nothing but words would go. It also counts rounds in which nothing
/// could be sent that waits. One lane owns it; nothing here allocates.
#pragma once

#include <cstdint>

namespace gradwire::collective {

class WordTurns {
 public:
  /// Sends by turns until neither a word nor a piece goes.
  /// @param most       so many at most.
  /// @param send_word  () -> bool: whether one went. send_piece likewise.
  /// @return how many went.
  template <class SendWord, class SendPiece>
  std::uint32_t run(std::uint32_t most, SendWord&& send_word, SendPiece&& send_piece) noexcept {
    const auto send_one = [&](bool word) {
      const bool sent = word ? send_word() : send_piece();
      if (sent) word_was_last_ = word;
      return sent;
    };
    std::uint32_t sent = 0;
    while (sent < most && (send_one(!word_was_last_) || send_one(word_was_last_))) ++sent;
    return sent;
  }
  /// The round is over.
  /// @param waits  whether something waits that may go.
  void note(std::uint32_t sent, bool waits) noexcept {
    blocked_rounds_ = sent == 0 && waits ? blocked_rounds_ + 1 : 0;
  }

  [[nodiscard]] bool starves() const noexcept { return blocked_rounds_ >= kBlockedRounds; }
  [[nodiscard]] bool waits_for_room() const noexcept { return blocked_rounds_ > 0; }

 private:
  static constexpr std::uint32_t kBlockedRounds = 8;

  bool word_was_last_ = false;
  std::uint32_t blocked_rounds_ = 0;  ///< in a row
};

}  // namespace gradwire::collective
