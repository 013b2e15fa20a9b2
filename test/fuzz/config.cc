// SPDX-License-Identifier: BSD-3-Clause
// The configuration: TOML text and flags of any bytes. Each is a configuration or an error with a
// text, and a configuration written out is read back as the same.
//
// First byte: how many flags (0 to 3), each a line "section.key=value"; the rest is the file.
#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"
#include "fuzz/input.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gradwire;
  fuzz::Input input(std::as_bytes(std::span(data, size)));
  const std::uint32_t flags = input.pick(4);
  const auto bytes = input.rest();
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<config::Override> overrides;
  for (std::uint32_t i = 0; i < flags; ++i) {
    const std::string line = text.substr(0, text.find('\n'));
    text.erase(0, line.size() + 1);
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    overrides.push_back({line.substr(0, equals), line.substr(equals + 1)});
  }
  const auto loaded = config::load(text, "fuzz.toml", overrides);
  if (!loaded) {
    FUZZ_CHECK(!loaded.error().message.empty());
    return 0;
  }
  const std::string written = config::to_toml(*loaded);
  const auto again = config::load(written, "again.toml");
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(*again == *loaded);
  return 0;
}
