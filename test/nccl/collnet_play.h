// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// CollNet as coll_net.cc plays it, for one communicator of a rank: listen, one connect with the
/// handles of all ranks, which may wait, all-reduces in the same order everywhere, several under
/// way, and each result held against a sum of our own. One thread. Allocates.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nccl/endpoint.h"
#include "nccl/host.h"
#include "nccl_net/abi.h"

namespace gradwire::nccl {

class CollNetPlay {
 public:
  CollNetPlay(Host& host, const CommPlan& plan, std::function<bool()> stopped);
  /// Throws CallFailed if a call fails, Failure if something is wrong.
  void run();

 private:
  struct Op {
    std::size_t count = 0;
    nccl_net::DataType datatype = 0;
    nccl_net::RedOp redop = 0;
    bool in_place = false;
    std::uint64_t key = 0;
    std::uint64_t began_ns = 0;
    void* request = nullptr;
  };
  struct Kind {
    nccl_net::DataType datatype;
    nccl_net::RedOp redop;
  };

  void join();
  std::vector<HandleBytes> gather(const HandleBytes& own);
  void ask_support();
  void reduce_all();
  Op draw_op(std::uint64_t number) const;
  bool post(std::uint64_t number);
  bool test(std::uint64_t number);
  void fill(const Op& op, int place, char* into) const;
  void check(const Op& op, std::uint64_t number, const char* result) const;
  void leave();
  [[nodiscard]] std::uint64_t patience_ns() const;

  Host& host_;
  const CommPlan& plan_;
  const std::function<bool()> stopped_;
  const int place_;  ///< this rank's, among those of the communicator
  Slots inputs_;
  Slots outputs_;
  void* context_ = nullptr;
  void* comm_ = nullptr;
  void* input_mr_ = nullptr;
  void* output_mr_ = nullptr;
  std::vector<Kind> kinds_;
  std::vector<Op> ops_;  ///< by slot
};

}  // namespace gradwire::nccl
