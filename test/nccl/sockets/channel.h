// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One direction of a channel between two ranks: a control connection, on which the sender says
/// what comes, and the connections that carry it. Requests complete in any order; their words go in
/// the order of the calls. All calls by the thread that drives the communicator, but for reg_mr and
/// dereg_mr, which need nothing here. Allocates when it is made, never for a request.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "nccl/sockets/helper.h"
#include "nccl/sockets/settings.h"
#include "nccl_net/abi.h"

namespace gradwire::nccl {

/// What the sender says of a message, on the control connection.
struct Announcement {
  std::uint64_t bytes = 0;
  std::int32_t tag = 0;
  std::uint32_t magic = 0;
};

class Channel;

/// A receive of a request, or its send.
struct Part {
  char* data = nullptr;
  std::size_t bytes = 0;   ///< posted; from when it is announced, what comes
  std::size_t queued = 0;  ///< bytes that helpers know of
  int tag = 0;
  bool announced = false;
};

struct Request {
  Channel* channel = nullptr;
  bool used = false;
  int parts = 0;
  std::uint64_t number = 0;
  std::array<Part, kReceivesMax> part;
  std::atomic<int> left{0};  ///< pieces that helpers have
  std::atomic<nccl_net::Status> failure{nccl_net::kSuccess};
};

class Channel {
 public:
  /// Takes the sockets over. sockets[0] is the control connection.
  Channel(std::vector<int> sockets, bool sends);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// *request is null if all requests are in use.
  nccl_net::Status post(int parts, void** data, const std::size_t* bytes, const int* tags,
                        void** request);
  /// sizes: null, or one for each part.
  nccl_net::Status test(Request& request, int* done, int* sizes);

 private:
  void advance();
  /// Receiver: says which tags a group has. Sender: takes such words.
  void say_posted(int parts, const int* tags);
  void write_words();
  void read_words();
  /// @return whether the receiver has posted one of that tag, which is taken.
  bool take_posted(int tag);
  void announce();
  void listen_to_announcements();
  /// The part that an announcement is for, or null: it is not posted yet.
  Part* match(Request** owner);
  /// @return whether helpers know all of it.
  bool queue_pieces(Request& request, Part& part);
  /// Without helpers: by the control connection. @return whether all of it is through.
  bool transfer_itself(Request& request, Part& part);
  [[nodiscard]] bool complete(const Request& request) const;
  void finish(Request& request, int* sizes);
  void disturb();

  const bool sends_;
  std::vector<int> sockets_;
  std::vector<std::unique_ptr<Helper>> helpers_;
  std::array<Request, nccl_net::kRequestsMax> requests_;
  std::vector<Request*> order_;  ///< whose words are not all out, or in, by the order of the calls
  Announcement announcement_;
  std::size_t announcement_bytes_ = 0;   ///< of it, that are out or in
  std::vector<std::int32_t> words_out_;  ///< tags that are not said yet
  std::size_t words_bytes_ = 0;          ///< of the first of them, or of the one that comes
  std::int32_t word_in_ = 0;
  std::vector<std::int32_t> tags_posted_;  ///< at the receiver, and not used by a send
  bool gone_ = false;                      ///< the peer has closed
  Part* filling_ = nullptr;                ///< announced, and not all of it is queued
  Request* filling_owner_ = nullptr;
  std::uint64_t posted_ = 0;
  std::size_t turn_ = 0;  ///< the connection whose turn it is
  char* late_ = nullptr;  ///< Fault::kLateWrite: where, and after how many calls
  int late_calls_ = 0;
  unsigned tests_ = 0;  ///< calls of test(), for Fault::kBlocks
};

}  // namespace gradwire::nccl
