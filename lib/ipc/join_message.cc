// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/join_message.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/system_error.h"

namespace gradwire::ipc {
namespace {

/// After this nobody can truncate or change it.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

tl::unexpected<Error> bad(std::string text) {
  return fail(ErrorCode::kInvalidArgument, std::move(text));
}

template <class T>
void append(std::vector<std::byte>& body, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  body.insert(body.end(), bytes.begin(), bytes.end());
}

/// Takes out.size() elements from the front of `body`, which must have as many.
template <class T>
void take(std::span<const std::byte>& body, std::vector<T>& out) {
  const std::size_t bytes = out.size() * sizeof(T);
  if (bytes != 0) std::memcpy(out.data(), body.data(), bytes);
  body = body.subspan(bytes);
}

}  // namespace

Result<JoinBody> parse_join(std::span<const std::byte> body) {
  JoinBody join;
  if (body.size() < sizeof(JoinRequest)) {
    return bad(fmt::format("join request of {} bytes, must have at least {}", body.size(),
                           sizeof(JoinRequest)));
  }
  std::memcpy(&join.request, body.data(), sizeof(JoinRequest));
  const std::size_t nranks = join.request.nranks;
  const std::size_t processes = join.request.processes;
  if (nranks == 0 || nranks > kMaxRanks) {
    return bad(fmt::format("a group of {} ranks, must be 1 to {}", nranks, kMaxRanks));
  }
  if (processes > kMaxProcesses) {
    return bad(
        fmt::format("a group of {} processes, must be at most {}", processes, kMaxProcesses));
  }
  constexpr std::uint16_t known = JoinRequest::kHasWants | JoinRequest::kTransfersAlone;
  if ((join.request.flags & ~known) != 0) {
    return bad(fmt::format("join request with flags {:#x}, of which this daemon knows {:#x}",
                           join.request.flags, known));
  }
  const std::size_t wants = join.request.has_wants() ? sizeof(JoinWants) : 0;
  const std::size_t expected =
      sizeof(JoinRequest) + nranks * sizeof(RankInfo) + processes * sizeof(std::uint16_t) + wants;
  if (body.size() != expected) {
    return bad(fmt::format("join request for {} ranks and {} processes has {} bytes, must have {}",
                           nranks, processes, body.size(), expected));
  }
  body = body.subspan(sizeof(JoinRequest));
  join.table.resize(nranks);
  join.ranks.resize(processes);
  take(body, join.table);
  take(body, join.ranks);
  if (wants == 0) return join;
  std::memcpy(&join.wants, body.data(), sizeof join.wants);
  if (join.wants.mode > WantedMode::kEncrypt) {
    return bad(fmt::format("join request that wants security {}, must be 0 to {}",
                           static_cast<std::uint32_t>(join.wants.mode),
                           static_cast<std::uint32_t>(WantedMode::kEncrypt)));
  }
  return join;
}

Result<JoinBody> parse_join(const Message& message) {
  if (message.fds.empty()) return parse_join(std::span<const std::byte>(message.body));
  if (!message.body.empty() || message.fds.size() != 1) {
    return bad(
        fmt::format("a join request of {} bytes came with {} file descriptors: it must be in the "
                    "message, without any, or in a memfd beside an empty one",
                    message.body.size(), message.fds.size()));
  }
  const auto body = from_memfd(message.fds.front().get(), kMaxJoinBytes);
  if (!body) return tl::unexpected(body.error());
  return parse_join(std::span<const std::byte>(*body));
}

std::vector<std::byte> encode_join(JoinRequest request, std::span<const RankInfo> table,
                                   std::span<const std::uint16_t> ranks, const JoinWants& wants) {
  request.nranks = static_cast<std::uint16_t>(table.size());
  request.processes = static_cast<std::uint32_t>(ranks.size());
  // Daemons of older releases know none.
  request.flags &= static_cast<std::uint16_t>(~JoinRequest::kHasWants);
  if (!(wants == JoinWants{})) request.flags |= JoinRequest::kHasWants;
  std::vector<std::byte> body;
  body.reserve(sizeof request + table.size_bytes() + ranks.size_bytes() + sizeof wants);
  append(body, std::span<const JoinRequest>(&request, 1));
  append(body, table);
  append(body, ranks);
  if (request.has_wants()) append(body, std::span<const JoinWants>(&wants, 1));
  return body;
}

Result<UniqueFd> to_memfd(std::span<const std::byte> body) {
  UniqueFd fd(::memfd_create("gradwire join", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_error("memfd_create for a group's table");
  for (std::size_t done = 0; done < body.size();) {
    const ssize_t written = ::write(fd.get(), body.data() + done, body.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error("writing a group's table to a memfd");
    done += static_cast<std::size_t>(written);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    return system_error("sealing the memfd of a group's table");
  }
  return fd;
}

Result<std::vector<std::byte>> from_memfd(int fd, std::size_t most_bytes) {
  // Only a memory file has seals. Reading anything else, such as a pipe, could block.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return bad(
        "the file descriptor of a request is no memfd that is sealed against writing, growing and "
        "shrinking");
  }
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return system_error("fstat of a request's memfd");
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (info.st_size < 0 || bytes > most_bytes) {
    return bad(
        fmt::format("the memfd of a request has {} bytes, must be at most {}", bytes, most_bytes));
  }
  std::vector<std::byte> body(bytes);
  for (std::size_t done = 0; done < body.size();) {
    const ssize_t got =
        ::pread(fd, body.data() + done, body.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return bad(fmt::format("the memfd of a request has {} bytes, but only {} could be read",
                             bytes, done));
    }
    done += static_cast<std::size_t>(got);
  }
  return body;
}

}  // namespace gradwire::ipc
