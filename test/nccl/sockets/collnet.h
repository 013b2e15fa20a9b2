// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All-reduces of the reference plug-in: a star whose middle, rank 0, takes all inputs, folds them
/// by the order of the ranks and sends the result to all. A helper thread does it, op by op. Made
/// to be right, not fast. post() and test() by one thread; join() waits, as NCCL expects of
/// CollNet.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "nccl/sockets/connect.h"
#include "nccl/sockets/helper.h"
#include "nccl_net/abi.h"

namespace gradwire::nccl {

struct AllReduce {
  void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  ///< elements
  nccl_net::DataType datatype = 0;
  nccl_net::RedOp redop = 0;
};

class Star {
 public:
  /// Null if a rank does not come within half a minute.
  static std::unique_ptr<Star> join(void* handles[], int nranks, int rank, Listener& listener);
  ~Star();
  Star(const Star&) = delete;
  Star& operator=(const Star&) = delete;

  static bool supports(nccl_net::DataType datatype, nccl_net::RedOp redop);
  nccl_net::Status post(const AllReduce& op, void** request);
  static nccl_net::Status test(void* request, int* done, int* bytes);

 private:
  struct Op {
    AllReduce what;
    bool used = false;
    std::uint64_t number = 0;
    std::atomic<bool> done{false};
    std::atomic<nccl_net::Status> failure{nccl_net::kSuccess};
  };

  explicit Star(std::vector<int> sockets);
  void run();
  bool reduce(const AllReduce& op);
  bool fold_at_middle(const AllReduce& op, std::size_t bytes);
  bool transfer(int fd, void* data, std::size_t bytes, bool sends);

  std::vector<int> sockets_;  ///< at rank 0 those to ranks 1, 2, ...; elsewhere that to rank 0
  bool middle_ = false;
  std::array<Op, nccl_net::kRequestsMax> ops_;
  std::uint64_t posted_ = 0;
  Handover<Op*, 64> handover_;
  Bell bell_;
  std::atomic<bool> stop_{false};
  std::vector<char> sum_;
  std::vector<char> other_;
  std::thread thread_;
};

}  // namespace gradwire::nccl
