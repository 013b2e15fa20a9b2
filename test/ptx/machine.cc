// SPDX-License-Identifier: BSD-3-Clause
#include "machine.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace gradwire::ptx {
namespace {

constexpr std::uint32_t kWarp = 32;
constexpr std::uint32_t kTurnsBehind = 200;
constexpr std::uint32_t kSettles = 64;  ///< one in so many steps a late store reaches memory

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

void Memory::add(const void* address, std::size_t bytes) { ranges_[address_of(address)] = bytes; }

void Memory::remove(const void* address) {
  ranges_.erase(address_of(address));
  forget();
}

bool Memory::holds(std::uint64_t address, std::size_t bytes) const {
  for (const Range& range : recent_) {
    if (address >= range.begin && address + bytes <= range.end) return true;
  }
  Range found;
  if (const auto after = ranges_.upper_bound(address); after != ranges_.begin()) {
    const auto& [begin, size] = *std::prev(after);
    found = {begin, begin + size};
  }
  if (address >= found.end && (elsewhere_ == nullptr || !elsewhere_(address, found))) return false;
  if (address + bytes > found.end) return false;
  recent_[oldest_] = found;
  oldest_ = (oldest_ + 1) % recent_.size();
  return true;
}

void Thread::enter(std::uint32_t number) {
  const Function& function = block->machine->module().functions[number];
  if (depth == kDepth) throw Fault("calls too deep");
  if (registers[number] == nullptr) {
    registers[number].reset(new std::uint64_t[function.slots]);
    std::fill_n(registers[number].get(), function.slots, kJunk);
    locals[number].resize(function.local_bytes / sizeof(std::uint64_t));
  }
  std::uint64_t* const made = registers[number].get();
  if (depth > 0) {  // else the kernel's parameters are the launch's
    const auto& passed = locals[static_cast<std::size_t>(
        frame().function - block->machine->module().functions.data())];
    parameters[number].assign(passed.begin(), passed.end());
    parameters[number].resize(function.parameter_bytes / sizeof(std::uint64_t));
    made[kParameters] = address_of(parameters[number].data());
    std::copy(slots + kThreadNumber, slots + kFirstRegister, made + kThreadNumber);
  }
  made[kLocals] = address_of(locals[number].data());
  frames[depth++] = {&function, made, 0};
  slots = made;
  constants = function.constants.data();
}

void Thread::fault(const Instruction& at, const std::string& what) const {
  throw Fault("block " + std::to_string(block->index) + " thread " + std::to_string(index) +
              ", PTX line " + std::to_string(at.line) + ": " + what);
}

void Pending::reach(const Machine& machine) const {
  if (machine.memory.holds(address_of(to), bytes)) std::memcpy(to, data.data(), bytes);
}

void Block::store_late(std::byte* to, const void* data, std::size_t bytes) {
  constexpr std::size_t kPendingMax = 256;
  if (pending.size() == kPendingMax) settle_one(0);
  Pending& made = pending.emplace_back();
  made.to = to;
  made.bytes = bytes;
  std::memcpy(made.data.data(), data, bytes);
}

void Block::overlay(const std::byte* from, std::size_t bytes, void* data) const {
  for (const Pending& each : pending) {
    if (!each.overlaps(from, bytes)) continue;
    const std::byte* const begin = std::max<const std::byte*>(each.to, from);
    const std::byte* const end = std::min<const std::byte*>(each.to + each.bytes, from + bytes);
    std::memcpy(static_cast<std::byte*>(data) + (begin - from),
                each.data.data() + (begin - each.to), static_cast<std::size_t>(end - begin));
  }
}

void Block::settle_one(std::size_t which) {
  const Pending chosen = pending[which];
  std::size_t next = 0;
  for (std::size_t left = which + 1; left > 0; --left) {
    const Pending& each = pending[next];
    if (!each.overlaps(chosen.to, chosen.bytes)) {
      ++next;
      continue;
    }
    each.reach(*machine);
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(next));
  }
}

