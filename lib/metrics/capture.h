// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Packet capture by DPDK's own tool: dpdk-dumpcap attaches to the daemon as a secondary process
/// and asks it to copy the packets of a port (rte_pdump). Control thread; without a running capture
/// nothing is copied, at no cost.
#pragma once

#include <string>

#include "base/result.h"

namespace gradwire::metrics {

class Capture {
 public:
  /// After the EAL started.
  /// @param runtime_folder  where a second process finds the EAL's files, or the error if there are
  /// none. Capture is then not available, but the daemon runs.
  [[nodiscard]] static Capture start(const Result<std::string>& runtime_folder);
  ~Capture();
  Capture(Capture&& other) noexcept;
  Capture& operator=(Capture&&) = delete;
  Capture(const Capture&) = delete;

  [[nodiscard]] bool available() const noexcept { return available_; }
  /// One line for the operator: how to capture, or why it is not possible.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  Capture(bool available, std::string text) : available_(available), text_(std::move(text)) {}
  bool available_;
  std::string text_;
};

/// The command that captures from a daemon whose EAL has its files in `runtime_folder`:
/// FOLDER/dpdk/PREFIX.
[[nodiscard]] std::string capture_command(const std::string& runtime_folder);

}  // namespace gradwire::metrics
