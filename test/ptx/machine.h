// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A GPU of one host thread, that runs PTX: threads of a block one after the other, each until it
/// waits for others or its turn is over. Barriers, shuffles and votes are exact. Every access is
/// checked: aligned to its size, and in memory that the test has made known. Time passes with
/// instructions, and what is random comes from a seed, so a run can be repeated.
///
/// What it cannot show: machine code, orders of memory that are weaker than the program's, speed.
/// For tests alone: allocates, and throws Fault.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>

#include "module.h"

namespace gradwire::ptx {

/// A kernel did what a GPU would stop it for, or can never end.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What kernels may touch.
class Memory {
 public:
  void add(const void* address, std::size_t bytes);
  void remove(const void* address);
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t bytes) const;

 private:
  std::map<std::uint64_t, std::size_t> ranges_;
  mutable std::uint64_t last_ = 0;  ///< where the last access was: the next is likely there too
  mutable std::uint64_t last_end_ = 0;
};

struct Block;

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
};

struct MachineOptions {
  std::uint64_t seed = 0;  ///< 0: threads in their order; else in any, and some fall far behind
  std::uint32_t turn = 20'000;  ///< instructions of a thread before another has its turn
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
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace gradwire::ptx
