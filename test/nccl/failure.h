// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Why a run failed: a sentence that says where, with which values, and for how long. Allocates.
#pragma once

#include <stdexcept>
#include <string>

namespace gradwire::nccl {

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& text) : std::runtime_error(text) {}
};

/// A call of the plug-in said that it failed. It is no failure of the run if a peer is gone.
class CallFailed : public Failure {
 public:
  explicit CallFailed(const std::string& text) : Failure(text) {}
};

}  // namespace gradwire::nccl
