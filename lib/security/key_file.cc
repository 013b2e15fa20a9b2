// SPDX-License-Identifier: BSD-3-Clause
#include "security/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "security/files/descriptor.h"
#include "security/files/key_bytes.h"

namespace gradwire::security {
namespace {

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

}  // namespace

Result<void> make_key_file(const std::string& path) {
  Secret32 key;
  do {
    if (auto drawn = draw(key.span()); !drawn) return drawn;
  } while (!why_no_key(key.span()).empty());
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.get() < 0) {
    if (errno == EEXIST) {
      return refuse_key_file(ErrorCode::kBusy, path,
                             "is there already, and is left as it is: give another name");
    }
    return failed_key_file(path, "open");
  }
  // The umask may have taken a bit away that the owner needs.
  const bool written = fchmod(file.get(), 0600) == 0 && write_all(file.get(), key.span()) &&
                       fsync(file.get()) == 0 && file.close_now();
  if (!written) {
    const auto error = failed_key_file(path, "write");
    unlink(path.c_str());
    return error;
  }
  return {};
}

Result<Secret32> read_key_file(const std::string& path) {
  Secret32 key;
  if (auto read = read_key_bytes(path, key.span()); !read) return tl::unexpected(read.error());
  return key;
}

}  // namespace gradwire::security
