// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/calls.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <fstream>
#include <memory>
#include <mutex>
#include <vector>

namespace gradwire::nccl {
namespace {

constexpr unsigned kTimeSteps = 16;

unsigned bucket_of(std::uint64_t ns) {
  if (ns < kTimeSteps) return static_cast<unsigned>(ns);
  const auto power = static_cast<unsigned>(std::bit_width(ns)) - 5;  // 16 to 31: 0
  return (power + 1) * kTimeSteps + static_cast<unsigned>(ns >> power) - kTimeSteps;
}
std::uint64_t top_of(unsigned bucket) {
  if (bucket < kTimeSteps) return bucket;
  const unsigned power = bucket / kTimeSteps - 1;
  return ((std::uint64_t{bucket % kTimeSteps} + kTimeSteps + 1) << power) - 1;
}

struct Recorder {
  std::array<CallFigures, kCalls> calls;
  std::atomic<std::uint64_t> since_ns{0};  ///< of the call under way; 0: none
  std::atomic<int> call{0};
  pid_t thread = gettid();
};

std::atomic<bool> g_count_waits{false};

struct Recorders {
  std::mutex mutex;
  std::vector<std::unique_ptr<Recorder>> all;
};
Recorders& recorders() {
  static Recorders made;
  return made;
}

Recorder& own_recorder() {
  thread_local Recorder* own = nullptr;
  if (own == nullptr) {
    const std::lock_guard lock(recorders().mutex);
    own = recorders().all.emplace_back(std::make_unique<Recorder>()).get();
  }
  return *own;
}

long voluntary_switches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}
std::uint64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

void Times::add(std::uint64_t ns) {
  ++buckets_[std::min<std::size_t>(bucket_of(ns), buckets_.size() - 1)];
  ++count_;
  longest_ = std::max(longest_, ns);
}

void Times::add(const Times& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  longest_ = std::max(longest_, other.longest_);
}

std::uint64_t Times::quantile(double share) const {
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(count_));
  std::uint64_t seen = 0;
  for (unsigned i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen > wanted || seen == count_) return std::min(top_of(i), longest_);
  }
  return longest_;
}

std::uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(time.tv_nsec);
}

void count_waits() { g_count_waits.store(true); }

Timed::Timed(Call call) : call_(call), began_ns_(now_ns()) {
  Recorder& own = own_recorder();
  own.call.store(static_cast<int>(call), std::memory_order_relaxed);
  own.since_ns.store(began_ns_, std::memory_order_release);
  if (g_count_waits.load(std::memory_order_relaxed)) {
    cpu_ns_ = thread_cpu_ns();
    switches_ = voluntary_switches();
  }
}

Timed::~Timed() {
  Recorder& own = own_recorder();
  CallFigures& figures = own.calls[static_cast<std::size_t>(call_)];
  if (g_count_waits.load(std::memory_order_relaxed)) {
    if (voluntary_switches() > switches_) ++figures.waits;
    figures.cpu.add(thread_cpu_ns() - cpu_ns_);
  }
  figures.wall.add(now_ns() - began_ns_);
  own.since_ns.store(0, std::memory_order_release);
}

void add_recorded(Figures& sum) {
  const std::lock_guard lock(recorders().mutex);
  for (const auto& recorder : recorders().all) {
    for (std::size_t i = 0; i < kCalls; ++i) {
      sum.calls[i].wall.add(recorder->calls[i].wall);
      sum.calls[i].waits += recorder->calls[i].waits;
      sum.calls[i].cpu.add(recorder->calls[i].cpu);
    }
  }
}

std::string call_under_way_for(std::uint64_t ns) {
  const std::lock_guard lock(recorders().mutex);
  for (const auto& recorder : recorders().all) {
    const std::uint64_t since = recorder->since_ns.load(std::memory_order_acquire);
    const std::uint64_t now = now_ns();
    if (since == 0 || now < since + ns) continue;
    std::ifstream file(fmt::format("/proc/self/task/{}/syscall", recorder->thread));
    std::string where;
    file >> where;
    return fmt::format("{}() has not returned for {:.1f} s; its thread is in system call {}",
                       kCallNames[recorder->call.load()], static_cast<double>(now - since) / 1e9,
                       where.empty() ? "?" : where);
  }
  return "";
}

}  // namespace gradwire::nccl
