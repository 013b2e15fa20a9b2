// SPDX-License-Identifier: BSD-3-Clause
#include "security/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gradwire::security {
namespace {

constexpr std::size_t kKeyBytes = 32;

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close_now(); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  /// @return whether the kernel had nothing to complain of.
  bool close_now() noexcept {
    const bool fine = fd_ < 0 || close(fd_) == 0;
    fd_ = -1;
    return fine;
  }

 private:
  int fd_;
};

tl::unexpected<Error> refused(ErrorCode code, const std::string& path, const std::string& why) {
  return fail(code, fmt::format("key file {}: {}", path, why));
}

/// What the kernel says of a call that failed.
tl::unexpected<Error> failed(const std::string& path, const char* call) {
  const int error = errno;
  const ErrorCode code = error == ENOENT   ? ErrorCode::kNotFound
                         : error == EACCES ? ErrorCode::kPermission
                         : error == EEXIST ? ErrorCode::kBusy
                                           : ErrorCode::kSystem;
  return refused(code, path, fmt::format("{}: {}", call, std::strerror(error)));
}

/// @return whether all was written; errno says why not.
bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // What finds room for a part alone is asked again, and then says why.
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

Result<void> check_file(const std::string& path, const struct stat& file) {
  if (!S_ISREG(file.st_mode)) {
    return refused(ErrorCode::kInvalidArgument, path, "is not a regular file");
  }
  if (file.st_uid != 0 && file.st_uid != geteuid()) {
    return refused(
        ErrorCode::kPermission, path,
        fmt::format("belongs to user {}, must belong to root or to user {}, who reads it",
                    file.st_uid, geteuid()));
  }
  if (const unsigned mode = file.st_mode & 07777; (mode & ~0600u) != 0) {
    return refused(ErrorCode::kPermission, path,
                   fmt::format("has mode {:04o}, must be 0600 or 0400: chmod 600 {}", mode, path));
  }
  return {};
}

Result<void> check_bytes(const std::string& path, std::span<const std::byte> key) {
  if (std::all_of(key.begin(), key.end(), [&](std::byte b) { return b == key[0]; })) {
    return refused(ErrorCode::kInvalidArgument, path,
                   "all its bytes are alike, which is no random key: gradwire key make");
  }
  const auto printable = [](std::byte b) {
    const auto c = std::to_integer<unsigned char>(b);
    return (c >= 0x20 && c < 0x7f) || (c >= '\t' && c <= '\r');
  };
  if (std::all_of(key.begin(), key.end(), printable)) {
    return refused(ErrorCode::kInvalidArgument, path,
                   "is text: a key is 32 random bytes, neither a password nor hexadecimal or "
                   "base64: gradwire key make");
  }
  return {};
}

}  // namespace

Result<void> make_key_file(const std::string& path) {
  Secret32 key;
  do {
    if (auto drawn = draw(key.span()); !drawn) return drawn;
  } while (!check_bytes(path, key.span()));
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.get() < 0) {
    if (errno == EEXIST) {
      return refused(ErrorCode::kBusy, path,
                     "is there already, and is left as it is: give another name");
    }
    return failed(path, "open");
  }
  // The umask may have taken a bit away that the owner needs.
  const bool written = fchmod(file.get(), 0600) == 0 && write_all(file.get(), key.span()) &&
                       fsync(file.get()) == 0 && file.close_now();
  if (!written) {
    const auto error = failed(path, "write");
    unlink(path.c_str());
    return error;
  }
  return {};
}

Result<Secret32> read_key_file(const std::string& path) {
  // Not to stand still at a pipe that nobody writes to.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return failed(path, "open");
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return failed(path, "fstat");
  if (auto fine = check_file(path, status); !fine) return tl::unexpected(fine.error());
  // One more, to see that there is no more.
  SecretBytes<kKeyBytes + 1> bytes;
  std::size_t had = 0;
  while (had < kKeyBytes + 1) {
    const auto rest = bytes.span().subspan(had);
    const ssize_t got = read(file.get(), rest.data(), rest.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(path, "read");
    if (got == 0) break;
    had += static_cast<std::size_t>(got);
  }
  if (had != kKeyBytes) {
    return refused(ErrorCode::kInvalidArgument, path,
                   fmt::format("has {} bytes, must have {}", status.st_size, kKeyBytes));
  }
  const Secret32 key(std::as_const(bytes).span().first<kKeyBytes>());
  if (auto fine = check_bytes(path, key.span()); !fine) return tl::unexpected(fine.error());
  return key;
}

}  // namespace gradwire::security
