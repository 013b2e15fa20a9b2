// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/stale_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "ipc/unique_fd.h"

namespace gradwire::ipc {
namespace {

class StaleSocketFixture {
 public:
  StaleSocketFixture() {
    char name[] = "/tmp/gradwire-stale-XXXXXX";
    folder_ = ::mkdtemp(name);
    path = folder_ + "/link.sock";
  }
  ~StaleSocketFixture() { std::filesystem::remove_all(folder_); }

  /// A socket at the path, which listens as long as the descriptor lives.
  UniqueFd listen(int type = SOCK_SEQPACKET) const {
    UniqueFd fd(::socket(AF_UNIX, type, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(::listen(fd.get(), 1) == 0);
    return fd;
  }

  std::string path;

 private:
  std::string folder_;
};

}  // namespace

TEST_CASE_METHOD(StaleSocketFixture, "where nothing is, nothing is removed") {
  const auto removed = remove_stale_socket(path);
  REQUIRE(removed);
  CHECK_FALSE(*removed);
}

TEST_CASE_METHOD(StaleSocketFixture, "the socket of a process that is gone is removed") {
  listen().reset();
  REQUIRE(std::filesystem::is_socket(path));
  const auto removed = remove_stale_socket(path);
  REQUIRE(removed);
  CHECK(*removed);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE_METHOD(StaleSocketFixture, "a socket that somebody listens on is left alone") {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const UniqueFd listener = listen(type);
    const auto removed = remove_stale_socket(path);
    REQUIRE_FALSE(removed);
    CHECK(removed.error().code == ErrorCode::kBusy);
    CHECK_THAT(removed.error().message, Catch::Contains(path));
    CHECK(std::filesystem::is_socket(path));
    std::filesystem::remove(path);
  }
}

TEST_CASE_METHOD(StaleSocketFixture, "what is no socket is never removed") {
  std::ofstream(path) << "precious";
  auto removed = remove_stale_socket(path);
  REQUIRE_FALSE(removed);
  CHECK(removed.error().code == ErrorCode::kInvalidArgument);
  CHECK(std::filesystem::file_size(path) == 8);
  std::filesystem::remove(path);
  // Nor a link to a socket: it is somebody's.
  std::filesystem::create_symlink(path + ".target", path);
  CHECK_FALSE(remove_stale_socket(path));
  CHECK(std::filesystem::is_symlink(path));
}

TEST_CASE("a path that no socket can have is refused") {
  CHECK(remove_stale_socket("").error().code == ErrorCode::kInvalidArgument);
  CHECK(remove_stale_socket(std::string(108, 'x')).error().code == ErrorCode::kInvalidArgument);
}

}  // namespace gradwire::ipc
