// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_link.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "ipc/unique_fd.h"
#include "memif_listener.h"

namespace gradwire::port {

TEST_CASE("a memif end is what its device arguments say, else what the driver takes") {
  const MemifEnd plain = memif_end("bsize=9216");
  CHECK(plain.client);
  CHECK(plain.abstract);
  CHECK(plain.socket == "/run/memif.sock");
  const MemifEnd server = memif_end("role=server,id=3,socket=/run/x.sock,socket-abstract=no");
  CHECK_FALSE(server.client);
  CHECK_FALSE(server.abstract);
  CHECK(server.socket == "/run/x.sock");
  CHECK_FALSE(memif_end("role=master").client);
  CHECK(memif_end("role=client,socket-abstract=yes").abstract);
}

TEST_CASE("whether a memif server listens is seen for files and for abstract names") {
  for (const bool abstract : {false, true}) {
    MemifEnd end;
    end.abstract = abstract;
    end.socket = path_of_this_process();
    CHECK_FALSE(memif_server_listens(end));
    {
      const ipc::UniqueFd listener = listen_at(end);
      CHECK(memif_server_listens(end));
    }
    CHECK_FALSE(memif_server_listens(end));
    std::filesystem::remove(end.socket);
  }
  MemifEnd too_long;
  too_long.socket = std::string(108, 'x');
  CHECK_FALSE(memif_server_listens(too_long));
}

TEST_CASE("before the EAL starts, what killed memif servers left is removed") {
  MemifEnd end;
  end.abstract = false;
  end.socket = path_of_this_process();
  const std::string device = "net_memif0,role=server,socket-abstract=no,socket=" + end.socket;
  const auto remove = [](std::vector<std::string> arguments) {
    return remove_stale_memif_sockets(arguments);
  };
  listen_at(end).reset();
  // Other devices, other roles and names without a file touch nothing.
  for (const std::string& other :
       {std::string("net_ring0"), "net_tap0,role=server,socket-abstract=no,socket=" + end.socket,
        "net_memif0,role=client,socket-abstract=no,socket=" + end.socket,
        "net_memif0,role=server,socket=" + end.socket}) {
    const auto removed = remove({"--lcores", "0@0", "--vdev", other});
    REQUIRE(removed);
    CHECK(removed->empty());
  }
  CHECK(std::filesystem::exists(end.socket));
  CHECK(*remove({"--vdev=" + device, "-m", "64"}) == std::vector<std::string>{end.socket});
  CHECK_FALSE(std::filesystem::exists(end.socket));
  listen_at(end).reset();
  CHECK(*remove({"--no-pci", "--vdev", device}) == std::vector<std::string>{end.socket});

  const ipc::UniqueFd listener = listen_at(end);
  const auto refused = remove({"--vdev", device});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::kBusy);
  CHECK_THAT(refused.error().message,
             Catch::Contains("net_memif0") &&
                 Catch::Contains("another process already listens on " + end.socket));
  std::filesystem::remove(end.socket);
}

}  // namespace gradwire::port
