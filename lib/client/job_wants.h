// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a job wants of its groups' packets, and its own key: from the caller, or else from the
/// environment (GRADWIRE_SECURITY, GRADWIRE_JOB_KEY_FILE). The key goes to the daemon and is
/// cleared here. Any thread; allocates, and reads the key's file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "ipc/control_messages.h"

namespace gradwire::client {

/// Clears itself.
class JobWants {
 public:
  JobWants() = default;
  JobWants(const JobWants&) = delete;
  JobWants& operator=(const JobWants&) = delete;
  /// `other` wants nothing then.
  JobWants(JobWants&& other) noexcept : request_(other.request_) { other.clear(); }
  JobWants& operator=(JobWants&&) = delete;
  ~JobWants() { clear(); }

  /// @param security  as gw_security: 0 is the environment's, and without one the daemon's.
  /// @param job_key   32 bytes; nullptr: the environment's.
  /// @return what is wrong with a value, with a variable or with the key's file.
  [[nodiscard]] static Result<JobWants> of(std::int32_t security, const void* job_key,
                                           std::uint64_t job_key_bytes);

  [[nodiscard]] ipc::WantedMode mode() const noexcept { return request_.mode; }
  [[nodiscard]] bool has_key() const noexcept { return request_.has_job_key != 0; }
  /// The body of a request for an entry; empty if nothing is wanted.
  [[nodiscard]] std::span<const std::byte> body() const noexcept;
  /// Whether the daemon's entry says what was asked for. One of an older release says nothing.
  [[nodiscard]] Result<void> check(const ipc::RankInfo& entry) const;

 private:
  void clear() noexcept;
  ipc::DescribeRequest request_;
};

/// Of the job's key that an entry names; zeros: of none.
[[nodiscard]] ipc::JobKeyId job_key_of(const ipc::RankInfo& entry) noexcept;

}  // namespace gradwire::client
