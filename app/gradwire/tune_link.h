// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the two ends of gradwire tune say to each other: JSON, a line each, over one TCP
/// connection of the kernel's. Every wait has a bound. One thread; allocates.
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
  /// Tries until it is there, for `seconds` at most.
  [[nodiscard]] static Result<TuneLink> connect(const std::string& host, std::uint16_t port,
                                                double seconds);

  [[nodiscard]] Result<void> send(const nlohmann::json& message);
  [[nodiscard]] Result<nlohmann::json> receive(double seconds);
  /// The address of the end that listened, as the other one reached it.
  [[nodiscard]] const std::string& leader_address() const noexcept { return leader_address_; }

 private:
  explicit TuneLink(ipc::UniqueFd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] Result<void> find_leader(bool is_leader);
  ipc::UniqueFd fd_;
  std::string leader_address_;
  std::string received_;
};

}  // namespace gradwire::cli
