// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The messages between the two ends of gradwire tune: one line of JSON each, over a TCP connection
/// of the kernel. Every wait has a limit. One thread; allocates.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/result.h"
#include "ipc/unique_fd.h"

namespace gradwire::cli {

class TuneLink {
 public:
  /// Waits for the other end, for `seconds` at most. @param port  of all addresses.
  [[nodiscard]] static Result<TuneLink> accept(std::uint16_t port, double seconds);
  /// Tries until the other end answers, for at most `seconds`.
  [[nodiscard]] static Result<TuneLink> connect(const std::string& host, std::uint16_t port,
                                                double seconds);

  [[nodiscard]] Result<void> send(const nlohmann::json& message);
  [[nodiscard]] Result<nlohmann::json> receive(double seconds);
  /// The listening end's address, as the other end reached it.
  [[nodiscard]] const std::string& leader_address() const noexcept { return leader_address_; }

 private:
  explicit TuneLink(ipc::UniqueFd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] Result<void> find_leader(bool is_leader);
  ipc::UniqueFd fd_;
  std::string leader_address_;
  std::string received_;
};

}  // namespace gradwire::cli
