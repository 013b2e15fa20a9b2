// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/exchange.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "nccl/calls.h"

namespace gradwire::nccl {

Exchange::Exchange(int socket, int rank) : socket_(socket), rank_(rank) {
  for (auto& one : aborted_) one.store(-1);
  thread_ = std::thread([this] { run(); });
}

Exchange::~Exchange() {
  shutdown(socket_, SHUT_RDWR);
  thread_.join();
  close(socket_);
}

void Exchange::send(const Word& word) { ::send(socket_, &word, sizeof(word), MSG_NOSIGNAL); }

void Exchange::send(Word::Kind kind, std::int32_t to, std::int32_t number,
                    const HandleBytes& handle) {
  Word word;
  word.kind = kind;
  word.from = rank_;
  word.to = to;
  word.number = number;
  word.handle = handle;
  send(word);
}

void Exchange::send(Word::Kind kind, std::int32_t to, std::int32_t number) {
  send(kind, to, number, HandleBytes{});
}

void Exchange::abort(int comm) {
  aborted_[static_cast<std::size_t>(comm) % kCommsMax].store(rank_, std::memory_order_release);
  send(Word::kAborted, kToAll, comm);
}

void Exchange::fail(const std::string& text) {
  Word word;
  word.kind = Word::kFailed;
  word.from = rank_;
  word.to = kToDriver;
  text.copy(word.text.data(), word.text.size() - 1);
  send(word);
}

void Exchange::run() {
  Word word;
  while (recv(socket_, &word, sizeof(word), 0) == static_cast<ssize_t>(sizeof(word))) {
    const std::lock_guard lock(mutex_);
    switch (word.kind) {
      case Word::kHandle:
        handles_[word.number] = word.handle;
        break;
      case Word::kCollHandle:
        coll_handles_[{word.number, word.from}] = word.handle;
        break;
      case Word::kAborted:
        aborted_[static_cast<std::size_t>(word.number) % kCommsMax].store(word.from);
        break;
      case Word::kKilled:
        killed_since_ns_.store(now_ns());
        killed_.store(word.from, std::memory_order_release);
        break;
      case Word::kReached:
      case Word::kFailed:
        break;
    }
  }
}

std::optional<HandleBytes> Exchange::handle_of(int connection) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(connection);
  return found == handles_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<HandleBytes> Exchange::coll_handle_of(int comm, int rank) {
  const std::lock_guard lock(mutex_);
  const auto found = coll_handles_.find({comm, rank});
  return found == coll_handles_.end() ? std::nullopt : std::optional(found->second);
}

int Exchange::aborted_by(int comm) const {
  return aborted_[static_cast<std::size_t>(comm) % kCommsMax].load(std::memory_order_acquire);
}

}  // namespace gradwire::nccl
