// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A communicator of CollNet: one process of each node, in a group whose daemons sum. An all-reduce
/// is cut into segments, which are ops of the group: copied into gradient memory, summed there in
/// place, and copied out. All ranks post the same ops in the same order, and so the same segments.
///
/// Engine's lock guards it, since a client of the daemon has a lock too, on which nobody shall
/// wait. iallreduce() and test() only try to take it, and copy one segment at most. Nothing
/// allocates after join(), which waits for the others: for 10 s until all have come, as long until
/// their daemons have, and up to 10 s until each knows that of all.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "client/gradwire.h"
#include "nccl_net/abi.h"
#include "nccl_net/daemon.h"
#include "nccl_net/engine.h"
#include "nccl_net/messages.h"

namespace gradwire::nccl_net {

class Collective {
 public:
  struct Op {
    enum State : int { kFree, kPosted, kDone };
    std::atomic<int> state{kFree};
    Collective* owner = nullptr;
    const char* input = nullptr;
    char* output = nullptr;
    gw_datatype datatype = GW_FLOAT32;
    gw_redop redop = GW_SUM;
    std::uint64_t element_bytes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t told = 0;     ///< given to the daemon
    std::uint64_t through = 0;  ///< summed and copied out
  };

  /// @param handles  what each rank's listener has told, by rank
  /// @return nullptr: `why` says what is wrong.
  static std::unique_ptr<Collective> join(void* handles[], int nranks, int rank,
                                          const Listener& listener, std::string& why);
  ~Collective();
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  static bool supports(DataType datatype, RedOp redop);
  /// *request stays null if there is no room now.
  Status post(const void* input, void* output, std::uint64_t count, DataType datatype, RedOp redop,
              Op** request);
  static Status test(Op& op, int* done, int* bytes);

 private:
  /// Segments under way: they fill one hugepage of 2 MiB.
  static constexpr std::uint32_t kSlots = 16;
  static constexpr std::uint64_t kMemoryBytes = std::uint64_t{kSlots} * kSegmentBytes;

  struct Segment {
    Op* op = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    gw_work* work = nullptr;
  };

  Collective() = default;
  std::string form(std::uint64_t group_id, int rank, const void* infos, std::size_t count);
  void progress();
  void take_ends();
  void copy_out();
  void copy_in();
  [[nodiscard]] char* memory_of(std::uint64_t segment) const {
    return base_ + (segment % kSlots) * kSegmentBytes;
  }

  std::shared_ptr<Clients> clients_;
  gw_group* group_ = nullptr;
  gw_memory* memory_ = nullptr;
  char* base_ = nullptr;
  std::string broken_;
  bool warned_ = false;
  std::array<Op, kRequestsMax> ops_;
  std::uint64_t posted_ = 0;
  std::uint64_t begun_ = 0;  ///< ops that were given to the daemon whole
  /// Segments are counted from 0, and each has the slot of its number: copied out <= summed <=
  /// told.
  std::array<Segment, kSlots> segments_;
  std::uint64_t copied_ = 0;
  std::uint64_t summed_ = 0;
  std::uint64_t told_ = 0;
};

}  // namespace gradwire::nccl_net
