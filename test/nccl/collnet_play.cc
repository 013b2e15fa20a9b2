// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/collnet_play.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "nccl/calls.h"
#include "nccl/datatypes.h"
#include "nccl/draw.h"
#include "nccl/failure.h"
#include "nccl/pattern.h"

namespace gradwire::nccl {
namespace {

constexpr std::uint64_t kDepth = nccl_net::kSteps;
constexpr std::size_t kElementBytesMax = 8;

void need(nccl_net::Status status, const char* call, int comm) {
  if (status == nccl_net::kSuccess) return;
  throw CallFailed(fmt::format("CollNet's {}() gave {}: communicator {}", call, status, comm));
}

/// Whole numbers from 1 to 3: sums and products of a few ranks are exact in every datatype.
std::uint64_t element(std::uint64_t key, int place, std::size_t index) {
  return 1 + (mixed(key, static_cast<std::uint64_t>(place)) + index * 7) / 3 % 3;
}

}  // namespace

CollNetPlay::CollNetPlay(Host& host, const CommPlan& plan, std::function<bool()> stopped)
    : host_(host),
      plan_(plan),
      stopped_(std::move(stopped)),
      place_(static_cast<int>(std::find(plan.ranks.begin(), plan.ranks.end(), host.rank) -
                              plan.ranks.begin())),
      inputs_(kDepth, plan.elements_max * kElementBytesMax),
      outputs_(kDepth, plan.elements_max * kElementBytesMax),
      ops_(kDepth) {}

std::uint64_t CollNetPlay::patience_ns() const {
  return static_cast<std::uint64_t>(host_.options.patience_s * 1e9);
}

void CollNetPlay::run() {
  if (!host_.library.has_collnet()) throw Failure("the plug-in exports no ncclCollNetPlugin");
  need(host_.library.coll_init(&context_, plan_.seed), "init", plan_.number);
  join();
  if (comm_ != nullptr) {
    try {
      ask_support();
      reduce_all();
    } catch (const CallFailed&) {
      leave();  // as NCCL does after an abort
      throw;
    }
    leave();
  }
  need(host_.library.coll_finalize(context_), "finalize", plan_.number);
}

void CollNetPlay::join() {
  int devices = 0;
  need(host_.library.coll_devices(&devices), "devices", plan_.number);
  if (devices < 1) throw Failure(fmt::format("CollNet's devices() says {}", devices));
  void* listen_comm = nullptr;
  HandleBytes own{};
  need(host_.library.coll_listen(context_, 0, own.data(), &listen_comm), "listen", plan_.number);
  std::vector<HandleBytes> handles = gather(own);
  if (handles.empty()) {
    host_.library.coll_close_listen(listen_comm);
    return;
  }
  std::vector<void*> pointers;
  for (HandleBytes& handle : handles) pointers.push_back(handle.data());
  const auto nranks = static_cast<int>(pointers.size());
  need(host_.library.coll_connect(pointers.data(), nranks, place_, listen_comm, &comm_), "connect",
       plan_.number);
  need(host_.library.coll_close_listen(listen_comm), "close_listen", plan_.number);
  if (comm_ == nullptr) {
    throw Failure(
        fmt::format("CollNet's connect() gave no communicator, so NCCL does without: "
                    "communicator {}",
                    plan_.number));
  }
  need(host_.library.coll_reg_mr(comm_, inputs_.data(), inputs_.bytes(), &input_mr_), "reg_mr",
       plan_.number);
  need(host_.library.coll_reg_mr(comm_, outputs_.data(), outputs_.bytes(), &output_mr_), "reg_mr",
       plan_.number);
}

/// By place; empty if the communicator is over meanwhile.
std::vector<HandleBytes> CollNetPlay::gather(const HandleBytes& own) {
  const std::uint64_t began = now_ns();
  for (const int rank : plan_.ranks) {
    if (rank != host_.rank) host_.exchange.send(Word::kCollHandle, rank, plan_.number, own);
  }
  std::vector<HandleBytes> handles;
  while (handles.size() < plan_.ranks.size()) {
    const int rank = plan_.ranks[handles.size()];
    const auto handle =
        rank == host_.rank ? std::optional(own) : host_.exchange.coll_handle_of(plan_.number, rank);
    if (handle) {
      handles.push_back(*handle);
      continue;
    }
    if (stopped_()) return {};
    if (now_ns() - began > patience_ns()) {
      throw CallFailed(fmt::format("rank {} has sent no handle of CollNet: communicator {}", rank,
                                   plan_.number));
    }
    usleep(1000);
  }
  return handles;
}

/// NCCL asks for every datatype and these four redops, once.
void CollNetPlay::ask_support() {
  for (nccl_net::DataType type = 0; type < nccl_net::kDataTypes; ++type) {
    for (nccl_net::RedOp redop = 0; redop < nccl_net::kRedOps; ++redop) {
      int supported = 0;
      need(host_.library.coll_reduce_support(type, redop, &supported), "reduce_support",
           plan_.number);
      if (supported != 0 && element_bytes(type) > 0) kinds_.push_back({type, redop});
    }
  }
  if (kinds_.empty()) throw Failure("CollNet supports no datatype and redop that the player knows");
}

CollNetPlay::Op CollNetPlay::draw_op(std::uint64_t number) const {
  Op op;
  op.key = mixed(plan_.seed, number);
  Draw draw(op.key);
  const Kind kind = kinds_[draw.between(0, kinds_.size() - 1)];
  op.datatype = kind.datatype;
  op.redop = kind.redop;
  op.count = draw.one_in(3) ? draw.between(1, 100) : draw.between(1, plan_.elements_max);
  op.in_place = draw.one_in(4);
  return op;
}

void CollNetPlay::reduce_all() {
  const auto all = static_cast<std::uint64_t>(plan_.all_reduces);
  std::uint64_t posted = 0;
  std::uint64_t done = 0;
  bool drawn = false;
  while (done < all && !stopped_()) {
    bool moved = false;
    if (posted < all && posted - done < kDepth) {
      Op& next = ops_[posted % kDepth];
      if (!std::exchange(drawn, true)) {
        next = draw_op(posted);
        next.began_ns = now_ns();
        fill(next, place_, inputs_.at(posted % kDepth));
        fill_poison(outputs_.at(posted % kDepth), outputs_.stride());
      }
      if (post(posted)) {
        ++posted;
        drawn = false;
        moved = true;
      }
    }
    if (done < posted && test(done)) {
      ++done;
      host_.all_reduces.fetch_add(1, std::memory_order_relaxed);
      moved = true;
    }
    if (!moved) sched_yield();
  }
}

bool CollNetPlay::post(std::uint64_t number) {
  const std::size_t slot = number % kDepth;
  Op& op = ops_[slot];
  char* output = op.in_place ? inputs_.at(slot) : outputs_.at(slot);
  need(host_.library.coll_iallreduce(comm_, inputs_.at(slot), output, op.count, op.datatype,
                                     op.redop, input_mr_, op.in_place ? input_mr_ : output_mr_,
                                     &op.request),
       "iallreduce", plan_.number);
  if (op.request != nullptr || now_ns() - op.began_ns < patience_ns()) return op.request != nullptr;
  throw Failure(
      fmt::format("iallreduce() has given no request for {:.1f} s: communicator {}, "
                  "all-reduce {}",
                  host_.options.patience_s, plan_.number, number));
}

bool CollNetPlay::test(std::uint64_t number) {
  const std::size_t slot = number % kDepth;
  const Op& op = ops_[slot];
  int done = 0;
  int bytes = 0;
  need(host_.library.coll_test(op.request, &done, &bytes), "test", plan_.number);
  if (done != 0) {
    check(op, number, op.in_place ? inputs_.at(slot) : outputs_.at(slot));
    return true;
  }
  if (now_ns() - op.began_ns < patience_ns()) return false;
  throw Failure(fmt::format("an all-reduce is not done after {:.1f} s: communicator {}, {} of {}",
                            host_.options.patience_s, plan_.number, number, plan_.all_reduces));
}

void CollNetPlay::fill(const Op& op, int place, char* into) const {
  with_type(op.datatype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < op.count; ++i) {
      const auto value = static_cast<T>(static_cast<float>(element(op.key, place, i)));
      std::memcpy(into + i * sizeof(T), &value, sizeof(T));
    }
  });
}

