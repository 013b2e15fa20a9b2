// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The arrays of a case, placed so that a GPU reaches them: registered with the device, as the
/// daemon does with mempools and clients' memory.
#pragma once

#include <catch2/catch.hpp>

#include "cases.h"
#include "reduce/gpu/device.h"

namespace gradwire::test {

struct Registered final : Reach {
  explicit Registered(reduce::GpuDevice& of) : device(of) {}
  void add(Array& array) override {
    REQUIRE(device.register_host(array.storage.data(), array.storage.size(), "a test's array"));
  }
  void remove(Array& array) override { device.unregister_host(array.storage.data()); }
  bool asynchronous() const override { return true; }
  reduce::GpuDevice& device;
};

}  // namespace gradwire::test