void Block::settle(const std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < pending.size();) {
    if (pending[i].overlaps(at, bytes)) {
      settle_one(i);
      i = 0;
    } else {
      ++i;
    }
  }
}

void Block::settle_all() {
  for (const Pending& each : pending) each.reach(*machine);
  pending.clear();
}

void Races::start(bool cooperative) {
  bytes_.clear();
  cooperative_ = cooperative;
}

bool Races::is_unordered(const Access& before, const Access& now, bool is_shared) const {
  if (!before.any) return false;
  if (before.block != now.block) return !is_shared && !cooperative_;
  if (before.barriers != now.barriers) return false;
  if (before.many) return true;
  const bool same_warp = before.thread / kWarp == now.thread / kWarp;
  return before.thread != now.thread && !(same_warp && before.meetings != now.meetings);
}

void Races::note(const Thread& thread, const Instruction& at, std::uint64_t address,
                 std::size_t bytes, bool writes, bool is_shared) {
  const Access now{true,         false,           thread.block->index,
                   thread.index, thread.barriers, thread.meetings};
  for (std::size_t i = 0; i < bytes; ++i) {
    Shadow& shadow = bytes_[address + i];
    if (is_unordered(shadow.write, now, is_shared) ||
        (writes && is_unordered(shadow.read, now, is_shared))) {
      thread.fault(at, "a race with another thread");
    }
    if (writes) {
      shadow = {now, {}};
      continue;
    }
    const bool others = shadow.read.any && shadow.read.block == now.block &&
                        shadow.read.barriers == now.barriers &&
                        (shadow.read.thread != now.thread || shadow.read.many);
    shadow.read = now;
    shadow.read.many = others;
  }
}

Machine::Machine(const Module& module, const MachineOptions& options)
    : module_(module), options_(options), random_(options.seed) {}

bool Machine::is_parameter(std::uint64_t address, std::size_t bytes) const {
  const std::uint64_t start = address_of(parameters_.data());
  return address >= start && address + bytes <= start + parameter_bytes_;
}

void Machine::prepare(Block& block, const Function& kernel, std::uint32_t index,
                      std::uint32_t blocks) {
  block.machine = this;
  block.index = index;
  block.shared.assign(module_.shared_bytes / sizeof(std::uint64_t) + 1, kJunk);
  const auto number = static_cast<std::uint32_t>(&kernel - module_.functions.data());
  for (Thread& thread : block.threads) {
    thread.index = static_cast<std::uint32_t>(&thread - block.threads.data());
    thread.block = &block;
    thread.depth = 0;
    thread.state = State::kReady;
    thread.sits_out = thread.barriers = thread.meetings = 0;
    thread.registers.resize(module_.functions.size());
    thread.locals.resize(module_.functions.size());
    thread.parameters.resize(module_.functions.size());
    thread.enter(number);
    thread.slots[kParameters] = address_of(parameters_.data());
    thread.slots[kThreadNumber] = thread.index;
    thread.slots[kBlockNumber] = index;
    thread.slots[kBlockSize] = block.threads.size();
    thread.slots[kGridSize] = blocks;
  }
}

void Machine::start(const Function& kernel, std::span<const std::byte> parameters,
                    std::uint32_t blocks, std::uint32_t threads) {
  if (parameters.size() != kernel.parameter_bytes) {
    throw Fault(kernel.name + " takes " + std::to_string(kernel.parameter_bytes) +
                " bytes of parameters, not " + std::to_string(parameters.size()));
  }
  parameters_.resize(parameters.size() / sizeof(std::uint64_t) + 1);
  parameter_bytes_ = parameters.size();
  std::memcpy(parameters_.data(), parameters.data(), parameters.size());
  races_.start(blocks > 1);
  // Registers are large, and those of the last kernel will do.
  while (blocks_.size() > blocks) blocks_.pop_back();
  for (std::uint32_t index = 0; index < blocks; ++index) {
    if (blocks_.size() == index) blocks_.push_back(std::make_unique<Block>());
    Block& block = *blocks_[index];
    if (block.threads.size() != threads) block.threads = std::vector<Thread>(threads);
    block.order.resize(threads);
    std::iota(block.order.begin(), block.order.end(), 0);
    prepare(block, kernel, index, blocks);
  }
}