void CollNetPlay::check(const Op& op, std::uint64_t number, const char* result) const {
  with_type(op.datatype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < op.count; ++i) {
      auto sum = static_cast<T>(static_cast<float>(element(op.key, 0, i)));
      for (int place = 1; place < static_cast<int>(plan_.ranks.size()); ++place) {
        const auto other = static_cast<T>(static_cast<float>(element(op.key, place, i)));
        sum = combined(op.redop, sum, other);
      }
      if (std::memcmp(result + i * sizeof(T), &sum, sizeof(T)) == 0) continue;
      throw Failure(
          fmt::format("element {} of {} is wrong, datatype {}, redop {}: communicator "
                      "{}, all-reduce {}",
                      i, op.count, op.datatype, op.redop, plan_.number, number));
    }
    if (op.in_place) return;
    const std::size_t bytes = op.count * sizeof(T);
    const std::size_t behind = outputs_.stride() - bytes;
    if (first_other_than_poison(result + bytes, behind) == behind) return;
    throw Failure(
        fmt::format("bytes behind the result were written: communicator {}, all-reduce "
                    "{}",
                    plan_.number, number));
  });
}

void CollNetPlay::leave() {
  need(host_.library.coll_dereg_mr(comm_, output_mr_), "dereg_mr", plan_.number);
  need(host_.library.coll_dereg_mr(comm_, input_mr_), "dereg_mr", plan_.number);
  need(host_.library.coll_close(comm_), "close_coll", plan_.number);
  comm_ = nullptr;
}

}  // namespace gradwire::nccl
