// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A GPU of one host thread, that runs PTX: threads of a block one after the other, each until it
/// waits for others or its turn is over. Barriers, shuffles and votes are exact. Every access is
/// checked: aligned to its size, and in memory that the test has made known. Time passes with
/// instructions, and what is random comes from a seed, so a run can be repeated. On request stores
/// reach other blocks and the host late and out of order, and races within a launch are found.
///
/// What it cannot show: machine code, loads out of order and what else a GPU's memory may do,
/// speed. For tests alone: allocates, and throws Fault.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "module.h"

namespace gradwire::ptx {

/// A kernel did what a GPU would stop it for, or can never end.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What shared memory and registers hold at first. No address that a test could have.
inline constexpr std::uint64_t kJunk = 0xdeadbeefcafebabe;

/// What kernels may touch.
class Memory {
 public:
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  /// Knows more memory. @return whether `address` is in it, and the range about it.
  using Elsewhere = bool (*)(std::uint64_t address, Range& range);

  void add(const void* address, std::size_t bytes);
  void remove(const void* address);
  void look_elsewhere(Elsewhere elsewhere) { elsewhere_ = elsewhere; }
  /// What is known elsewhere has changed.
  void forget() { recent_ = {}; }
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t bytes) const;

 private:
  std::map<std::uint64_t, std::size_t> ranges_;
  Elsewhere elsewhere_ = nullptr;
  mutable std::array<Range, 8> recent_;  ///< where accesses were: the next is likely there too
  mutable std::size_t oldest_ = 0;       ///< of `recent_`
};

struct Block;
struct Thread;
class Machine;

/// A store that other blocks and the host do not see yet.
struct Pending {
  /// Unless the memory is gone, as with a mutant whose batch was said to be done too early.
  void reach(const Machine& machine) const;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
  std::array<std::byte, 16> data;
  [[nodiscard]] bool overlaps(const std::byte* other, std::size_t size) const {
    return to < other + size && other < to + bytes;
  }
};

/// Who touched each byte, to find accesses of two threads that nothing orders: no barrier of their
/// block, no meeting of their warp, and for a launch of many blocks nothing at all.
class Races {
 public:
  /// Throws Fault if another thread's access to the same bytes is not ordered before this one.
  void note(const Thread& thread, const Instruction& at, std::uint64_t address, std::size_t bytes,
            bool writes, bool is_shared);
  /// @param cooperative  blocks order themselves, by means that are not looked at.
  void start(bool cooperative);

 private:
  struct Access {
    bool any = false;
    bool many = false;  ///< threads since the last barrier
    std::uint32_t block = 0;
    std::uint32_t thread = 0;
    std::uint32_t barriers = 0;
    std::uint32_t meetings = 0;
  };
  struct Shadow {
    Access write;
    Access read;
  };
  [[nodiscard]] bool is_unordered(const Access& before, const Access& now, bool is_shared) const;
  std::unordered_map<std::uint64_t, Shadow> bytes_;
  bool cooperative_ = false;
};

struct Frame {
  const Function* function = nullptr;
  std::uint64_t* slots = nullptr;
  std::uint32_t next = 0;  ///< instruction
};

enum class State : std::uint8_t { kReady, kAtBarrier, kAtWarp, kExited };

struct Thread {
  static constexpr std::size_t kDepth = 3;
  State state = State::kReady;
  bool turn_over = false;
  std::uint32_t sits_out = 0;  ///< turns that it does not get
  std::uint32_t barriers = 0;  ///< of the block, passed
  std::uint32_t meetings = 0;  ///< of the warp
  std::uint32_t index = 0;
  Block* block = nullptr;
  std::uint64_t* slots = nullptr;            ///< of the current frame
  const std::uint64_t* constants = nullptr;  ///< of its function
  std::uint32_t depth = 0;
  std::array<Frame, kDepth> frames;
  const Instruction* meets_at = nullptr;  ///< where it waits for its warp
  /// Registers by function: nobody calls himself.
  std::vector<std::unique_ptr<std::uint64_t[]>> registers;
  std::vector<std::vector<std::uint64_t>> locals;      ///< by function
  std::vector<std::vector<std::uint64_t>> parameters;  ///< by function, what its caller passed

  [[nodiscard]] std::uint64_t raw(std::int32_t operand) const noexcept {
    return operand >= 0 ? slots[operand] : constants[~operand];
  }
  [[nodiscard]] Frame& frame() { return frames[depth - 1]; }
  void enter(std::uint32_t function);
  [[noreturn]] void fault(const Instruction& at, const std::string& what) const;
};

class Machine;

struct Block {
  Machine* machine = nullptr;
  std::uint32_t index = 0;
  std::vector<std::uint64_t> shared;
  std::vector<Thread> threads;
  std::vector<std::uint32_t> order;
  std::vector<Pending> pending;  ///< in the order of the program

  void store_late(std::byte* to, const void* data, std::size_t bytes);
  /// Lays what is pending over `data`, which is what memory has at `from`.
  void overlay(const std::byte* from, std::size_t bytes, void* data) const;
  /// The stores that overlap it reach memory.
  void settle(const std::byte* at, std::size_t bytes);
  void settle_all();
  /// Store `which` reaches memory, and those before it to the same bytes.
  void settle_one(std::size_t which);
};

struct MachineOptions {
  std::uint64_t seed = 0;  ///< 0: threads in their order; else in any, and some fall far behind
  std::uint32_t turn = 20'000;       ///< instructions of a thread before another has its turn
  std::uint32_t falls_behind = 512;  ///< with a seed, one in so many turns a thread is held up
  /// A block's stores reach others late, in any order, unless a fence or a release stands between.
  bool late_stores = false;
  bool finds_races = false;  ///< accesses that nothing orders are a Fault
};

class Machine {
 public:
  Machine(const Module& module, const MachineOptions& options);

  Memory memory;

  /// Puts a kernel's blocks in place, all at once.
  void start(const Function& kernel, std::span<const std::byte> parameters, std::uint32_t blocks,
             std::uint32_t threads);
  /// Gives every thread that can go on a turn. @return whether any is left.
  bool step();
  /// start(), and steps to the end, block by block.
  void run(const Function& kernel, std::span<const std::byte> parameters, std::uint32_t blocks,
           std::uint32_t threads);
  /// Steps until the kernel ends. Throws if `steps` are not enough.
  void finish(std::uint64_t steps);

  [[nodiscard]] const Module& module() const { return module_; }
  [[nodiscard]] std::uint64_t now_ns() const { return instructions_; }
  [[nodiscard]] std::uint64_t instructions() const { return instructions_; }
  [[nodiscard]] bool is_parameter(std::uint64_t address, std::size_t bytes) const;
  [[nodiscard]] const MachineOptions& options() const { return options_; }
  [[nodiscard]] Races& races() { return races_; }

 private:
  bool step(Block& block);
  void turn(Thread& thread);
  void prepare(Block& block, const Function& kernel, std::uint32_t index, std::uint32_t blocks);
  void meet_warps(Block& block);

  const Module& module_;
  const MachineOptions options_;
  std::mt19937_64 random_;
  std::uint64_t instructions_ = 0;
  std::vector<std::uint64_t> parameters_;
  std::size_t parameter_bytes_ = 0;
  Races races_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace gradwire::ptx
