// SPDX-License-Identifier: BSD-3-Clause
// Opcodes that reach memory, other threads and other instructions: PTX ISA 9.0, the sections named
// beside the groups.
#include <atomic>
#include <cstring>

#include "values.h"

namespace gradwire::ptx {
namespace {

// --- memory (9.7.9, 9.7.13)

U64 shared_begin(const Thread& t) {
  return reinterpret_cast<std::uintptr_t>(t.block->shared.data());
}
/// Whether a generic address is one of the block's shared memory.
bool is_shared(const Thread& t, U64 address, std::size_t bytes) {
  const U64 begin = shared_begin(t);
  return address >= begin && address + bytes <= begin + t.block->machine->module().shared_bytes;
}
void from_shared(Thread& t, const Instruction& i) {
  set<U64>(t, i, 0, get<U32>(t, i, 1) + shared_begin(t));
}
void to_shared(Thread& t, const Instruction& i) {
  const U64 address = get<U64>(t, i, 1);
  if (!is_shared(t, address, 1)) t.fault(i, "no address of shared memory");
  set<U64>(t, i, 0, address - shared_begin(t));
}

std::byte* note(Thread& t, const Instruction& i, U64 address, std::size_t bytes, bool writes,
                bool shared) {
  Machine& machine = *t.block->machine;
  if (machine.options().finds_races && !i.is_strong) {
    machine.races().note(t, i, address, bytes, writes, shared);
  }
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}
std::byte* reach(Thread& t, const Instruction& i, int which, std::size_t bytes, bool writes) {
  U64 address = get<U64>(t, i, which) + static_cast<U64>(i.offset);
  if (i.space == Space::kShared) {
    address = static_cast<U32>(address);
    if (address + bytes > t.block->machine->module().shared_bytes) {
      t.fault(i, "shared memory has no byte " + std::to_string(address));
    }
    address += reinterpret_cast<std::uintptr_t>(t.block->shared.data());
  }
  if (address % bytes != 0) t.fault(i, "a misaligned access");
  if (is_shared(t, address, bytes)) return note(t, i, address, bytes, writes, true);
  Machine& machine = *t.block->machine;
  if (i.space == Space::kGlobal || i.space == Space::kGeneric) {
    const bool parameter = i.space == Space::kGeneric && machine.is_parameter(address, bytes);
    if (parameter && writes) t.fault(i, "a store to parameters");
    if (!parameter && !machine.memory.holds(address, bytes)) t.fault(i, "an illegal address");
    return note(t, i, address, bytes, writes, false);
  }
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}
template <class T>
void load(Thread& t, const Instruction& i) {
  T values[4];
  const std::size_t bytes = sizeof(T) * i.width;
  const std::byte* const from = reach(t, i, i.width, bytes, false);
  std::memcpy(values, from, bytes);
  if (!t.block->pending.empty()) t.block->overlay(from, bytes, values);
  for (int k = 0; k < i.width; ++k) set<T>(t, i, k, values[k]);
}
template <class T>
void store(Thread& t, const Instruction& i) {
  T values[4];
  for (int k = 0; k < i.width; ++k) values[k] = get<T>(t, i, k + 1);
  const std::size_t bytes = sizeof(T) * i.width;
  std::byte* const to = reach(t, i, 0, bytes, true);
  if (i.releases) {
    t.block->settle_all();
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  const bool late = t.block->machine->options().late_stores && !i.releases &&
                    (i.space == Space::kGlobal || i.space == Space::kGeneric) &&
                    !is_shared(t, reinterpret_cast<std::uintptr_t>(to), bytes);
  if (late) {
    t.block->store_late(to, values, bytes);
  } else {
    std::memcpy(to, values, bytes);
  }
}
void atomic_add(Thread& t, const Instruction& i) {
  std::byte* const at = reach(t, i, 1, sizeof(U32), true);
  t.block->settle(at, sizeof(U32));
  U32 before = 0;
  std::memcpy(&before, at, sizeof before);
  const U32 after = before + get<U32>(t, i, 2);
  std::memcpy(at, &after, sizeof after);
  set<U32>(t, i, 0, before);
}
/// Also the host's, whose threads run at the same time.
void fence(Thread& t, const Instruction& /*i*/) {
  t.block->settle_all();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// --- control, and threads together (9.7.12, 9.7.13)

void branch(Thread& t, const Instruction& i) { t.frame().next = i.target; }
void call(Thread& t, const Instruction& i) { t.enter(i.target); }
void leave(Thread& t, const Instruction& /*i*/) {
  if (--t.depth == 0) {
    t.state = State::kExited;
    return;
  }
  t.slots = t.frame().slots;
  t.constants = t.frame().function->constants.data();
}
void wait_for_block(Thread& t, const Instruction& i) {
  if (get<U32>(t, i, 0) != 0) t.fault(i, "a barrier other than 0");
  t.state = State::kAtBarrier;
}
void wait_for_warp(Thread& t, const Instruction& i) {
  if (get<U32>(t, i, i.operands - 1) != ~U32{0}) t.fault(i, "not all threads of the warp");
  t.state = State::kAtWarp;
  t.meets_at = &i;
}
void sleep(Thread& t, const Instruction& /*i*/) { t.turn_over = true; }

void meet(Thread* /*warp*/, const Instruction& /*i*/) {}
/// Operands: value, maybe a predicate; then the source, the lane, the clamp and the mask.
template <bool kExclusive>
void shuffle(Thread* warp, const Instruction& i) {
  const int first = i.operands - 4;
  U32 given[32];
  for (U32 lane = 0; lane < 32; ++lane) given[lane] = get<U32>(warp[lane], i, first);
  for (U32 lane = 0; lane < 32; ++lane) {
    Thread& t = warp[lane];
    if (get<U32>(t, i, first + 2) != 31) t.fault(i, "a shuffle within parts of a warp");
    const U32 other = get<U32>(t, i, first + 1) & 31;
    set<U32>(t, i, 0, given[kExclusive ? lane ^ other : other]);
    if (first == 2) set<U8>(t, i, 1, 1);
  }
}
void vote(Thread* warp, const Instruction& i) {
  U32 ballot = 0;
  for (U32 lane = 0; lane < 32; ++lane) ballot |= U32{get<U8>(warp[lane], i, 1) != 0} << lane;
  for (U32 lane = 0; lane < 32; ++lane) set<U32>(warp[lane], i, 0, ballot);
}

template <class T>
void add_access(Table& table, const std::string& type) {
  table["ld." + type] = {load<T>};
  table["st." + type] = {store<T>};
}

}  // namespace

void add_memory_opcodes(Table& table) {
  for (const char* type : {"b8", "u8"}) add_access<U8>(table, type);
  for (const char* type : {"b16", "u16"}) add_access<U16>(table, type);
  for (const char* type : {"b32", "u32"}) add_access<U32>(table, type);
  for (const char* type : {"b64", "u64"}) add_access<U64>(table, type);
  add_access<S8>(table, "s8");
  add_access<S16>(table, "s16");
  add_access<S32>(table, "s32");
  add_access<S64>(table, "s64");
  add_access<F32>(table, "f32");
  add_access<F64>(table, "f64");
  const Table others = {
      {"cvta.shared.u64", {from_shared}},
      {"cvta.to.shared.u64", {to_shared}},
      {"atom.global.add.u32", {atomic_add}},
      {"membar.gl", {fence}},
      {"membar.sys", {fence}},
      {"bra", {branch}},
      {"call", {call}},
      {"ret", {leave}},
      {"bar.sync", {wait_for_block}},
      {"bar.warp.sync", {wait_for_warp, meet}},
      {"shfl.sync.bfly.b32", {wait_for_warp, shuffle<true>}},
      {"shfl.sync.idx.b32", {wait_for_warp, shuffle<false>}},
      {"vote.sync.ballot.b32", {wait_for_warp, vote}},
      {"nanosleep.u32", {sleep}},
  };
  table.insert(others.begin(), others.end());
}

}  // namespace gradwire::ptx
