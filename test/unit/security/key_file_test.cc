// SPDX-License-Identifier: BSD-3-Clause
#include "security/key_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "hex.h"
#include "security/key_schedule.h"
#include "support/temporary_directory.h"

namespace gradwire::security {
namespace {

struct Folder : gradwire::test::TemporaryDirectory {
  std::string write(const char* name, std::string_view bytes, mode_t mode = 0600) const {
    std::ofstream(at(name), std::ios::binary) << bytes;
    REQUIRE(chmod(at(name).c_str(), mode) == 0);
    return at(name);
  }
};

const std::string kGood("\x80\x01 random enough for this test!!", 32);

void check_refused(const std::string& path, ErrorCode code, const char* why) {
  INFO(why);
  const auto key = read_key_file(path);
  REQUIRE_FALSE(key);
  CHECK(key.error().code == code);
  CHECK_THAT(key.error().message, Catch::Contains("key file " + path + ": "));
  CHECK_THAT(key.error().message, Catch::Contains(why));
}

}  // namespace

TEST_CASE("a made key file is read again, and is another each time") {
  const Folder folder;
  REQUIRE(make_key_file(folder.at("a")));
  REQUIRE(make_key_file(folder.at("b")));
  struct stat status {};
  REQUIRE(stat(folder.at("a").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  CHECK(status.st_size == 32);
  const auto a = read_key_file(folder.at("a"));
  const auto b = read_key_file(folder.at("b"));
  REQUIRE(a);
  REQUIRE(b);
  CHECK(text_of(FileKeys(*a).id) != text_of(FileKeys(*b).id));
  CHECK(text_of(FileKeys(*a).id).size() == 16);
}

TEST_CASE("a key file's mode does not depend on the umask") {
  const Folder folder;
  const mode_t before = umask(0777);
  const auto made = make_key_file(folder.at("key"));
  umask(before);
  REQUIRE(made);
  CHECK(read_key_file(folder.at("key")));
}

TEST_CASE("making a key leaves what is there alone") {
  const Folder folder;
  const std::string path = folder.write("key", kGood);
  const auto made = make_key_file(path);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == ErrorCode::kBusy);
  CHECK_THAT(made.error().message, Catch::Contains("is there already"));
  CHECK(to_hex(read_key_file(path)->span()) == to_hex(std::as_bytes(std::span(kGood))));
  // Not through a link either, also one that leads nowhere.
  std::filesystem::create_symlink(folder.at("nowhere"), folder.at("link"));
  CHECK_FALSE(make_key_file(folder.at("link")));
  CHECK_FALSE(std::filesystem::exists(folder.at("nowhere")));
  const auto nowhere = make_key_file(folder.at("no/such/folder"));
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().code == ErrorCode::kNotFound);
}

TEST_CASE("a key that cannot be written whole leaves no file, and says why") {
  const Folder folder;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  struct rlimit half = before;
  half.rlim_cur = 16;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &half) == 0);
  errno = 0;  // what is said must not be what failed before
  const auto made = make_key_file(folder.at("key"));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  REQUIRE_FALSE(made);
  CHECK_THAT(made.error().message, Catch::Contains("write: File too large"));
  CHECK_FALSE(std::filesystem::exists(folder.at("key")));
}

TEST_CASE("a key file that is none is refused by name") {
  const Folder folder;
  check_refused(folder.at("none"), ErrorCode::kNotFound, "No such file");
  check_refused(folder.write("empty", ""), ErrorCode::kInvalidArgument,
                "has 0 bytes, must have 32");
  check_refused(folder.write("short", kGood.substr(1)), ErrorCode::kInvalidArgument,
                "has 31 bytes, must have 32");
  check_refused(folder.write("long", kGood + "\n"), ErrorCode::kInvalidArgument,
                "has 33 bytes, must have 32");
  check_refused(folder.write("zeros", std::string(32, '\0')), ErrorCode::kInvalidArgument,
                "all its bytes are alike");
  check_refused(folder.write("text", "correct horse battery staple 123"),
                ErrorCode::kInvalidArgument, "is text");
  check_refused(folder.at(""), ErrorCode::kInvalidArgument, "not a regular file");
  REQUIRE(mkfifo(folder.at("pipe").c_str(), 0600) == 0);
  check_refused(folder.at("pipe"), ErrorCode::kInvalidArgument, "not a regular file");
}

TEST_CASE("a key file that others may use is refused") {
  const Folder folder;
  for (const mode_t mode : {0640, 0604, 0660, 0601, 0700, 04600}) {
    check_refused(folder.write("key", kGood, mode), ErrorCode::kPermission, "must be 0600 or 0400");
  }
  CHECK(read_key_file(folder.write("key", kGood, 0400)));
  if (geteuid() != 0) return;  // only root may give files away
  REQUIRE(chown(folder.at("key").c_str(), 12345, 12345) == 0);
  check_refused(folder.at("key"), ErrorCode::kPermission, "belongs to user 12345");
}

TEST_CASE("systemd's credentials may be readable for their group, if they are root's") {
  const Folder folder;
  std::filesystem::create_directory(folder.at("credentials"));
  std::filesystem::create_directory(folder.at("credentials-not"));
  const std::string in = folder.write("credentials/key", kGood, 0440);
  const std::string out = folder.write("credentials-not/key", kGood, 0440);
  check_refused(in, ErrorCode::kPermission, "has mode 0440");
  REQUIRE(setenv("CREDENTIALS_DIRECTORY", folder.at("credentials").c_str(), 1) == 0);
  check_refused(out, ErrorCode::kPermission, "has mode 0440");
  // By what was opened, not by its name.
  check_refused(folder.at("credentials/../credentials-not/key"), ErrorCode::kPermission,
                "has mode 0440");
  std::filesystem::create_symlink(out, folder.at("credentials/link"));
  check_refused(folder.at("credentials/link"), ErrorCode::kPermission, "has mode 0440");
  check_refused(folder.write("credentials/open", kGood, 0444), ErrorCode::kPermission,
                "has mode 0444");
  check_refused(folder.write("credentials/group", kGood, 0640), ErrorCode::kPermission,
                "has mode 0640");
  if (geteuid() == 0) {
    CHECK(read_key_file(in));
    std::filesystem::create_symlink(folder.at("credentials"), folder.at("by-link"));
    CHECK(read_key_file(folder.at("by-link/key")));
    REQUIRE(chown(in.c_str(), 12345, 0) == 0);
    check_refused(in, ErrorCode::kPermission, "belongs to user 12345");
  } else {
    check_refused(in, ErrorCode::kPermission, "has mode 0440");
  }
  REQUIRE(unsetenv("CREDENTIALS_DIRECTORY") == 0);
}

TEST_CASE("a link to a key file is followed, as secrets of Kubernetes are links") {
  const Folder folder;
  std::filesystem::create_symlink(folder.write("key", kGood), folder.at("link"));
  CHECK(read_key_file(folder.at("link")));
  std::filesystem::create_symlink(folder.write("open", kGood, 0644), folder.at("other"));
  check_refused(folder.at("other"), ErrorCode::kPermission, "has mode 0644");
}

}  // namespace gradwire::security
