// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/sockets/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace gradwire::nccl {
namespace {

using nccl_net::kSuccess;
using nccl_net::Status;

constexpr std::uint32_t kMagic = 0x67776e63;
constexpr unsigned kTestsBeforeSleep = 16;
constexpr int kCallsBeforeLateWrite = 3;
constexpr std::uint64_t kFaultEvery = 7;  ///< messages

std::size_t piece_bytes(std::size_t bytes, std::size_t connections) {
  const std::size_t share = (bytes + connections - 1) / connections;
  return std::clamp(share, kPieceBytesMin, kPieceBytesMax);
}

bool plant(Fault fault, std::uint64_t number) {
  return settings().fault == fault && number % kFaultEvery == kFaultEvery - 1;
}

}  // namespace

Channel::Channel(std::vector<int> sockets, bool sends)
    : sends_(sends), sockets_(std::move(sockets)) {
  order_.reserve(requests_.size());
  words_out_.reserve(requests_.size() * kReceivesMax);
  tags_posted_.reserve(requests_.size() * kReceivesMax);
  const std::size_t data = sockets_.size() - 1;
  const std::size_t threads = std::min(static_cast<std::size_t>(settings().threads), data);
  for (std::size_t t = 0; t < threads; ++t) {
    std::vector<int> own;
    for (std::size_t i = t; i < data; i += threads) own.push_back(sockets_[1 + i]);
    helpers_.push_back(std::make_unique<Helper>(std::move(own), sends));
  }
}

Channel::~Channel() {
  helpers_.clear();
  for (const int socket : sockets_) close(socket);
}

Status Channel::post(int parts, void** data, const std::size_t* bytes, const int* tags,
                     void** request) {
  const auto free =
      std::find_if(requests_.begin(), requests_.end(), [](const Request& r) { return !r.used; });
  if (free == requests_.end() || plant(Fault::kStaleRequest, posted_ + kFaultEvery / 2)) {
    if (settings().fault == Fault::kStaleRequest) {
      ++posted_;
    } else {
      *request = nullptr;
    }
    return kSuccess;
  }
  if (settings().receives > 1 && sends_ && !take_posted(tags[0])) {
    *request = nullptr;
    return kSuccess;
  }
  if (settings().receives > 1 && !sends_) say_posted(parts, tags);
  free->used = true;
  free->channel = this;
  free->parts = parts;
  free->number = posted_++;
  free->left.store(0, std::memory_order_relaxed);
  free->failure.store(kSuccess, std::memory_order_relaxed);
  for (int i = 0; i < parts; ++i) {
    free->part[static_cast<std::size_t>(i)] = {static_cast<char*>(data[i]), bytes[i], 0, tags[i],
                                               false};
  }
  order_.push_back(&*free);
  *request = &*free;
  return kSuccess;
}

void Channel::say_posted(int parts, const int* tags) {
  words_out_.insert(words_out_.end(), tags, tags + parts);
  write_words();
}

void Channel::write_words() {
  while (!words_out_.empty()) {
    const auto* from = reinterpret_cast<const char*>(words_out_.data()) + words_bytes_;
    const std::size_t bytes = words_out_.size() * sizeof(std::int32_t) - words_bytes_;
    const ssize_t sent = send(sockets_[0], from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) return;
    words_bytes_ += static_cast<std::size_t>(sent);
    const std::size_t whole = words_bytes_ / sizeof(std::int32_t);
    words_out_.erase(words_out_.begin(), words_out_.begin() + static_cast<std::ptrdiff_t>(whole));
    words_bytes_ %= sizeof(std::int32_t);
  }
}

void Channel::read_words() {
  for (;;) {
    auto* into = reinterpret_cast<char*>(&word_in_) + words_bytes_;
    const ssize_t came = recv(sockets_[0], into, sizeof(word_in_) - words_bytes_, MSG_DONTWAIT);
    if (came == 0 || (came < 0 && errno != EAGAIN && errno != EINTR)) gone_ = true;
    if (came <= 0) return;
    words_bytes_ = (words_bytes_ + static_cast<std::size_t>(came)) % sizeof(word_in_);
    if (words_bytes_ == 0) tags_posted_.push_back(word_in_);
  }
}

bool Channel::take_posted(int tag) {
  read_words();
  const auto found = std::find(tags_posted_.begin(), tags_posted_.end(), tag);
  if (found == tags_posted_.end()) return false;
  tags_posted_.erase(found);
  return true;
}

void Channel::advance() {
  if (!words_out_.empty()) write_words();
  if (sends_) {
    announce();
  } else {
    listen_to_announcements();
  }
}

void Channel::announce() {
  while (!order_.empty() && !gone_) {
    Request& request = *order_.front();
    Part& part = request.part[0];
    if (!part.announced) {
      announcement_ = {part.bytes, part.tag, kMagic};
      const auto* from = reinterpret_cast<const char*>(&announcement_) + announcement_bytes_;
      const ssize_t sent = send(sockets_[0], from, sizeof(announcement_) - announcement_bytes_,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) gone_ = true;
      if (sent <= 0) return;
      announcement_bytes_ += static_cast<std::size_t>(sent);
      if (announcement_bytes_ < sizeof(announcement_)) return;
      announcement_bytes_ = 0;
      part.announced = true;
    }
    if (!queue_pieces(request, part)) return;
    order_.erase(order_.begin());
  }
}

