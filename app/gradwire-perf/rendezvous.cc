// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "tcp/tcp_rendezvous.h"

namespace gradwire::perf {
namespace {

std::string path_of(const Options& options, const std::string& key) {
  return fmt::format("{}/gradwire-perf.{}.{}", options.rendezvous, options.epoch, key);
}

std::string info_key(std::uint32_t rank, std::uint32_t member) {
  return fmt::format("info.{}.{}", rank, member);
}

/// Renamed into place, so that nobody reads half of it.
Result<void> write_file(const std::string& path, std::span<const std::byte> value) {
  const std::string draft = fmt::format("{}.{}", path, ::getpid());
  std::ofstream file(draft, std::ios::binary);
  // A rank info has a secret.
  std::error_code ignored;
  std::filesystem::permissions(
      draft, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, ignored);
  file.write(reinterpret_cast<const char*>(value.data()),
             static_cast<std::streamsize>(value.size()));
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("writing {}: {}", path, strerror(errno)));
  }
  return {};
}

/// What a rank says that could not go on, so that nobody waits for it.
std::string failure_path(const Options& options) { return path_of(options, "failed"); }

/// What that says, if it is not of an earlier run: nobody fails before all ranks have come.
std::optional<std::string> failure(const Options& options) {
  std::error_code error;
  const auto said = std::filesystem::last_write_time(failure_path(options), error);
  if (error) return {};
  const auto came = std::filesystem::last_write_time(
      path_of(options, info_key(options.rank, options.member)), error);
  std::ifstream file(failure_path(options));
  if (error || !file || said < came) return {};
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

Result<std::vector<std::byte>> await_file(const Options& options, const std::string& key,
                                          std::size_t bytes, Clock::time_point deadline) {
  const std::string path = path_of(options, key);
  while (true) {
    std::ifstream file(path, std::ios::binary);
    if (file) {
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      if (text.size() != bytes) {
        return fail(
            ErrorCode::kMismatch,
            fmt::format("{} has {} bytes, but should have {}: is another release running there?",
                        path, text.size(), bytes));
      }
      std::vector<std::byte> value(bytes);
      std::memcpy(value.data(), text.data(), bytes);
      return value;
    }
    if (const auto failed = failure(options)) return fail(ErrorCode::kUnavailable, *failed);
    if (Clock::now() >= deadline) {
      return fail(
          ErrorCode::kTimedOut,
          fmt::format("{} did not come: is that rank running, with the same --epoch?", path));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::uint64_t random_id() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

Result<Meeting> meet_by_files(const Options& options, std::span<const std::byte> own_info,
                              Clock::time_point deadline) {
  Meeting meeting;
  std::error_code error;
  std::filesystem::create_directories(options.rendezvous, error);
  if (error) {
    return fail(ErrorCode::kSystem,
                fmt::format("directory {}: {}", options.rendezvous, error.message()));
  }
  if (options.rank == 0 && options.member == 0) {
    ::unlink(failure_path(options).c_str());  // of an earlier run
    const std::uint64_t id = random_id();
    auto written = write_file(path_of(options, "id"), std::as_bytes(std::span(&id, 1)));
    if (!written) return tl::unexpected(written.error());
  }
  auto written = write_file(path_of(options, info_key(options.rank, options.member)), own_info);
  if (!written) return tl::unexpected(written.error());
  const std::uint32_t ranks = std::uint32_t{options.nranks} + options.folding_ranks;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto info = await_file(options, info_key(rank, 0), own_info.size(), deadline);
    if (!info) return tl::unexpected(info.error());
    meeting.rank_infos.insert(meeting.rank_infos.end(), info->begin(), info->end());
  }
  const auto id = await_file(options, "id", sizeof(meeting.group_id), deadline);
  if (!id) return tl::unexpected(id.error());
  std::memcpy(&meeting.group_id, id->data(), sizeof(meeting.group_id));
  return meeting;
}

}  // namespace

Result<Meeting> meet(const Options& options, std::span<const std::byte> own_info) {
  if (options.rendezvous.empty()) {
    return Meeting{random_id(), {own_info.begin(), own_info.end()}};
  }
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(options.timeout_s));
  if (is_tcp_rendezvous(options.rendezvous)) {
    return meet_by_tcp(options, random_id(), own_info, deadline);
  }
  auto meeting = meet_by_files(options, own_info, deadline);
  if (!meeting) leave_no_trace(options);
  return meeting;
}

void leave_no_trace(const Options& options) noexcept {
  if (options.rendezvous.empty() || is_tcp_rendezvous(options.rendezvous)) return;
  ::unlink(path_of(options, info_key(options.rank, options.member)).c_str());
  if (options.rank == 0 && options.member == 0) ::unlink(path_of(options, "id").c_str());
}

void leave(const Options& options, const Result<void>& joined) {
  if (!joined && !options.rendezvous.empty() && !is_tcp_rendezvous(options.rendezvous)) {
    const std::string text =
        fmt::format("rank {} could not join: {}", options.rank, joined.error().message);
    // If it cannot be written they wait, as for a rank that has died.
    (void)write_file(failure_path(options), std::as_bytes(std::span(text)));
  }
  leave_no_trace(options);
}

}  // namespace gradwire::perf
