// SPDX-License-Identifier: BSD-3-Clause
// Both drivers through DPDK's gpudev API: gpu_emu as it is, gpu_cuda on the test's own
// libcuda.so.1.
#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "reduce/gpu/emulated_device.h"
#include "support/plugged_gpu.h"

namespace {

using gradwire::reduce::EmulatedDevice;

using gradwire::test::find_gpu;
using gradwire::test::PluggedGpu;

/// With what the emulated GPU offers beside gpudev.
class Plugged : public PluggedGpu {
 public:
  using PluggedGpu::PluggedGpu;
  const EmulatedDevice& emulated() const {
    rte_gpu_info info{};
    REQUIRE(rte_gpu_info_get(id(), &info) == 0);
    const auto* device = reinterpret_cast<const EmulatedDevice*>(info.context);
    REQUIRE(device->magic == EmulatedDevice::kMagic);
    return *device;
  }
};

const char* const kDrivers[] = {"gpu_emu7", "gpu_cuda7"};

TEST_CASE("memory is allocated as it was asked for, cleared, and freed at its start only") {
  const std::string name = GENERATE(from_range(std::begin(kDrivers), std::end(kDrivers)));
  const Plugged gpu(name);
  REQUIRE(gpu.result() == 0);
  rte_gpu_info info{};
  REQUIRE(rte_gpu_info_get(gpu.id(), &info) == 0);
  CHECK(info.processor_count > 0);
  CHECK(info.total_memory > 0);
  CHECK(info.numa_node == -1);
  for (const unsigned align : {0u, 256u, 4096u, 65536u, 1u << 21}) {
    void* memory = rte_gpu_mem_alloc(gpu.id(), 10'000, align);
    REQUIRE(memory != nullptr);
    if (align != 0) CHECK(reinterpret_cast<std::uintptr_t>(memory) % align == 0);
    const auto* bytes = static_cast<const unsigned char*>(memory);
    CHECK(std::all_of(bytes, bytes + 10'000, [](unsigned char b) { return b == 0; }));
    CHECK(rte_gpu_mem_free(gpu.id(), static_cast<std::byte*>(memory) + 256) < 0);
    CHECK(rte_gpu_mem_free(gpu.id(), memory) == 0);
    CHECK(rte_gpu_mem_free(gpu.id(), memory) < 0);
  }
  CHECK(rte_gpu_mem_alloc(gpu.id(), 100, 3) == nullptr);
  CHECK(rte_errno == EINVAL);
  CHECK(rte_gpu_mem_alloc(gpu.id(), info.total_memory + 1, 0) == nullptr);
  CHECK(rte_errno == E2BIG);
  void* most = rte_gpu_mem_alloc(gpu.id(), info.total_memory / 2, 0);
  REQUIRE(most != nullptr);
  CHECK(rte_gpu_mem_alloc(gpu.id(), info.total_memory / 2 + 4096, 0) == nullptr);
  CHECK(rte_errno == ENOMEM);
  CHECK(rte_gpu_mem_free(gpu.id(), most) == 0);
  CHECK(rte_gpu_wmb(gpu.id()) == 0);
}

TEST_CASE("host memory is registered piece by piece, however small the pieces") {
  const std::string name = GENERATE(from_range(std::begin(kDrivers), std::end(kDrivers)));
  const Plugged gpu(name);
  REQUIRE(gpu.result() == 0);
  auto* memory = static_cast<std::byte*>(rte_zmalloc(nullptr, 64 * 1024, 4096));
  REQUIRE(memory != nullptr);
  CHECK(rte_gpu_mem_register(gpu.id(), 64, memory) == 0);
  CHECK(rte_gpu_mem_register(gpu.id(), 64, memory + 64) == 0);
  CHECK(rte_gpu_mem_register(gpu.id(), 32'000, memory + 128) == 0);
  CHECK(rte_gpu_mem_register(gpu.id(), 64, memory) < 0);
  CHECK(rte_gpu_mem_unregister(gpu.id(), memory + 32) < 0);
  CHECK(rte_gpu_mem_unregister(gpu.id(), memory) == 0);
  CHECK(rte_gpu_mem_unregister(gpu.id(), memory) < 0);
  CHECK(rte_gpu_mem_unregister(gpu.id(), memory + 64) == 0);
  CHECK(rte_gpu_mem_unregister(gpu.id(), memory + 128) == 0);
  rte_free(memory);
}

TEST_CASE("the CPU's mapping shows the GPU's memory") {
  const std::string name = GENERATE(from_range(std::begin(kDrivers), std::end(kDrivers)));
  const Plugged gpu(name);
  REQUIRE(gpu.result() == 0);
  void* memory = rte_gpu_mem_alloc(gpu.id(), 5'000, 64);
  REQUIRE(memory != nullptr);
  auto* mapped = static_cast<unsigned char*>(rte_gpu_mem_cpu_map(gpu.id(), 5'000, memory));
  REQUIRE(mapped != nullptr);
  std::memset(mapped, 0x5a, 5'000);
  CHECK(static_cast<const unsigned char*>(memory)[4'999] == 0x5a);
  CHECK(rte_gpu_mem_cpu_map(gpu.id(), 5'000, memory) == nullptr);
  CHECK(rte_gpu_mem_cpu_unmap(gpu.id(), memory) == 0);
  CHECK(rte_gpu_mem_cpu_unmap(gpu.id(), memory) < 0);
  CHECK(rte_gpu_mem_free(gpu.id(), memory) == 0);
  CHECK(rte_gpu_mem_cpu_map(gpu.id(), 5'000, memory) == nullptr);
}

TEST_CASE("communication lists begin free, the first too, and carry packets there and back") {
  const std::string name = GENERATE(from_range(std::begin(kDrivers), std::end(kDrivers)));
  const Plugged gpu(name);
  REQUIRE(gpu.result() == 0);
  constexpr std::uint32_t kLists = 3;
  rte_gpu_comm_list* lists = rte_gpu_comm_create_list(static_cast<std::uint16_t>(gpu.id()), kLists);
  REQUIRE(lists != nullptr);
  for (std::uint32_t i = 0; i < kLists; ++i) {
    rte_gpu_comm_list_status status = RTE_GPU_COMM_LIST_ERROR;
    REQUIRE(rte_gpu_comm_get_status(&lists[i], &status) == 0);
    CHECK(status == RTE_GPU_COMM_LIST_FREE);
  }
  rte_mempool* pool = rte_pktmbuf_pool_create("gpu_lists", 63, 0, 0, 2048, SOCKET_ID_ANY);
  REQUIRE(pool != nullptr);
  rte_mbuf* packets[4];
  REQUIRE(rte_pktmbuf_alloc_bulk(pool, packets, 4) == 0);
  REQUIRE(rte_gpu_comm_populate_list_pkts(&lists[0], packets, 4) == 0);
  CHECK(lists[0].pkt_list[3].addr == rte_pktmbuf_mtod(packets[3], std::uintptr_t));
  CHECK(rte_gpu_comm_cleanup_list(&lists[0]) < 0);
  REQUIRE(rte_gpu_comm_set_status(&lists[0], RTE_GPU_COMM_LIST_DONE) == 0);
  REQUIRE(rte_gpu_comm_cleanup_list(&lists[0]) == 0);
  // The list forgets its packets and leaves them to whoever put them there.
  CHECK(rte_mempool_in_use_count(pool) == 4);
  rte_pktmbuf_free_bulk(packets, 4);
  CHECK(rte_gpu_comm_destroy_list(lists, kLists) == 0);
  rte_mempool_free(pool);
}

TEST_CASE("a device that is closed is gone, also when it is closed twice and plugged in again") {
  const std::string name = GENERATE(from_range(std::begin(kDrivers), std::end(kDrivers)));
  const std::uint16_t before = rte_gpu_count_avail();
  for (int i = 0; i < 3; ++i) {
    const Plugged gpu(name);
    REQUIRE(gpu.result() == 0);
    CHECK(rte_gpu_count_avail() == before + 1);
    REQUIRE(rte_gpu_mem_alloc(gpu.id(), 1'000, 0) != nullptr);  // the driver frees what is left
    CHECK(rte_gpu_close(gpu.id()) == 0);
    CHECK_FALSE(rte_gpu_is_valid(gpu.id()));
    CHECK(rte_gpu_close(gpu.id()) < 0);
  }
  CHECK(rte_gpu_count_avail() == before);
}

TEST_CASE("arguments that a device does not know or cannot keep are refused") {
  const char* arguments = GENERATE("delay_us=soon", "delay=5", "memory_mib=99999999999", "sms=-1");
  CHECK(Plugged("gpu_emu8", arguments).result() != 0);
  CHECK(find_gpu("gpu_emu8") == RTE_GPU_ID_NONE);
  CHECK(Plugged("gpu_cuda8", "id=7").result() != 0);
  CHECK(Plugged("gpu_cuda8", "id=x").result() != 0);
  CHECK(Plugged("gpu_cuda8", "ordinal=0").result() != 0);
}

TEST_CASE("without a mapping for the CPU the class library says that there is none") {
  const Plugged gpu("gpu_emu9", "cpu_map=0");
  REQUIRE(gpu.result() == 0);
  void* memory = rte_gpu_mem_alloc(gpu.id(), 64, 0);
  CHECK(rte_gpu_mem_cpu_map(gpu.id(), 64, memory) == nullptr);
  CHECK(rte_errno == ENOTSUP);
}

TEST_CASE("the emulated GPU reaches its own memory and what is registered, nothing else") {
  const Plugged gpu("gpu_emu6");
  const EmulatedDevice& device = gpu.emulated();
  auto* own = static_cast<std::byte*>(rte_gpu_mem_alloc(gpu.id(), 5'000, 0));
  CHECK(device.accessible(device.self, own, 5'000));
  CHECK_FALSE(device.accessible(device.self, own, 5'001));
  CHECK_FALSE(device.accessible(device.self, own - 1, 2));
  std::byte host[256];
  CHECK_FALSE(device.accessible(device.self, host, 1));
  REQUIRE(rte_gpu_mem_register(gpu.id(), 100, host) == 0);
  CHECK(device.accessible(device.self, host + 99, 1));
  CHECK_FALSE(device.accessible(device.self, host + 99, 2));
  REQUIRE(rte_gpu_mem_register(gpu.id(), 100, host + 100) == 0);
  CHECK(device.accessible(device.self, host, 200));
  REQUIRE(rte_gpu_mem_unregister(gpu.id(), host + 100) == 0);
  CHECK_FALSE(device.accessible(device.self, host, 200));
  REQUIRE(rte_gpu_mem_unregister(gpu.id(), host) == 0);
}

struct Ran {
  std::atomic<int> count{0};
  std::atomic<int> failed{0};
  std::atomic<int> order[16]{};
};
struct Step {
  Ran* ran;
  int number;
};

void run_steps(const EmulatedDevice& device, Ran& ran, int steps) {
  static Step storage[16];
  for (int i = 0; i < steps; ++i) {
    storage[i] = {&ran, i};
    REQUIRE(device.launch(
                device.self,
                [](void* argument, int outcome) {
                  const Step step = *static_cast<Step*>(argument);
                  if (outcome != 0) ++step.ran->failed;
                  step.ran->order[step.ran->count.fetch_add(1)] = step.number;
                },
                &storage[i]) == 0);
  }
  for (int i = 0; i < 5'000 && ran.count < steps; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(ran.count == steps);
}

TEST_CASE("the emulated GPU is late, fails and changes the order as it was told to") {
  SECTION("in order") {
    const Plugged gpu("gpu_emu5");
    Ran ran;
    run_steps(gpu.emulated(), ran, 8);
    for (int i = 0; i < 8; ++i) CHECK(ran.order[i] == i);
    CHECK(ran.failed == 0);
  }
  SECTION("late") {
    const Plugged gpu("gpu_emu5", "delay_us=30000");
    Ran ran;
    const auto start = std::chrono::steady_clock::now();
    run_steps(gpu.emulated(), ran, 4);
    CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(30));
  }
  SECTION("failing") {
    const Plugged gpu("gpu_emu5", "fail_every=3");
    Ran ran;
    run_steps(gpu.emulated(), ran, 9);
    CHECK(ran.failed == 3);
  }
  SECTION("out of order") {
    // The first is late enough for the others to wait behind it.
    const Plugged gpu("gpu_emu5", "reorder=4,delay_us=20000");
    Ran ran;
    run_steps(gpu.emulated(), ran, 9);
    int inversions = 0;
    for (int i = 1; i < 9; ++i) inversions += ran.order[i] < ran.order[i - 1] ? 1 : 0;
    CHECK(inversions > 0);
  }
}

TEST_CASE("a device that is removed while kernels wait gives each of them its end") {
  Ran ran;
  {
    const Plugged gpu("gpu_emu5", "delay_us=60000000");
    static Step step;
    step = {&ran, 0};
    for (int i = 0; i < 3; ++i) {
      REQUIRE(gpu.emulated().launch(
                  gpu.emulated().self,
                  [](void* argument, int) { ++static_cast<Step*>(argument)->ran->count; },
                  &step) == 0);
    }
  }
  CHECK(ran.count == 3);
}

}  // namespace
