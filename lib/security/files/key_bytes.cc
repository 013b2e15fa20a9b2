// SPDX-License-Identifier: BSD-3-Clause
#include "security/files/key_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "security/files/descriptor.h"

namespace gradwire::security {
namespace {

/// Clears itself.
struct Read {
  std::array<std::byte, kKeyFileBytes + 1> bytes{};
  Read() = default;
  Read(const Read&) = delete;
  Read& operator=(const Read&) = delete;
  ~Read() { explicit_bzero(bytes.data(), bytes.size()); }
};

/// Without links; empty if there is no such file.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real == nullptr ? std::string() : std::string(real.get());
}

/// Whether the open file lies in the folder into which systemd puts this service's credentials.
bool is_credential(int fd) {
  const char* const folder = std::getenv("CREDENTIALS_DIRECTORY");
  if (folder == nullptr || *folder != '/') return false;
  const std::string in = real_path(folder);
  const std::string file = real_path(fmt::format("/proc/self/fd/{}", fd));
  return in.size() > 1 && file.starts_with(in + "/");
}

Result<void> check_file(const std::string& path, int fd, const struct stat& file) {
  if (!S_ISREG(file.st_mode)) {
    return refuse_key_file(ErrorCode::kInvalidArgument, path, "is not a regular file");
  }
  if (file.st_uid != 0 && file.st_uid != geteuid()) {
    return refuse_key_file(
        ErrorCode::kPermission, path,
        fmt::format("belongs to user {}, must belong to root or to user {}, who reads it",
                    file.st_uid, geteuid()));
  }
  const unsigned mode = file.st_mode & 07777;
  if ((mode & ~0600u) == 0 || (mode == 0440 && file.st_uid == 0 && is_credential(fd))) return {};
  return refuse_key_file(
      ErrorCode::kPermission, path,
      fmt::format("has mode {:04o}, must be 0600 or 0400: chmod 600 {}", mode, path));
}

}  // namespace

tl::unexpected<Error> refuse_key_file(ErrorCode code, const std::string& path,
                                      const std::string& why) {
  return fail(code, fmt::format("key file {}: {}", path, why));
}

tl::unexpected<Error> failed_key_file(const std::string& path, const char* call) {
  const int error = errno;
  const ErrorCode code = error == ENOENT   ? ErrorCode::kNotFound
                         : error == EACCES ? ErrorCode::kPermission
                                           : ErrorCode::kSystem;
  return refuse_key_file(code, path, fmt::format("{}: {}", call, std::strerror(error)));
}

std::string why_no_key(KeyBytesIn key) {
  if (std::all_of(key.begin(), key.end(), [&](std::byte b) { return b == key[0]; })) {
    return "all its bytes are alike, which is no random key: gradwire key make";
  }
  const auto printable = [](std::byte b) {
    const auto c = std::to_integer<unsigned char>(b);
    return (c >= 0x20 && c < 0x7f) || (c >= '\t' && c <= '\r');
  };
  if (std::all_of(key.begin(), key.end(), printable)) {
    return "is text: a key is 32 random bytes, neither a password nor hexadecimal or base64: "
           "gradwire key make";
  }
  return {};
}

Result<void> read_key_bytes(const std::string& path, KeyBytes key) {
  // Not to stand still at a pipe that nobody writes to.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return failed_key_file(path, "open");
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return failed_key_file(path, "fstat");
  if (auto fine = check_file(path, file.get(), status); !fine) return fine;
  // One more, to see that there is no more.
  Read got;
  std::size_t had = 0;
  while (had < got.bytes.size()) {
    const ssize_t more = read(file.get(), got.bytes.data() + had, got.bytes.size() - had);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return failed_key_file(path, "read");
    if (more == 0) break;
    had += static_cast<std::size_t>(more);
  }
  if (had != kKeyFileBytes) {
    return refuse_key_file(
        ErrorCode::kInvalidArgument, path,
        fmt::format("has {} bytes, must have {}", status.st_size, kKeyFileBytes));
  }
  const KeyBytesIn read_bytes = std::span(std::as_const(got.bytes)).first<kKeyFileBytes>();
  if (const std::string why = why_no_key(read_bytes); !why.empty()) {
    return refuse_key_file(ErrorCode::kInvalidArgument, path, why);
  }
  std::copy(read_bytes.begin(), read_bytes.end(), key.begin());
  return {};
}

}  // namespace gradwire::security
