// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A made-up host: files in a folder of its own, and facts that a test sets.
#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "host/examine.h"

namespace gradwire::host {

/// The folder lives as long as the machine that looks at it.
class FakeFolder {
 public:
  FakeFolder() {
    char path[] = "/tmp/gradwire-host-XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    root_ = path;
  }
  ~FakeFolder() { std::filesystem::remove_all(root_); }
  FakeFolder(const FakeFolder&) = delete;
  FakeFolder& operator=(const FakeFolder&) = delete;
  [[nodiscard]] std::string root() const { return root_.string(); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(
        (root_.string() + path).substr(0, (root_.string() + path).rfind('/')));
    std::ofstream(root_.string() + path) << text << "\n";
  }
  void link(const std::string& path, const std::string& target) const {
    const std::filesystem::path at = root_.string() + path;
    std::filesystem::create_directories(at.parent_path());
    std::filesystem::remove(at);
    std::filesystem::create_symlink(target, at);
  }
  void folder(const std::string& path) const {
    std::filesystem::create_directories(root_.string() + path);
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(root_.string() + path); }

 private:
  std::filesystem::path root_;
};

class FakeMachine : public FakeFolder, public Machine {
 public:
  FakeMachine() : Machine(FakeFolder::root()) {}

  void node(int number, int small, int large) const {
    const auto folder = "/sys/devices/system/node/node" + std::to_string(number) + "/hugepages/";
    write(folder + "hugepages-2048kB/nr_hugepages", std::to_string(small));
    write(folder + "hugepages-2048kB/free_hugepages", std::to_string(small));
    write(folder + "hugepages-1048576kB/nr_hugepages", std::to_string(large));
    write(folder + "hugepages-1048576kB/free_hugepages", std::to_string(large));
  }
  /// `interface` empty: no kernel driver has it.
  void nic(const std::string& address, const std::string& driver, const std::string& interface,
           int node) const {
    const auto folder = "/sys/bus/pci/devices/" + address;
    write(folder + "/class", "0x020000");
    write(folder + "/numa_node", std::to_string(node));
    if (!driver.empty()) link(folder + "/driver", "../../../bus/pci/drivers/" + driver);
    if (!interface.empty()) {
      this->folder(folder + "/net/" + interface);
      write("/sys/class/net/" + interface + "/mtu", "9000");
      write("/sys/class/net/" + interface + "/carrier", "1");
      write("/sys/class/net/" + interface + "/speed", "100000");
    }
  }
  void cpu(int number, int node) const {
    folder("/sys/devices/system/cpu/cpu" + std::to_string(number) + "/node" + std::to_string(node));
  }

  [[nodiscard]] std::uint64_t memlock_bytes() const override { return memlock; }
  [[nodiscard]] std::optional<Pause> pause(const std::string& interface) const override {
    const auto found = pauses.find(interface);
    return found == pauses.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] std::optional<std::string> output(
      const std::vector<std::string>& command) const override {
    return command.front() == "nft" ? ruleset : std::nullopt;
  }

  std::uint64_t memlock = kUnlimited;
  std::map<std::string, Pause> pauses;
  std::optional<std::string> ruleset;
};

/// The one finding of that check and subject.
inline Finding finding_of(const Findings& findings, const std::string& check,
                          const std::string& subject = "") {
  const Finding* found = nullptr;
  for (const Finding& finding : findings) {
    if (finding.check != check || finding.subject != subject) continue;
    REQUIRE(found == nullptr);
    found = &finding;
  }
  INFO(check << ", " << subject << "\n" << to_text(findings));
  REQUIRE(found != nullptr);
  return *found;
}

inline bool has(const Findings& findings, const std::string& check) {
  for (const Finding& finding : findings) {
    if (finding.check == check) return true;
  }
  return false;
}

}  // namespace gradwire::host
