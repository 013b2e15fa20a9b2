// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A folder for one test's files. Its path is short, since a Unix socket's may have 107 bytes.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

namespace gradwire::test {

/// Made with it, and removed with all that is in it.
struct TemporaryDirectory {
  TemporaryDirectory() {
    char name[] = "/tmp/gradwire-test.XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string at(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

}  // namespace gradwire::test
