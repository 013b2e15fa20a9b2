// SPDX-License-Identifier: BSD-3-Clause
#include "tcp/tcp_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace gradwire::perf {
namespace {

constexpr std::string_view kPrefix = "tcp://";
constexpr std::uint64_t kMagic = 0x67772d6d65657431;  // "gw-meet1"

/// What a process sends first; its info follows.
struct Greeting {
  std::uint64_t magic = kMagic;
  std::uint32_t epoch = 0;
  std::uint16_t rank = 0;
  std::uint16_t member = 0;
  std::uint16_t nranks = 0;
  std::uint16_t members = 0;
  std::uint32_t info_bytes = 0;
};
static_assert(sizeof(Greeting) == 24);

Greeting greeting_of(const Options& options, std::size_t info_bytes) {
  Greeting greeting;
  greeting.epoch = options.epoch;
  greeting.rank = options.rank;
  greeting.member = options.member;
  greeting.nranks = options.nranks;
  greeting.members = options.members;
  greeting.info_bytes = static_cast<std::uint32_t>(info_bytes);
  return greeting;
}

/// Rank 0's first member: collects all infos, then sends the table to all.
class Host {
 public:
  Host(const Options& options, std::span<const std::byte> own_info)
      : options_(options),
        info_bytes_(own_info.size()),
        guests_(std::size_t{options.nranks} * options.members) {
    meeting_.rank_infos.resize(options.nranks * info_bytes_);
    std::copy(own_info.begin(), own_info.end(), meeting_.rank_infos.begin());
  }

  Result<Meeting> run(const TcpSocket& listener, std::uint64_t group_id,
                      Clock::time_point deadline) {
    meeting_.group_id = group_id;
    for (std::size_t missing = guests_.size() - 1; missing > 0;) {
      auto socket = tcp_accept(listener, {}, deadline);
      if (!socket) return fail(socket.error().code, missing_text());
      // A foreign connection that sends nothing must not use up everyone's time.
      const auto patience = std::min(deadline, Clock::now() + std::chrono::seconds(2));
      const auto joined = welcome(*socket, patience);
      if (!joined) return tl::unexpected(joined.error());
      if (*joined) --missing;
    }
    for (auto& guest : guests_) {
      if (!guest) continue;
      auto told = tcp_send_all(*guest, std::as_bytes(std::span(&group_id, 1)), deadline);
      if (told) told = tcp_send_all(*guest, meeting_.rank_infos, deadline);
      if (!told) return tl::unexpected(told.error());
    }
    return std::move(meeting_);
  }

 private:
  /// @return whether one more process has come; an error if it was started with other options.
  Result<bool> welcome(TcpSocket& socket, Clock::time_point deadline) {
    Greeting said;
    if (!tcp_receive_all(socket, std::as_writable_bytes(std::span(&said, 1)), deadline) ||
        said.magic != kMagic || said.epoch != options_.epoch) {
      return false;
    }
    if (said.nranks != options_.nranks || said.members != options_.members ||
        said.rank >= options_.nranks || said.member >= options_.members ||
        said.info_bytes != info_bytes_) {
      return fail(
          ErrorCode::kMismatch,
          fmt::format("rank {} member {} has --nranks {} --members {} and {} bytes of info, but "
                      "rank 0 has {}, {} and {}: give all ranks the same transport and options",
                      said.rank, said.member, said.nranks, said.members, said.info_bytes,
                      options_.nranks, options_.members, info_bytes_));
    }
    std::vector<std::byte> info(info_bytes_);
    if (!tcp_receive_all(socket, info, deadline)) return false;
    auto& place = guests_[std::size_t{said.rank} * options_.members + said.member];
    const bool is_host = said.rank == 0 && said.member == 0;
    if (is_host || place.has_value()) {
      return fail(ErrorCode::kMismatch, fmt::format("two processes call themselves rank {} member "
                                                    "{}: give each its own --rank and --member",
                                                    said.rank, said.member));
    }
    if (said.member == 0) {
      std::copy(info.begin(), info.end(),
                meeting_.rank_infos.begin() + static_cast<std::ptrdiff_t>(said.rank * info_bytes_));
    }
    place = std::move(socket);
    return true;
  }

  [[nodiscard]] std::string missing_text() const {
    std::size_t at = 1;
    while (guests_[at].has_value()) ++at;
    return fmt::format(
        "rank {} member {} did not come to {}: is it running, with the same --epoch?",
        at / options_.members, at % options_.members, options_.rendezvous);
  }

  const Options& options_;
  const std::size_t info_bytes_;
  std::vector<std::optional<TcpSocket>> guests_;  ///< [nranks * members]; never the first
  Meeting meeting_;
};

}  // namespace

bool is_tcp_rendezvous(const std::string& rendezvous) { return rendezvous.starts_with(kPrefix); }

Result<std::pair<std::string, std::uint16_t>> parse_tcp_rendezvous(const std::string& rendezvous) {
  const std::string_view text = std::string_view(rendezvous).substr(kPrefix.size());
  const std::size_t colon = text.rfind(':');
  std::uint16_t port = 0;
  bool good = colon != std::string_view::npos && colon > 0;
  std::string host(text.substr(0, good ? colon : 0));
  if (good) {
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data() + colon + 1, end, port);
    good = error == std::errc{} && stopped == end && port > 0;
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (!good || host.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--rendezvous '{}': must be a directory or tcp://HOST:PORT, such as "
                            "tcp://10.0.0.1:18500 or tcp://[fd00::1]:18500",
                            rendezvous));
  }
  return std::pair(std::move(host), port);
}

Result<Meeting> meet_by_tcp(const Options& options, std::uint64_t group_id,
                            std::span<const std::byte> own_info, Clock::time_point deadline) {
  const auto place = parse_tcp_rendezvous(options.rendezvous);
  if (!place) return tl::unexpected(place.error());
  const auto& [host, port] = *place;
  if (options.rank == 0 && options.member == 0) {
    const auto listener = tcp_listen(host, port, {});
    if (!listener) return tl::unexpected(listener.error());
    return Host(options, own_info).run(*listener, group_id, deadline);
  }
  auto socket = tcp_connect(host, port, {}, deadline);
  if (!socket) return tl::unexpected(socket.error());
  const Greeting greeting = greeting_of(options, own_info.size());
  auto moved = tcp_send_all(*socket, std::as_bytes(std::span(&greeting, 1)), deadline);
  if (moved) moved = tcp_send_all(*socket, own_info, deadline);
  Meeting meeting;
  meeting.rank_infos.resize(options.nranks * own_info.size());
  if (moved) {
    moved =
        tcp_receive_all(*socket, std::as_writable_bytes(std::span(&meeting.group_id, 1)), deadline);
  }
  if (moved) moved = tcp_receive_all(*socket, meeting.rank_infos, deadline);
  if (!moved) {
    return fail(moved.error().code,
                fmt::format("rank 0 at {} did not say who the other ranks are: {}",
                            options.rendezvous, moved.error().message));
  }
  return meeting;
}

}  // namespace gradwire::perf
