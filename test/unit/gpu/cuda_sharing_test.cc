// SPDX-License-Identifier: BSD-3-Clause
// Memory and events that a daemon's GPU device makes and another process opens, on the fake CUDA.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include "fake_cuda_control.h"
#include "gpu/cuda_device.h"
#include "reduce/gpu/device.h"
#include "support/plugged_gpu.h"

namespace {

using namespace gradwire;
using namespace gradwire::test;
using Catch::Matchers::Contains;
using reduce::GpuDevice;
using reduce::ReadyEvent;

constexpr const char* kGpu = "gpu_cuda5";

struct Daemon {
  PluggedGpu plugged{kGpu};
  std::unique_ptr<GpuDevice> device;

  Daemon() {
    REQUIRE(plugged.result() == 0);
    reduce::GpuOptions options;
    options.device = kGpu;
    options.staging = reduce::Staging::kMapped;
    options.client_memory = true;
    auto opened = GpuDevice::open(options);
    INFO((opened ? "" : opened.error().message));
    REQUIRE(opened);
    device = std::move(*opened);
  }
  reduce::SharedGpuMemory allocate(std::size_t bytes) {
    auto made = device->allocate_shared(bytes);
    INFO((made ? "" : made.error().message));
    REQUIRE(made);
    REQUIRE(made->cuda);
    CHECK(made->fd == -1);
    return *made;
  }
};

/// In the other process.
Result<std::unique_ptr<gpu::ImportedMemory>> open_memory(const reduce::SharedGpuMemory& memory,
                                                         std::uint64_t bytes) {
  auto device = gpu::Device::find(memory.cuda->uuid);
  if (!device) return tl::unexpected(device.error());
  return (*device)->import_memory(memory.cuda->handle, bytes);
}

std::string nothing_held() {
  const auto held = fake_cuda_held_here();
  return held.imports == 0 && held.streams == 0 ? "" : "something is still open";
}

std::string in_other_process(const std::function<std::string()>& body) {
  return OtherProcess(body).wait();
}

TEST_CASE("memory of a CUDA device is another process's too, whole blocks and zeroed") {
  Daemon daemon;
  const auto memory = daemon.allocate(5'000'000);
  CHECK(memory.bytes == 6u << 20);
  CHECK(in_other_process([&]() -> std::string {
          {
            auto opened = open_memory(memory, memory.bytes);
            if (!opened) return opened.error().message;
            std::byte* bytes = (*opened)->address();
            if (!std::all_of(bytes, bytes + memory.bytes,
                             [](std::byte b) { return b == std::byte{0}; })) {
              return "it is not zeroed";
            }
            std::string text(100'000, 'x');
            if (!(*opened)->device().copy(bytes + 4'000'000, text.data(), text.size())) {
              return "copy";
            }
          }
          return nothing_held();
        }) == "");
  CHECK(memory.address[4'000'000] == std::byte{'x'});
  CHECK(memory.address[4'099'999] == std::byte{'x'});
  CHECK(memory.address[4'100'000] == std::byte{0});
  daemon.device->free(memory.address);
  CHECK(fake_cuda_held_here().allocations == 0);
}

TEST_CASE("a handle that is bad, old or of too little memory is an error and leaves nothing open") {
  Daemon daemon;
  const auto memory = daemon.allocate(1);
  const auto refused = [&](const reduce::SharedGpuMemory& asked, std::uint64_t bytes) {
    return in_other_process([&]() -> std::string {
      const auto opened = open_memory(asked, bytes);
      if (opened) return "it was opened";
      return opened.error().message + nothing_held();
    });
  };
  CHECK_THAT(refused(memory, memory.bytes + 1), Contains("should have 2097153 bytes has 2097152"));
  auto bad = memory;
  std::fill(std::begin(bad.cuda->handle.bytes), std::end(bad.cuda->handle.bytes), 0x11);
  CHECK_THAT(refused(bad, 1), Contains("cuIpcOpenMemHandle on GPU-") && Contains("CUDA_ERROR"));
  auto elsewhere = memory;
  elsewhere.cuda->uuid.bytes[0] = 7;
  CHECK_THAT(refused(elsewhere, 1), Contains("GPU-07f1f2f3-") && Contains("CUDA_VISIBLE_DEVICES"));
  daemon.device->free(memory.address);
  CHECK_THAT(refused(memory, 1), Contains("cuIpcOpenMemHandle"));
  // Nor is it opened in the process that made it.
  const auto own = daemon.allocate(1);
  const auto here = open_memory(own, 1);
  REQUIRE_FALSE(here);
  CHECK_THAT(here.error().message, Contains("cuIpcOpenMemHandle"));
  daemon.device->free(own.address);
}

TEST_CASE("GPU memory that is not to be had says how much") {
  Daemon daemon;
  const auto memory = daemon.device->allocate_shared(std::size_t{1} << 30);
  REQUIRE_FALSE(memory);
  CHECK_THAT(memory.error().message, Contains("gpu_cuda5") && Contains("1073741824 bytes"));
  CHECK(fake_cuda_held_here().allocations == 0);
}

TEST_CASE("a client that dies with memory open takes nothing of the daemon's with it") {
  Daemon daemon;
  const auto memory = daemon.allocate(1);
  auto event = daemon.device->make_ready_event();
  REQUIRE(event);
  int told[2];
  REQUIRE(::pipe(told) == 0);
  OtherProcess client([&]() -> std::string {
    auto opened = open_memory(memory, memory.bytes);
    if (!opened) return opened.error().message;
    auto ready = (*opened)->device().import_event(event->handle);
    if (!ready) return ready.error().message;
    hold_fake_streams(true);
    if (!(*ready)->record(nullptr)) return "record";
    (void)!::write(told[1], "x", 1);
    ::pause();
    return "";
  });
  char byte = 0;
  REQUIRE(::read(told[0], &byte, 1) == 1);
  CHECK(event->event->state() == ReadyEvent::State::kPending);
  client.kill();
  client.wait();
  CHECK(event->event->state() == ReadyEvent::State::kPending);
  memory.address[0] = std::byte{1};
  event->event.reset();
  daemon.device->free(memory.address);
  CHECK(fake_cuda_held_here().allocations == 0);
  CHECK(fake_cuda_held_here().events == 0);
  ::close(told[0]);
  ::close(told[1]);
}

TEST_CASE("an event passes when the client's stream has done what came before its mark") {
  Daemon daemon;
  const auto memory = daemon.allocate(1);
  auto event = daemon.device->make_ready_event();
  REQUIRE(event);
  CHECK(event->event->state() == ReadyEvent::State::kReady);  // never marked
  int to_client[2];
  int to_daemon[2];
  REQUIRE(::pipe(to_client) == 0);
  REQUIRE(::pipe(to_daemon) == 0);
  const auto tell = [](int fd) { (void)!::write(fd, "x", 1); };
  const auto hear = [](int fd) {
    char byte = 0;
    return ::read(fd, &byte, 1) == 1;
  };
  OtherProcess client([&]() -> std::string {
    auto opened = open_memory(memory, memory.bytes);
    if (!opened) return opened.error().message;
    gpu::Device& device = (*opened)->device();
    auto ready = device.import_event(event->handle);
    if (!ready) return ready.error().message;
    for (int round = 1; round <= 2; ++round) {
      hold_fake_streams(true);
      const std::string text(1000, static_cast<char>('0' + round));
      if (!device.copy_on(nullptr, (*opened)->address(), text.data(), text.size())) return "copy";
      if (!(*ready)->record(nullptr)) return "record";
      tell(to_daemon[1]);
      if (!hear(to_client[0])) return "hear";
      hold_fake_streams(false);
      tell(to_daemon[1]);
      if (!hear(to_client[0])) return "hear";
    }
    ready->reset();
    opened->reset();
    return nothing_held();
  });
  for (int round = 1; round <= 2; ++round) {
    REQUIRE(hear(to_daemon[0]));
    CHECK(event->event->state() == ReadyEvent::State::kPending);
    CHECK(memory.address[999] == static_cast<std::byte>(round == 1 ? 0 : '1'));
    tell(to_client[1]);
    REQUIRE(hear(to_daemon[0]));
    CHECK(event->event->state() == ReadyEvent::State::kReady);
    CHECK(memory.address[999] == static_cast<std::byte>('0' + round));
    tell(to_client[1]);
  }
  CHECK(client.wait() == "");
  daemon.device->free(memory.address);
  for (const int fd : {to_client[0], to_client[1], to_daemon[0], to_daemon[1]}) ::close(fd);
}

}  // namespace
