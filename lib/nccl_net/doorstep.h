// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Those who have connected to a listener and have not said yet what they want. Anybody may connect
/// and say nothing: nobody waits for them, they have no thread, and they are few. Whoever is meant
/// speaks at once. The owner's lock guards it. It allocates as they come.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <utility>

#include "nccl_net/descriptor.h"
#include "nccl_net/setup_socket.h"

namespace gradwire::nccl_net {

class Doorstep {
 public:
  static constexpr std::size_t kWordBytesMax = 2048;

  /// @param word_bytes  of the word that each says first
  /// @param most        are heard at a time: the oldest goes if one more comes
  Doorstep(std::size_t word_bytes, std::size_t most) : word_bytes_(word_bytes), most_(most) {}

  /// Takes in who has come, and what they have said. Does not wait.
  /// @param said  called with the Descriptor of each whose word is whole, and the word
  template <class Said>
  void look(int listener, Said&& said) {
    drop_silent();
    for (std::size_t left = newcomers_.size(); left > 0; --left) {
      Newcomer one = std::move(newcomers_.front());
      newcomers_.pop_front();
      hear(std::move(one), said);
    }
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      Newcomer one;
      one.socket = Descriptor::accepted_from(listener);
      if (!one.socket) return;
      one.since = SetupClock::now();
      hear(std::move(one), said);
      if (newcomers_.size() > most_) newcomers_.pop_front();
    }
  }
  /// Until somebody comes, or speaks.
  void wait(int listener, SetupTime until) const;

 private:
  static constexpr int kAcceptsAtOnce = 4;

  struct Newcomer {
    Descriptor socket;
    SetupTime since;
    std::size_t heard = 0;
    std::array<unsigned char, kWordBytesMax> word{};
  };

  template <class Said>
  void hear(Newcomer&& one, Said& said) {
    if (!hear_more(one)) return;
    if (one.heard < word_bytes_) {
      newcomers_.push_back(std::move(one));
    } else {
      said(std::move(one.socket), one.word.data());
    }
  }
  /// @return false: it has gone.
  bool hear_more(Newcomer& one) const;
  void drop_silent();

  std::size_t word_bytes_;
  std::size_t most_;
  std::deque<Newcomer> newcomers_;  ///< the oldest first
};

}  // namespace gradwire::nccl_net
