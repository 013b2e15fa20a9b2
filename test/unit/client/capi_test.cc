// SPDX-License-Identifier: BSD-3-Clause
// The C interface as such: structs that carry their size, texts, NULL.
#include <cstdlib>
#include <cstring>

#include "fixture.h"

using namespace gradwire::test;

TEST_CASE("every status has a name") {
  for (int i = 0; i <= GW_INTERNAL; ++i) {
    CHECK(std::strncmp(gw_status_name(static_cast<gw_status>(i)), "GW_", 3) == 0);
  }
  CHECK(std::string(gw_status_name(static_cast<gw_status>(99))) == "gw_status?");
  CHECK(gw_abi_version() == GW_ABI_VERSION);
  CHECK(std::strlen(gw_version()) >= 5);
}

TEST_CASE("a socket without a daemon is unavailable, by its name") {
  gw_client* client = nullptr;
  CHECK(gw_open("/nonexistent/gradwired.sock", nullptr, &client) == GW_UNAVAILABLE);
  CHECK_THAT(gw_last_error(), Catch::Contains("/nonexistent/gradwired.sock"));
  const std::string longer(200, 'x');
  CHECK(gw_open(longer.c_str(), nullptr, &client) == GW_INVALID_ARGUMENT);
  CHECK(client == nullptr);
}

TEST_CASE("without a path the environment names the socket") {
  Fixture fixture;
  REQUIRE(::setenv("GRADWIRE_SOCKET", fixture.path().c_str(), 1) == 0);
  gw_client* client = nullptr;
  CHECK(gw_open(nullptr, nullptr, &client) == GW_OK);
  gw_close(client);
  REQUIRE(::unsetenv("GRADWIRE_SOCKET") == 0);
}

TEST_CASE("the last error is the thread's own") {
  gw_client* client = nullptr;
  CHECK(gw_open("/nonexistent", nullptr, &client) == GW_UNAVAILABLE);
  std::string other = "not empty";
  std::thread([&] { other = gw_last_error(); }).join();
  CHECK(other.empty());
  CHECK(std::string(gw_last_error()) != "");
}

TEST_CASE("NULL is refused by the parameter's name, and may be freed") {
  CHECK(gw_open("/x", nullptr, nullptr) == GW_INVALID_ARGUMENT);
  CHECK_THAT(gw_last_error(), Catch::Contains("client"));
  int done = 0;
  CHECK(gw_test(nullptr, &done) == GW_INVALID_ARGUMENT);
  CHECK(gw_wait(nullptr, 0) == GW_INVALID_ARGUMENT);
  CHECK(gw_group_error(nullptr) == GW_INVALID_ARGUMENT);
  CHECK(gw_client_describe(nullptr, &done, 4) == GW_INVALID_ARGUMENT);
  CHECK(gw_memory_free(nullptr) == GW_OK);
  CHECK(gw_memory_address(nullptr) == nullptr);
  CHECK(gw_work_is_done(nullptr) == 0);
  gw_work_free(nullptr);
  gw_group_free(nullptr);
  gw_close(nullptr);
}

TEST_CASE("options of a newer caller are taken where they are zero, else refused") {
  Fixture fixture;
  struct Newer {
    gw_open_options known;
    std::uint64_t unknown;
  } newer{};
  newer.known.struct_bytes = sizeof(newer);
  gw_client* client = nullptr;
  const char* path = fixture.path().c_str();
  CHECK(gw_open(path, &newer.known, &client) == GW_OK);
  gw_close(client);
  newer.unknown = 1;
  CHECK(gw_open(path, &newer.known, &client) == GW_UNSUPPORTED);
  newer.known.struct_bytes = 4;
  CHECK(gw_open(path, &newer.known, &client) == GW_INVALID_ARGUMENT);
  newer = {};
  newer.known.struct_bytes = sizeof(gw_open_options);
  newer.known.spin_us = 2'000'000;
  CHECK(gw_open(path, &newer.known, &client) == GW_INVALID_ARGUMENT);
  CHECK_THAT(gw_last_error(), Catch::Contains("spin_us is 2000000"));
}

TEST_CASE("flags that nobody knows are refused by their name") {
  Fixture fixture;
  gw_client* client = fixture.open();
  std::vector<std::byte> info(GW_RANK_INFO_BYTES);
  REQUIRE(gw_client_describe(client, info.data(), info.size()) == GW_OK);
  gw_group_config config{};
  config.struct_bytes = sizeof(config);
  config.group_id = 5;
  config.epoch = 1;
  config.nranks = 1;
  config.flags = 6;
  config.rank_infos = info.data();
  config.rank_infos_bytes = info.size();
  gw_group* group = nullptr;
  CHECK(gw_group_join(client, &config, &group) == GW_UNSUPPORTED);
  CHECK_THAT(gw_last_error(), Catch::Contains("gw_group_config.flags is 0x6"));
  config.flags = 0;
  CHECK(gw_group_join(client, &config, &group) == GW_OK);
  gw_group_free(group);
  gw_close(client);
}

TEST_CASE("the library fills no more of a struct than its caller has") {
  Fixture fixture;
  gw_client* client = fixture.open();
  gw_client_info info;
  std::memset(&info, 0x55, sizeof(info));
  info.struct_bytes = offsetof(gw_client_info, lanes);
  REQUIRE(gw_client_get_info(client, &info) == GW_OK);
  CHECK(info.struct_bytes == offsetof(gw_client_info, lanes));
  CHECK(info.incarnation == 1000);
  CHECK(info.lanes == 0x55555555);
  info.struct_bytes = sizeof(info);
  REQUIRE(gw_client_get_info(client, &info) == GW_OK);
  CHECK(info.lanes == 1);
  CHECK(info.max_payload_bytes == 8192);
  CHECK(info.numa_node == -1);
  gw_close(client);
}

TEST_CASE("memory is zero, aligned, and rounded up to pages") {
  Fixture fixture;
  gw_client* client = fixture.open();
  gw_memory* memory = nullptr;
  CHECK(gw_memory_alloc(client, 0, &memory) == GW_INVALID_ARGUMENT);
  REQUIRE(gw_memory_alloc(client, 5000, &memory) == GW_OK);
  const auto* bytes = static_cast<const unsigned char*>(gw_memory_address(memory));
  CHECK(gw_memory_bytes(memory) == 8192);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes) % 4096 == 0);
  CHECK(std::all_of(bytes, bytes + 8192, [](unsigned char b) { return b == 0; }));
  // The memory outlives the client that it was got from.
  gw_close(client);
  const_cast<unsigned char*>(bytes)[0] = 1;
  CHECK(gw_memory_free(memory) == GW_OK);
}

TEST_CASE("a daemon tells its status to anyone") {
  Fixture fixture;
  size_t needed = 0;
  CHECK(gw_daemon_status(fixture.path().c_str(), 0, nullptr, 0, &needed) == GW_RESOURCE_EXHAUSTED);
  REQUIRE(needed > 1);
  std::string text(needed, 'x');
  REQUIRE(gw_daemon_status(fixture.path().c_str(), 0, text.data(), text.size(), &needed) == GW_OK);
  CHECK(text.back() == '\0');
  CHECK_THAT(text, Catch::Contains("\"fake\""));
}
