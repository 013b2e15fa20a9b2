// SPDX-License-Identifier: BSD-3-Clause
#include "port/interrupt_thread.h"

#include <rte_interrupts.h>

#include <catch2/catch.hpp>

using namespace gradwire::port;

TEST_CASE("work is done on the interrupt thread, before the caller goes on") {
  REQUIRE(rte_thread_is_intr() == 0);
  bool there = false;
  bool asked = false;
  bool nested = false;
  on_interrupt_thread([&] {
    there = rte_thread_is_intr() != 0;
    asked = is_work_asked_for();
    on_interrupt_thread([&] { nested = true; });
  });
  CHECK(there);
  CHECK(asked);
  CHECK(nested);
  bool still = true;
  on_interrupt_thread([&] { still = is_work_asked_for(); });
  CHECK(still);
  CHECK_FALSE(is_work_asked_for());
}
