// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Clients whose tensors are in memory of the fake GPU, and whose gradient memory is the host's.
/// For tests alone.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <vector>

#include "../client/fixture.h"
#include "client/gradwire.h"
#include "fake_cuda_control.h"

namespace gradwire::test {

/// Calls the fake CUDA in a context.
template <class Call>
void in_context(Call call) {
  void* context = nullptr;
  REQUIRE(fake_cuda_function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0) == 0);
  REQUIRE(fake_cuda_function<int(void*)>("cuCtxPushCurrent_v2")(context) == 0);
  REQUIRE(call() == 0);
  fake_cuda_function<int(void**)>("cuCtxPopCurrent_v2")(nullptr);
  fake_cuda_function<int(int)>("cuDevicePrimaryCtxRelease_v2")(0);
}

/// Memory of the fake GPU.
class OnGpu {
 public:
  explicit OnGpu(std::size_t count, float first = 0) : count_(count) {
    in_context([&] {
      return fake_cuda_function<int(unsigned long long*, std::size_t)>("cuMemAlloc_v2")(
          &address_, count * sizeof(float));
    });
    std::iota(get(), get() + count, first);
  }
  ~OnGpu() {
    in_context(
        [&] { return fake_cuda_function<int(unsigned long long)>("cuMemFree_v2")(address_); });
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  [[nodiscard]] float* get() const {
    return reinterpret_cast<float*>(static_cast<std::uintptr_t>(address_));
  }
  [[nodiscard]] bool has_times(float factor) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (get()[i] != factor * static_cast<float>(i)) return false;
    }
    return true;
  }

 private:
  unsigned long long address_ = 0;
  std::size_t count_;
};

/// A copy of the caller's own.
inline void copy_on(const FakeStream& stream, const OnGpu& to, const OnGpu& from,
                    std::size_t count) {
  in_context([&] {
    return fake_cuda_function<int(unsigned long long, unsigned long long, std::size_t, void*)>(
        "cuMemcpyAsync")(reinterpret_cast<std::uintptr_t>(to.get()),
                         reinterpret_cast<std::uintptr_t>(from.get()), count * sizeof(float),
                         stream.get());
  });
}

/// While it is shut, copies do not return from CUDA's call.
class CopyGate {
 public:
  CopyGate() { shut(1); }
  ~CopyGate() { shut(0); }
  CopyGate(const CopyGate&) = delete;
  CopyGate& operator=(const CopyGate&) = delete;
  void open() const { shut(0); }
  [[nodiscard]] int waiting() const {
    return fake_cuda_function<int()>("fake_cuda_waiting_copies")();
  }

 private:
  static void shut(int value) { fake_cuda_function<void(int)>("fake_cuda_shut_copies")(value); }
};

/// Two clients in a group, each at its own fake daemon.
struct Two {
  Fixture fixture{2};
  std::vector<gw_client*> clients{fixture.open(0), fixture.open(1)};
  std::vector<gw_group*> groups = join_all(clients);

  ~Two() {
    hold_fake_streams(false);
    close();
  }
  void close() {
    for (gw_group* group : groups) gw_group_free(group);
    for (gw_client* client : clients) gw_close(client);
    groups.clear();
    clients.clear();
  }
  gw_status try_post(std::size_t who, const gw_call& given, gw_work** work) const {
    gw_call call = given;
    call.struct_bytes = sizeof call;
    return gw_post(groups[who], &call, work);
  }
  gw_work* post(std::size_t who, const gw_call& given) const {
    gw_work* work = nullptr;
    const gw_status posted = try_post(who, given, &work);
    INFO(gw_last_error());
    REQUIRE(posted == GW_OK);
    return work;
  }
};

inline gw_call on_stream(gw_collective collective, const float* input, float* output,
                         std::uint64_t count, void* stream) {
  gw_call call{};
  call.collective = collective;
  call.input = input;
  call.output = output;
  call.count = count;
  call.datatype = GW_FLOAT32;
  call.stream = stream;
  call.on_stream = 1;
  return call;
}

inline gw_call on_cpu(gw_collective collective, const float* input, float* output,
                      std::uint64_t count) {
  gw_call call = on_stream(collective, input, output, count, nullptr);
  call.on_stream = 0;
  return call;
}

inline void ends(gw_work* work, gw_status expected = GW_OK) {
  const gw_status ended = gw_wait(work, kLong);
  INFO(gw_last_error());
  CHECK(ended == expected);
}

inline void ends_and_free(gw_work* work) {
  ends(work);
  gw_work_free(work);
}

/// Each client moves on only what is its own, so that all have to be asked.
inline void all_end(const std::vector<gw_work*>& works) {
  for (gw_work* work : works) {
    const auto is_done = [&] {
      int done = 0;
      for (gw_work* each : works) (void)gw_test(each, &done);
      const gw_status status = gw_test(work, &done);
      INFO(gw_last_error());
      CHECK(status == GW_OK);
      return done != 0;
    };
    CHECK(soon(is_done));
  }
  for (gw_work* work : works) gw_work_free(work);
}

}  // namespace gradwire::test