bool Machine::step() {
  bool left = false;
  for (const auto& block : blocks_) left = step(*block) || left;
  return left;
}

void Machine::run(const Function& kernel, std::span<const std::byte> parameters,
                  std::uint32_t blocks, std::uint32_t threads) {
  start(kernel, parameters, 1, threads);
  races_.start(false);
  for (std::uint32_t index = 0; index < blocks; ++index) {
    if (index > 0) prepare(*blocks_[0], kernel, index, blocks);
    for (Thread& thread : blocks_[0]->threads) thread.slots[kGridSize] = blocks;
    finish(1'000'000);
  }
}

void Machine::finish(std::uint64_t steps) {
  while (step()) {
    if (steps-- == 0) throw Fault("the kernel does not end");
  }
}

bool Machine::step(Block& block) {
  if (options_.seed != 0) std::shuffle(block.order.begin(), block.order.end(), random_);
  bool ran = false;
  for (const std::uint32_t index : block.order) {
    Thread& thread = block.threads[index];
    if (thread.state != State::kReady) continue;
    turn(thread);
    ran = true;
  }
  meet_warps(block);
  std::size_t at_barrier = 0;
  std::size_t exited = 0;
  bool ready = false;
  for (const Thread& thread : block.threads) {
    at_barrier += thread.state == State::kAtBarrier ? 1 : 0;
    exited += thread.state == State::kExited ? 1 : 0;
    ready = ready || thread.state == State::kReady;
  }
  if (exited == block.threads.size()) {
    block.settle_all();
    return false;
  }
  if (!block.pending.empty() && random_() % kSettles == 0) {
    block.settle_one(random_() % block.pending.size());
  }
  if (at_barrier == block.threads.size()) {
    for (Thread& thread : block.threads) {
      thread.state = State::kReady;
      ++thread.barriers;
    }
  } else if (!ran && !ready) {
    throw Fault("block " + std::to_string(block.index) + ": " + std::to_string(at_barrier) +
                " threads wait at a barrier and " + std::to_string(exited) + " have left");
  }
  return true;
}

void Machine::turn(Thread& thread) {
  thread.turn_over = false;
  if (thread.sits_out > 0) {
    --thread.sits_out;
    return;
  }
  if (options_.seed != 0 && random_() % options_.falls_behind == 0)
    thread.sits_out = random_() % kTurnsBehind;
  // With a seed turns differ, so that threads are cut off anywhere.
  std::uint64_t left = options_.seed == 0 ? options_.turn : 1 + random_() % options_.turn;
  const std::uint64_t given = left;
  while (left-- > 0) {
    Frame& frame = thread.frame();
    const Instruction& instruction = frame.function->code[frame.next++];
    if (instruction.guard >= 0 && (thread.slots[instruction.guard] != 0) == instruction.negated) {
      continue;
    }
    instruction.run(thread, instruction);
    if (thread.state != State::kReady || thread.turn_over) break;
  }
  instructions_ += given - left;
}

void Machine::meet_warps(Block& block) {
  for (std::size_t first = 0; first + kWarp <= block.threads.size(); first += kWarp) {
    Thread* const warp = &block.threads[first];
    const Instruction* const at = warp[0].meets_at;
    const bool all = std::all_of(warp, warp + kWarp, [at](const Thread& thread) {
      return thread.state == State::kAtWarp && thread.meets_at == at;
    });
    if (!all) continue;
    at->meet(warp, *at);
    for (std::size_t lane = 0; lane < kWarp; ++lane) {
      warp[lane].state = State::kReady;
      ++warp[lane].meetings;
    }
  }
}

}  // namespace gradwire::ptx
