// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_layout.h"

#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_malloc.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>

#include "support/ring_ports.h"

namespace gradwire::port {
namespace {

/// A handle as the memif driver makes them.
class Bell {
 public:
  explicit Bell(int fd, rte_intr_handle_type type = RTE_INTR_HANDLE_EXT)
      : handle_(rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_SHARED)) {
    REQUIRE(handle_ != nullptr);
    REQUIRE(rte_intr_fd_set(handle_, fd) == 0);
    REQUIRE(rte_intr_type_set(handle_, type) == 0);
  }
  ~Bell() { rte_intr_instance_free(handle_); }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(handle_); }

 private:
  rte_intr_handle* handle_;
};

using Queue = std::array<std::uint64_t, 8>;
constexpr std::size_t kKnown = 2 * sizeof(std::uint64_t);

}  // namespace

TEST_CASE("the interrupt handle of a memif queue is found, whatever stands before it") {
  const Bell idle(-1);
  // As in 22.11, and as since 24.11.5, where errors are counted before it.
  CHECK(find_bell(Queue{1, 2, idle.address(), 10}.data(), kKnown) == 16);
  for (const std::uint64_t errors : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}}) {
    CAPTURE(errors);
    CHECK(find_bell(Queue{1, 2, errors, idle.address(), 10}.data(), kKnown) == 24);
  }
  const int fd = eventfd(0, EFD_NONBLOCK);
  REQUIRE(fd >= 0);
  const Bell joined(fd);
  CHECK(find_bell(Queue{1, 2, joined.address()}.data(), kKnown) == 16);
  close(fd);
  // What is known is not searched.
  CHECK_FALSE(find_bell(Queue{1, idle.address(), 3, 4}.data(), kKnown));
}

TEST_CASE("what is not surely the interrupt handle of a memif queue is not taken for one") {
  const Bell idle(-1);
  const Bell other(-1);
  CHECK_FALSE(find_bell(Queue{1, 2, idle.address(), other.address()}.data(), kKnown));
  CHECK_FALSE(find_bell(Queue{}.data(), kKnown));
  const Bell timer(-1, RTE_INTR_HANDLE_ALARM);
  const Bell with_file(STDIN_FILENO);
  const Queue mine{};
  void* zeroes = rte_zmalloc(nullptr, 256, 0);
  REQUIRE(zeroes != nullptr);
  for (const std::uint64_t value :
       {timer.address(), with_file.address(), reinterpret_cast<std::uint64_t>(mine.data()),
        reinterpret_cast<std::uint64_t>(zeroes), idle.address() + 8, std::uint64_t{1} << 47}) {
    CAPTURE(value);
    CHECK_FALSE(find_bell(Queue{1, 2, 3, value}.data(), kKnown));
  }
  rte_free(zeroes);
}

TEST_CASE("a port whose driver keeps nothing for this process has nothing to be found") {
  const RingPorts rings("layout");
  std::uint16_t id = 0;
  REQUIRE(rte_eth_dev_get_port_by_name(rings.a().c_str(), &id) == 0);
  CHECK(find_process_private(id) == nullptr);
  CHECK(find_process_private(RTE_MAX_ETHPORTS - 1) == nullptr);
}

}  // namespace gradwire::port
