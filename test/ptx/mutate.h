// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Kernels' texts with one instruction changed: what tests of the kernels must catch. For tests
/// alone: allocates.
#pragma once

#include <cstring>
#include <string>

namespace gradwire::ptx {

struct Mutant {
  const char* what;
  const char* function;  ///< part of its name
  const char* opcode;
  int which;            ///< of such instructions in the function, from 0
  const char* instead;  ///< nullptr: the instruction is left out
};

/// @return the text with the mutant in it.
inline std::string mutated(const std::string& text, const Mutant& mutant) {
  // The last that is named so is the function itself; before it, it is announced and called.
  std::size_t at = 0;
  for (std::size_t found = 0;
       (found = text.find(mutant.function, found + 1)) != std::string::npos;) {
    const std::size_t line = text.rfind('\n', found) + 1;
    const bool begins = text.compare(line, 5, ".func") == 0 || text.compare(line, 6, ".entry") == 0;
    if (begins) at = found;
  }
  at = text.find("\n{", at);
  const std::size_t end = text.find("\n}\n", at);
  const auto is_whole = [&](std::size_t found) {
    const char before = text[found - 1];
    const char after = text[found + std::strlen(mutant.opcode)];
    return (before == '\t' || before == ' ') && (after == '\t' || after == ' ' || after == ';');
  };
  for (int left = mutant.which; at != std::string::npos; --left) {
    do at = text.find(mutant.opcode, at + 1);
    while (at != std::string::npos && !is_whole(at));
    if (left == 0) break;
  }
  if (at == std::string::npos || at > end) return text;
  std::string result = text;
  const std::size_t length =
      mutant.instead == nullptr ? text.find(';', at) + 1 - at : std::string(mutant.opcode).size();
  // A guard before it would be left without an instruction: a move that does nothing takes it.
  return result.replace(at, length, mutant.instead == nullptr ? "mov.u32 _, 0;" : mutant.instead);
}

}  // namespace gradwire::ptx
