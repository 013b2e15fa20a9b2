// SPDX-License-Identifier: BSD-3-Clause
#include "texts.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gradwire::ptx {

std::string text_of(const std::string& architecture) {
  const char* const folder = std::getenv("GRADWIRE_PTX");
  if (folder == nullptr) throw std::runtime_error("GRADWIRE_PTX names no folder of PTX");
  std::ifstream file(std::string(folder) + "/kernels." + architecture + ".ptx");
  std::stringstream text;
  text << file.rdbuf();
  if (text.str().empty()) throw std::runtime_error("there is no PTX of " + architecture);
  return text.str();
}

}  // namespace gradwire::ptx
