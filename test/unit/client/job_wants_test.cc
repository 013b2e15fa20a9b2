// SPDX-License-Identifier: BSD-3-Clause
// What a job wants of its packets, from the C interface and the environment to the daemon.
#include "client/job_wants.h"

#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "fixture.h"

using namespace gradwire;
using namespace gradwire::test;
using client::JobWants;

namespace {

/// 32 bytes that are no text.
const std::string kKey("\x81\x02 random enough for this test!!", 32);

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    REQUIRE(::setenv(name, value.c_str(), 1) == 0);
  }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::string refusal(std::int32_t security, const void* key = nullptr, std::uint64_t bytes = 0) {
  const auto wants = JobWants::of(security, key, bytes);
  return wants ? std::string() : wants.error().message;
}

/// A group of one process that wants this.
gw_status join(gw_client* client, gw_security security, const std::string& key = {}) {
  gw_describe_options options{};
  options.struct_bytes = sizeof options;
  options.security = security;
  options.job_key = key.empty() ? nullptr : key.data();
  options.job_key_bytes = key.size();
  std::byte info[GW_RANK_INFO_BYTES];
  if (const gw_status described = gw_client_describe_for(client, &options, info, sizeof info);
      described != GW_OK) {
    return described;
  }
  static std::uint32_t epoch = 0;
  gw_group_config config{};
  config.struct_bytes = sizeof config;
  config.epoch = ++epoch;
  config.group_id = 9;
  config.nranks = 1;
  config.rank_infos = info;
  config.rank_infos_bytes = sizeof info;
  config.security = security;
  config.job_key = options.job_key;
  config.job_key_bytes = static_cast<std::uint32_t>(key.size());
  gw_group* group = nullptr;
  const gw_status joined = gw_group_join(client, &config, &group);
  gw_group_free(group);
  return joined;
}

}  // namespace

TEST_CASE("a job that wants nothing sends what it ever sent") {
  const auto wants = JobWants::of(0, nullptr, 0);
  REQUIRE(wants);
  CHECK(wants->body().empty());
  CHECK(wants->mode() == ipc::WantedMode::kDaemons);
  CHECK_FALSE(wants->has_key());
  Fixture fixture;
  gw_client* client = fixture.open();
  CHECK(join(client, GW_SECURITY_DEFAULT) == GW_OK);
  CHECK(fixture.daemon().described_bytes == 0);
  CHECK(fixture.daemon().joined_mode == ipc::WantedMode::kDaemons);
  gw_close(client);
}

TEST_CASE("what a job wants comes from the caller, and else from the environment") {
  CHECK(JobWants::of(GW_SECURITY_ENCRYPT, nullptr, 0)->mode() == ipc::WantedMode::kEncrypt);
  const Variable security("GRADWIRE_SECURITY", "authenticate");
  CHECK(JobWants::of(0, nullptr, 0)->mode() == ipc::WantedMode::kAuthenticate);
  CHECK(JobWants::of(GW_SECURITY_OFF, nullptr, 0)->mode() == ipc::WantedMode::kOff);
  CHECK_THAT(refusal(4), Catch::Contains("security is 4: it must be 0 to 3"));
  CHECK_THAT(refusal(-1), Catch::Contains("security is -1"));
  const Variable wrong("GRADWIRE_SECURITY", "tls");
  CHECK_THAT(refusal(0), Catch::Contains("GRADWIRE_SECURITY is 'tls': it must be off, auth"));
}

TEST_CASE("a job's key is 32 bytes, of the caller or of a file") {
  CHECK(JobWants::of(0, kKey.data(), kKey.size())->has_key());
  CHECK(JobWants::of(0, kKey.data(), kKey.size())->body().size() == sizeof(ipc::DescribeRequest));
  CHECK_THAT(refusal(0, kKey.data(), 31), Catch::Contains("job_key_bytes is 31"));
  CHECK_THAT(refusal(0, nullptr, 32), Catch::Contains("job_key_bytes is 32"));
  Fixture fixture;
  const std::string path = fixture.path() + ".key";
  std::ofstream(path, std::ios::binary) << kKey;
  const Variable file("GRADWIRE_JOB_KEY_FILE", path);
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  CHECK_THAT(refusal(0),
             Catch::Contains("GRADWIRE_JOB_KEY_FILE: key file " + path + ": has mode 0644"));
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  const auto wants = JobWants::of(0, nullptr, 0);
  REQUIRE(wants);
  const auto request = ipc::body_as<ipc::DescribeRequest>(wants->body());
  REQUIRE(request);
  CHECK(std::memcmp(request->job_key, kKey.data(), 32) == 0);
}

TEST_CASE("a join says what its entry says") {
  Fixture fixture;
  gw_client* client = fixture.open();
  CHECK(join(client, GW_SECURITY_ENCRYPT) == GW_OK);
  CHECK(fixture.daemon().joined_mode == ipc::WantedMode::kEncrypt);
  CHECK(fixture.daemon().joined_job == 0);
  CHECK(join(client, GW_SECURITY_AUTHENTICATE, kKey) == GW_OK);
  CHECK(fixture.daemon().joined_mode == ipc::WantedMode::kAuthenticate);
  CHECK(fixture.daemon().joined_job == 0x81);
  {
    const Variable security("GRADWIRE_SECURITY", "encrypt");
    CHECK(join(client, GW_SECURITY_DEFAULT) == GW_OK);
    CHECK(fixture.daemon().joined_mode == ipc::WantedMode::kEncrypt);
  }
  CHECK(join(client, 7) == GW_INVALID_ARGUMENT);
  gw_close(client);
}

TEST_CASE("a daemon that knows no keys is not taken for one that does what it was asked for") {
  Fixture fixture;
  fixture.daemon().is_old = true;
  gw_client* client = fixture.open();
  CHECK(join(client, GW_SECURITY_ENCRYPT) == GW_UNSUPPORTED);
  CHECK_THAT(gw_last_error(),
             Catch::Contains("the job wants encrypt") && Catch::Contains("older release"));
  CHECK(join(client, GW_SECURITY_OFF, kKey) == GW_UNSUPPORTED);
  CHECK_THAT(gw_last_error(), Catch::Contains("the job has a key of its own"));
  CHECK(join(client, GW_SECURITY_OFF) == GW_OK);
  gw_close(client);
}