void Channel::listen_to_announcements() {
  while (!order_.empty()) {
    if (filling_ == nullptr && announcement_bytes_ < sizeof(announcement_)) {
      if (gone_) return;
      auto* into = reinterpret_cast<char*>(&announcement_) + announcement_bytes_;
      const ssize_t came =
          recv(sockets_[0], into, sizeof(announcement_) - announcement_bytes_, MSG_DONTWAIT);
      if (came == 0 || (came < 0 && errno != EAGAIN && errno != EINTR)) gone_ = true;
      if (came <= 0) return;
      announcement_bytes_ += static_cast<std::size_t>(came);
      if (announcement_bytes_ < sizeof(announcement_)) return;
    }
    if (filling_ == nullptr) {
      filling_ = match(&filling_owner_);
      if (filling_ == nullptr) return;
      announcement_bytes_ = 0;
      filling_->announced = true;
      if (announcement_.magic != kMagic || announcement_.bytes > filling_->bytes) {
        log_warning("sockets: %zu bytes come for a receive of %zu", announcement_.bytes,
                    filling_->bytes);
        filling_owner_->failure.store(nccl_net::kInvalidUsage);
      }
      filling_->bytes = announcement_.bytes;
    }
    if (!queue_pieces(*filling_owner_, *filling_)) return;
    filling_ = nullptr;
    const Request& owner = *filling_owner_;
    const bool all = std::all_of(owner.part.begin(), owner.part.begin() + owner.parts,
                                 [](const Part& part) { return part.announced; });
    if (all) order_.erase(std::find(order_.begin(), order_.end(), filling_owner_));
  }
}

Part* Channel::match(Request** owner) {
  for (Request* request : order_) {
    for (int i = 0; i < request->parts; ++i) {
      Part& part = request->part[static_cast<std::size_t>(i)];
      // As NCCL's own sockets do: a receive that stands alone takes what comes.
      const bool fits = part.tag == announcement_.tag || settings().receives == 1;
      if (!part.announced && fits) {
        *owner = request;
        return &part;
      }
    }
  }
  return nullptr;
}

bool Channel::queue_pieces(Request& request, Part& part) {
  if (request.failure.load(std::memory_order_relaxed) != kSuccess) return true;
  if (helpers_.empty()) return transfer_itself(request, part);
  const std::size_t connections = sockets_.size() - 1;
  const std::size_t most = piece_bytes(part.bytes, connections);
  while (part.queued < part.bytes) {
    const std::size_t bytes = std::min(most, part.bytes - part.queued);
    Piece piece{part.data + part.queued, bytes, static_cast<int>(turn_ / helpers_.size()),
                &request.left, &request.failure};
    request.left.fetch_add(1, std::memory_order_relaxed);
    if (!helpers_[turn_ % helpers_.size()]->push(piece)) {
      request.left.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    part.queued += bytes;
    turn_ = (turn_ + 1) % connections;
  }
  return true;
}

bool Channel::transfer_itself(Request& request, Part& part) {
  while (part.queued < part.bytes) {
    char* at = part.data + part.queued;
    const std::size_t bytes = part.bytes - part.queued;
    const ssize_t moved = sends_ ? send(sockets_[0], at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                 : recv(sockets_[0], at, bytes, MSG_DONTWAIT);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (moved <= 0) {
      gone_ = true;
      request.failure.store(nccl_net::kRemoteError, std::memory_order_relaxed);
      return true;
    }
    part.queued += static_cast<std::size_t>(moved);
  }
  return true;
}

bool Channel::complete(const Request& request) const {
  for (int i = 0; i < request.parts; ++i) {
    const Part& part = request.part[static_cast<std::size_t>(i)];
    if (!part.announced || part.queued < part.bytes) return false;
  }
  const bool early = plant(sends_ ? Fault::kEarlySend : Fault::kEarlyRecv, request.number);
  return early || request.left.load(std::memory_order_acquire) == 0;
}

Status Channel::test(Request& request, int* done, int* sizes) {
  *done = 0;
  advance();
  disturb();
  if (plant(Fault::kLost, request.number)) return kSuccess;
  const Status failure = request.failure.load(std::memory_order_acquire);
  if (failure != kSuccess && settings().fault != Fault::kSilentDeath) return failure;
  if (complete(request)) {
    *done = 1;
    finish(request, sizes);
  } else if (gone_ && settings().fault != Fault::kSilentDeath) {
    const bool waits = std::find(order_.begin(), order_.end(), &request) != order_.end();
    if (waits) return nccl_net::kRemoteError;
  }
  return kSuccess;
}

void Channel::finish(Request& request, int* sizes) {
  if (sizes != nullptr && !(settings().fault == Fault::kNoSize && !sends_)) {
    for (int i = 0; i < request.parts; ++i) {
      sizes[i] = static_cast<int>(request.part[static_cast<std::size_t>(i)].bytes);
    }
  }
  const Part& part = request.part[0];
  if (!sends_ && part.bytes > 0) {
    if (plant(Fault::kWrongByte, request.number)) part.data[part.bytes / 2] ^= 1;
    if (plant(Fault::kLateWrite, request.number)) {
      late_ = part.data + part.bytes / 2;
      late_calls_ = kCallsBeforeLateWrite;
    }
  }
  request.used = false;
}

/// Planted faults of test() itself.
void Channel::disturb() {
  if (settings().fault == Fault::kBlocks && ++tests_ % kTestsBeforeSleep == 0) usleep(3000);
  if (late_ != nullptr && --late_calls_ == 0) {
    *late_ = static_cast<char>(*late_ + 1);
    late_ = nullptr;
  }
}

}  // namespace gradwire::nccl
