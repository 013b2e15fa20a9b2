// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the checks read: files of sysfs and procfs below a root that tests choose, and a few facts
/// that are not in files. Control thread; reads files, makes system calls, allocates.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace gradwire::host {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
/// Where the kernel shows its PCI devices, each in a folder of its address.
inline constexpr const char* kPciDevices = "/sys/bus/pci/devices/";

/// Link-level flow control of an interface.
struct Pause {
  bool rx = false;
  bool tx = false;
};

class Machine {
 public:
  /// @param root  put before every path; "" is this host.
  explicit Machine(std::string root = {}) : root_(std::move(root)) {}
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] std::string path(const std::string& path) const { return root_ + path; }
  /// The file's text without blanks at its ends; nothing if it cannot be read.
  [[nodiscard]] std::optional<std::string> text(const std::string& path) const;
  /// Its first number; nothing if there is none.
  [[nodiscard]] std::optional<std::int64_t> number(const std::string& path) const;
  [[nodiscard]] bool exists(const std::string& path) const;
  /// Sorted names of what the folder holds; empty if there is no folder.
  [[nodiscard]] std::vector<std::string> names(const std::string& path) const;
  /// The last part of what a link points to; empty if there is no link.
  [[nodiscard]] std::string link_name(const std::string& path) const;

  /// Whether this process has the capability of that number; nothing if /proc does not tell.
  [[nodiscard]] std::optional<bool> has_capability(unsigned number) const;
  /// RLIMIT_MEMLOCK of this process; kUnlimited.
  [[nodiscard]] virtual std::uint64_t memlock_bytes() const;
  /// Nothing if the driver does not tell.
  [[nodiscard]] virtual std::optional<Pause> pause(const std::string& interface) const;
  /// What a program prints; nothing if it cannot be run or fails. No shell is in between.
  [[nodiscard]] virtual std::optional<std::string> output(
      const std::vector<std::string>& command) const;

 private:
  std::string root_;
};

}  // namespace gradwire::host
