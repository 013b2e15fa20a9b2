// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// PTX as nvcc writes it, read into instructions that machine.h runs. It knows what the project's
/// kernels use; any other directive, opcode or operand is an error that names it and its line.
///
/// A register is a slot of 64 bits in a thread's frame, numbered in the order in which the text
/// first uses it, so that what is used together lies together. The first slots have what a thread
/// cannot change.
/// For tests alone: allocates, and throws std::runtime_error.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::ptx {

struct Thread;
struct Instruction;
/// What one thread does, and what the threads of a warp do together when all have come.
using Action = void (*)(Thread&, const Instruction&);
using Meeting = void (*)(Thread* warp, const Instruction&);

/// Slots of every frame.
enum Slot : std::int32_t {
  kParameters,  ///< address of the function's parameters
  kLocals,      ///< address of what it passes to others
  kThreadNumber,
  kBlockNumber,
  kBlockSize,
  kGridSize,
  kFirstRegister,
};

enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kParameter };

struct Instruction {
  Action run = nullptr;
  Meeting meet = nullptr;
  std::int32_t guard = -1;  ///< slot of a predicate; -1: always
  bool negated = false;     ///< runs if the guard is false
  bool is_strong = false;   ///< other threads may access the same at the same time
  bool releases = false;    ///< what came before it is visible before it
  std::uint8_t width = 1;   ///< elements of a vector
  Space space = Space::kGeneric;
  std::uint8_t operands = 0;
  std::array<std::int32_t, 7> operand{};  ///< slots from 0; ~index of a constant below
  std::int64_t offset = 0;                ///< of an address
  std::uint32_t target = 0;               ///< instruction to go on at, or function to call
  std::uint32_t line = 0;
};

struct Function {
  std::string name;
  bool is_entry = false;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t local_bytes = 0;
  std::uint32_t slots = kFirstRegister;
  std::vector<Instruction> code;
  std::vector<std::uint64_t> constants;
};

struct Module {
  std::vector<Function> functions;
  std::uint32_t shared_bytes = 0;

  /// @return the only function whose name holds `part`.
  [[nodiscard]] const Function& function(std::string_view part) const;
};

[[nodiscard]] Module parse(std::string_view text);

/// An opcode's part in an instruction. Of loads and stores the space, the width of a vector and the
/// order of memory are not in its name; a move that packs or unpacks a vector ends in ".pack" or
/// ".unpack".
struct Opcode {
  Action run = nullptr;
  Meeting meet = nullptr;
};
/// @return nullptr if it is not known.
[[nodiscard]] const Opcode* find_opcode(const std::string& name);

}  // namespace gradwire::ptx
