// SPDX-License-Identifier: BSD-3-Clause
#include "host/placement.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

namespace gradwire::host {
namespace {

using Catch::Matchers::Contains;

// Two mappings side by side of different page sizes, then a hole, then one more.
constexpr const char* kSmaps =
    "200000000-200200000 rw-s 00000000 00:2d 77    /dev/hugepages/gw0map_0\n"
    "Size:               2048 kB\n"
    "KernelPageSize:     2048 kB\n"
    "MMUPageSize:        2048 kB\n"
    "VmFlags: rd wr sh mr mw me ms ht sd \n"
    "200200000-200300000 rw-p 00000000 00:00 0 \n"
    "Size:               1024 kB\n"
    "KernelPageSize:        4 kB\n"
    "VmFlags: rd wr mr mw me ac sd \n"
    "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]\n"
    "KernelPageSize:        4 kB\n";

MemoryRange range(std::uintptr_t base, std::size_t bytes) {
  return {"range", reinterpret_cast<const void*>(base), bytes};
}

TEST_CASE("the PCIe root of a device is found through sysfs's links") {
  char folder[] = "/tmp/gradwire-pci-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::filesystem::path top = folder;
  const auto device = top / "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
  std::filesystem::create_directories(device);
  std::filesystem::create_directories(top / "bus");
  std::filesystem::create_symlink(device, top / "bus/0000:3b:00.0");
  CHECK(pci_root("0000:3b:00.0", top / "bus") == "pci0000:3a");
  CHECK(pci_root("0000:99:00.0", top / "bus").empty());
  CHECK(pci_root("net_memif0", top / "bus").empty());
  CHECK(pci_root("", top / "bus").empty());
  std::filesystem::remove_all(top);
}

TEST_CASE("smaps gives bounds and page size of each mapping") {
  const auto mappings = parse_smaps(kSmaps);
  REQUIRE(mappings.has_value());
  REQUIRE(mappings->size() == 3);
  CHECK((*mappings)[0].begin == 0x200000000);
  CHECK((*mappings)[0].end == 0x200200000);
  CHECK((*mappings)[0].page_bytes == 2u << 20);
  CHECK((*mappings)[1].page_bytes == 4096);
  CHECK((*mappings)[2].begin == 0xffffffffff600000);
}

TEST_CASE("the page size of a range is the smallest behind it") {
  const auto mappings = parse_smaps(kSmaps);
  REQUIRE(mappings.has_value());
  CHECK(page_bytes_of(*mappings, range(0x200000000, 0x200000)) == 2u << 20);
  CHECK(page_bytes_of(*mappings, range(0x2001fffff, 1)) == 2u << 20);
  CHECK(page_bytes_of(*mappings, range(0x2001fffff, 2)) == 4096u);
  CHECK(page_bytes_of(*mappings, range(0x200200000, 16)) == 4096u);
}

TEST_CASE("a range that is not all mapped has no page size") {
  const auto mappings = parse_smaps(kSmaps);
  REQUIRE(mappings.has_value());
  CHECK(page_bytes_of(*mappings, range(0x1fffff000, 0x2000)).error().code == ErrorCode::kNotFound);
  CHECK(page_bytes_of(*mappings, range(0x200000000, 0x400000)).error().code ==
        ErrorCode::kNotFound);
  CHECK(page_bytes_of(*mappings, range(0x300000000, 1)).error().code == ErrorCode::kNotFound);
  CHECK(page_bytes_of(*mappings, range(0x200000000, 0)).error().code ==
        ErrorCode::kInvalidArgument);
}

TEST_CASE("verification names the range that is not on hugepages") {
  const auto mappings = parse_smaps(kSmaps);
  REQUIRE(mappings.has_value());
  const MemoryRange good[] = {range(0x200000000, 4096)};
  CHECK(verify_hugepages(*mappings, good).has_value());
  const MemoryRange bad[] = {range(0x200000000, 4096),
                             {"packet pool", reinterpret_cast<const void*>(0x200200000), 64}};
  const auto verdict = verify_hugepages(*mappings, bad);
  REQUIRE_FALSE(verdict.has_value());
  CHECK_THAT(verdict.error().message, Contains("packet pool") && Contains("4096"));
}

TEST_CASE("what is not smaps is refused") {
  CHECK_FALSE(parse_smaps("KernelPageSize:        4 kB\n").has_value());
  CHECK_FALSE(parse_smaps("1000-2000 rw-p\nKernelPageSize: big\n").has_value());
  CHECK_FALSE(parse_smaps("1000-2000 rw-p\nSize: 4 kB\n").has_value());
  CHECK_FALSE(read_mappings("/nonexistent/smaps").has_value());
  CHECK(parse_smaps("")->empty());
}

TEST_CASE("a placement is told by node") {
  CHECK(to_string(NodePlacement{{{0, 12}, {1, 1}}, 0}) == "node 0: 12 pages, node 1: 1 page");
  CHECK(to_string(NodePlacement{{}, 3}) == "pages not touched yet: 3");
}

}  // namespace
}  // namespace gradwire::host
