// SPDX-License-Identifier: BSD-3-Clause
// One rank of a system test, over the C interface: meets the others through files in a folder,
// all-reduces and checks every element.
//
//   rank_client SOCKET FOLDER RANK NRANKS GROUP BYTES ITERATIONS
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "client/gradwire.h"

namespace {

constexpr std::uint32_t kTimeoutMs = 20'000;

void check(gw_status status, const char* what) {
  if (status == GW_OK) return;
  std::printf("%s: %s: %s\n", what, gw_status_name(status), gw_last_error());
  std::exit(1);
}

/// Written under another name first, so that nobody reads half of it.
void publish(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream(path + ".part", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::filesystem::rename(path + ".part", path);
}

std::vector<char> wait_for_file(const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTimeoutMs);
  while (!std::filesystem::exists(path)) {
    if (std::chrono::steady_clock::now() > deadline) {
      std::printf("%s does not come\n", path.c_str());
      std::exit(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Sums of these stay below 2^24: fp32 holds them exactly, in any order.
float input_of(std::uint64_t i, unsigned rank, int iteration) {
  return static_cast<float>((i * 31 + rank * 7 + static_cast<unsigned>(iteration)) % 4096);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::printf("usage: rank_client SOCKET FOLDER RANK NRANKS GROUP BYTES ITERATIONS\n");
    return 2;
  }
  const std::string folder = argv[2];
  const auto rank = static_cast<unsigned>(std::atoi(argv[3]));
  const auto nranks = static_cast<unsigned>(std::atoi(argv[4]));
  const std::uint64_t bytes = std::strtoull(argv[6], nullptr, 10);
  const int iterations = std::atoi(argv[7]);

  gw_client* client = nullptr;
  check(gw_open(argv[1], nullptr, &client), "open");
  std::vector<char> own(GW_RANK_INFO_BYTES);
  check(gw_client_describe(client, own.data(), own.size()), "describe");
  publish(folder + "/" + std::to_string(rank), own);
  std::vector<char> table;
  for (unsigned r = 0; r < nranks; ++r) {
    const auto info = wait_for_file(folder + "/" + std::to_string(r));
    table.insert(table.end(), info.begin(), info.end());
  }

  gw_group_config config{};
  config.struct_bytes = sizeof config;
  config.epoch = 1;
  config.group_id = std::strtoull(argv[5], nullptr, 10);
  config.rank = static_cast<std::uint16_t>(rank);
  config.nranks = static_cast<std::uint16_t>(nranks);
  config.timeout_ms = kTimeoutMs;
  config.rank_infos = table.data();
  config.rank_infos_bytes = table.size();
  gw_group* group = nullptr;
  check(gw_group_join(client, &config, &group), "join");
  if (rank == 0) publish(folder + "/joined", {});

  gw_memory* memory = nullptr;
  check(gw_memory_alloc(client, bytes, &memory), "alloc");
  auto* const values = static_cast<float*>(gw_memory_address(memory));
  const std::uint64_t count = bytes / sizeof(float);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    for (std::uint64_t i = 0; i < count; ++i) values[i] = input_of(i, rank, iteration);
    gw_work* work = nullptr;
    check(gw_all_reduce(group, values, values, count, GW_FLOAT32, GW_SUM, 0, &work), "all_reduce");
    check(gw_wait(work, kTimeoutMs), "wait");
    gw_work_free(work);
    for (std::uint64_t i = 0; i < count; ++i) {
      float wanted = 0;
      for (unsigned r = 0; r < nranks; ++r) wanted += input_of(i, r, iteration);
      if (values[i] != wanted) {
        std::printf("iteration %d: element %llu is %f, not %f\n", iteration,
                    static_cast<unsigned long long>(i), static_cast<double>(values[i]),
                    static_cast<double>(wanted));
        return 1;
      }
    }
  }
  check(gw_memory_free(memory), "free");
  check(gw_group_leave(group), "leave");
  gw_group_free(group);
  gw_close(client);
  return 0;
}
