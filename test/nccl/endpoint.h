// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One end of a connection, as NCCL's proxy drives it: slots of memory, their registrations, and
/// the steps of each stream that are posted, under way and done. The service thread makes and frees
/// it, the progress thread drives it meanwhile. Allocates when it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nccl/library.h"
#include "nccl/plan.h"

namespace gradwire::nccl {

/// What goes on in one stream of a connection. Slots are taken in turn.
struct Stream {
  std::uint64_t posted = 0;     ///< handed to the plug-in
  std::uint64_t done = 0;       ///< a send that completed; a receive whose slot is free again
  std::uint64_t came = 0;       ///< receives that completed
  std::uint64_t ready_ns = 0;   ///< when the GPU has filled the next slot
  bool filled = false;          ///< the next slot
  std::vector<void*> requests;  ///< [depth]
  std::vector<std::uint64_t> posted_ns;  ///< [depth]
  std::vector<std::uint64_t> free_ns;    ///< [depth], of receives: when the GPU has taken it
};

/// Slots of one stream side by side, in memory of their own, with poison before and behind.
class Slots {
 public:
  Slots(std::size_t count, std::size_t bytes_max);
  [[nodiscard]] char* at(std::size_t slot) const { return memory_.get() + slot * stride_; }
  [[nodiscard]] char* data() const { return memory_.get(); }
  [[nodiscard]] std::size_t stride() const { return stride_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(char* memory) const;
  };
  std::size_t stride_;
  std::size_t bytes_;
  std::unique_ptr<char, Unmap> memory_;
};

class Endpoint {
 public:
  Endpoint(Library& library, const Options& options, const ConnectionPlan& plan, bool sends);

  /// From when the plug-in has connected: registers memory as NCCL does, each protocol's buffers
  /// and some that belong to users.
  void opened(void* comm);
  /// Gives registrations back, in an order of its own, and closes. Requests may be under way.
  void close();
  /// One round of NCCL's progress. @return whether anything moved.
  bool progress();
  /// Registers and frees a part of the memory, while requests are under way.
  void churn(std::uint64_t drawn);
  /// After close(): nobody may write to what was given back. Throws a Failure if somebody did.
  void check_untouched() const;

  [[nodiscard]] bool finished() const;
  [[nodiscard]] bool is_open() const { return comm_ != nullptr; }
  [[nodiscard]] std::uint64_t messages_done() const { return messages_done_; }
  [[nodiscard]] std::uint64_t bytes_done() const { return bytes_done_; }
  [[nodiscard]] std::uint64_t later() const { return later_; }
  [[nodiscard]] const ConnectionPlan& plan() const { return plan_; }
  [[nodiscard]] bool sends() const { return sends_; }

 private:
  bool progress_sends();
  bool send_next(std::size_t stream);
  bool test_send(std::size_t stream);
  bool progress_receives();
  bool post_receives();
  bool test_receives();
  bool free_slots();
  void check_received(std::size_t stream, std::uint64_t sequence, int size) const;
  void check_poison(const char* data, std::size_t bytes, std::size_t stream, std::uint64_t sequence,
                    const char* when) const;
  void check_patience(const Stream& stream, std::size_t index, std::uint64_t oldest) const;
  /// What *request holds before a call. NCCL leaves an old request there, and takes it for the new
  /// one if the plug-in writes nothing.
  static void* not_written();
  void need_written(void* request, const char* call, std::size_t stream,
                    std::uint64_t sequence) const;
  void* registration(std::size_t stream, std::size_t slot, bool own) const;
  [[nodiscard]] std::string name(std::size_t stream, std::uint64_t sequence) const;
  [[nodiscard]] int tag(std::size_t stream) const;
  void need(nccl_net::Status status, const char* call, std::size_t stream,
            std::uint64_t sequence) const;

  Library& library_;
  const Options& options_;
  const ConnectionPlan& plan_;
  const bool sends_;
  void* comm_ = nullptr;
  std::vector<Slots> slots_;  ///< by stream
  std::vector<Stream> streams_;
  std::vector<void*> whole_;   ///< registrations of all slots, by stream
  std::vector<void*> single_;  ///< of single slots, by stream and slot
  std::vector<void*> spare_;   ///< of parts, which no message uses
  std::uint64_t messages_done_ = 0;
  std::uint64_t bytes_done_ = 0;
  std::uint64_t later_ = 0;
};

}  // namespace gradwire::nccl
