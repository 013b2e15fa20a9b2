// SPDX-License-Identifier: BSD-3-Clause
#include "client/job_wants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "security/files/key_bytes.h"

namespace gradwire::client {
namespace {

// In what an entry says of keys, which begins at 280: doc/security.md, In the entry.
constexpr std::size_t kWantedAt = 282 - 280;
constexpr std::size_t kJobAt = 368 - 280;

/// By WantedMode.
constexpr std::array<std::string_view, 4> kModes = {"", "off", "authenticate", "encrypt"};

Result<ipc::WantedMode> mode_of(std::int32_t security) {
  if (security < 0 || security >= static_cast<std::int32_t>(kModes.size())) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("security is {}: it must be 0 to {}", security, kModes.size() - 1));
  }
  if (security != 0) return static_cast<ipc::WantedMode>(security);
  const char* const text = std::getenv("GRADWIRE_SECURITY");
  if (text == nullptr) return ipc::WantedMode::kDaemons;
  const auto found = std::ranges::find(kModes, std::string_view(text));
  if (found == kModes.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("GRADWIRE_SECURITY is '{}': it must be off, authenticate or encrypt; "
                            "without it the daemon's security.mode counts",
                            text));
  }
  return static_cast<ipc::WantedMode>(found - kModes.begin());
}

}  // namespace

Result<JobWants> JobWants::of(std::int32_t security, const void* job_key,
                              std::uint64_t job_key_bytes) {
  JobWants wants;
  const auto mode = mode_of(security);
  if (!mode) return tl::unexpected(mode.error());
  wants.request_.mode = *mode;
  if ((job_key == nullptr) != (job_key_bytes == 0) ||
      (job_key != nullptr && job_key_bytes != ipc::kJobKeyBytes)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("job_key_bytes is {}: it must be {} with a job_key, and 0 without",
                            job_key_bytes, ipc::kJobKeyBytes));
  }
  if (job_key != nullptr) {
    std::memcpy(wants.request_.job_key, job_key, ipc::kJobKeyBytes);
    wants.request_.has_job_key = 1;
    return wants;
  }
  const char* const file = std::getenv("GRADWIRE_JOB_KEY_FILE");
  if (file == nullptr || *file == '\0') return wants;
  const auto key = std::as_writable_bytes(std::span(wants.request_.job_key));
  if (auto read = security::read_key_bytes(file, key); !read) {
    return fail(read.error().code, "GRADWIRE_JOB_KEY_FILE: " + read.error().message);
  }
  wants.request_.has_job_key = 1;
  return wants;
}

void JobWants::clear() noexcept { explicit_bzero(&request_, sizeof request_); }

std::span<const std::byte> JobWants::body() const noexcept {
  // A daemon of an older release knows no body.
  if (mode() == ipc::WantedMode::kDaemons && !has_key()) return {};
  return ipc::bytes_of(request_);
}

Result<void> JobWants::check(const ipc::RankInfo& entry) const {
  if (mode() > ipc::WantedMode::kOff &&
      entry.keys[kWantedAt] + 1u != static_cast<std::uint32_t>(mode())) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the job wants {}, and the daemon's entry says nothing of it: the "
                            "daemon is of an older release, which seals no packets",
                            kModes[static_cast<std::size_t>(mode())]));
  }
  if (has_key() && job_key_of(entry) == ipc::JobKeyId{}) {
    return fail(ErrorCode::kUnsupported,
                "the job has a key of its own, and the daemon's entry says nothing of it: the "
                "daemon is of an older release, which knows no keys");
  }
  return {};
}

ipc::JobKeyId job_key_of(const ipc::RankInfo& entry) noexcept {
  ipc::JobKeyId id;
  std::copy_n(entry.keys + kJobAt, id.size(), id.begin());
  return id;
}

}  // namespace gradwire::client
