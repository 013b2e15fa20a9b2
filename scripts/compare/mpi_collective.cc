// SPDX-License-Identifier: BSD-3-Clause
// A collective of MPI, timed as gradwire-perf times its transports: warm-up ops, then each op by
// itself, back to back, out of place, fp32 sum, root 0; p50 and p99 on rank 0. A size is that of
// the larger buffer, as in nccl-tests. Its own small program, so that no interpreter stands between
// MPI and the clock. scripts/compare.sh builds it with mpicxx.
//
// usage: mpi_collective COLLECTIVE WARMUP FILE SIZE:ITERATIONS...   FILE gets the results as JSON
#include <mpi.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

/// Pages as gradwire-perf gives its TCP ring: huge where the kernel has them, all touched.
float* allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 2 << 20;
  const std::size_t room = (bytes + kAlignment) / kAlignment * kAlignment;
  void* const start = std::aligned_alloc(kAlignment, room);
  if (start == nullptr) std::abort();
  madvise(start, room, MADV_HUGEPAGE);
  std::fill_n(static_cast<char*>(start), room, 0);
  return static_cast<float*>(start);
}

/// Whole numbers so small that their sum is exact, in whatever order.
float value_at(std::size_t i, int rank) {
  return static_cast<float>((i * 2654435761u + static_cast<std::size_t>(rank) * 40503u) % 1021);
}

struct Op {
  std::string_view name;
  int rank = 0;
  int nranks = 1;
  std::size_t count = 0;  ///< of the larger buffer; a multiple of nranks if ranks have parts of it
  const float* input = nullptr;
  float* output = nullptr;

  [[nodiscard]] bool has_parts() const {
    return name == "reduce-scatter" || name == "all-gather" || name == "all-to-all";
  }
  [[nodiscard]] std::size_t part() const { return count / static_cast<std::size_t>(nranks); }
  [[nodiscard]] std::size_t results() const {
    if (name == "reduce-scatter") return part();
    return name == "reduce" && rank != 0 ? 0 : count;
  }
  void run() const;
  /// What output[i] must be.
  [[nodiscard]] float right(std::size_t i) const;
};

bool is_known(std::string_view name) {
  return name == "all-reduce" || name == "reduce-scatter" || name == "all-gather" ||
         name == "broadcast" || name == "reduce" || name == "all-to-all" || name == "send-recv";
}

void Op::run() const {
  const MPI_Comm all = MPI_COMM_WORLD;
  const int n = static_cast<int>(count);
  const int some = static_cast<int>(part());
  if (name == "all-reduce") {
    MPI_Allreduce(input, output, n, MPI_FLOAT, MPI_SUM, all);
  } else if (name == "reduce") {
    MPI_Reduce(input, output, n, MPI_FLOAT, MPI_SUM, 0, all);
  } else if (name == "broadcast") {
    // MPI broadcasts in place.
    MPI_Bcast(rank == 0 ? const_cast<float*>(input) : output, n, MPI_FLOAT, 0, all);
  } else if (name == "reduce-scatter") {
    MPI_Reduce_scatter_block(input, output, some, MPI_FLOAT, MPI_SUM, all);
  } else if (name == "all-gather") {
    MPI_Allgather(input, some, MPI_FLOAT, output, some, MPI_FLOAT, all);
  } else if (name == "all-to-all") {
    MPI_Alltoall(input, some, MPI_FLOAT, output, some, MPI_FLOAT, all);
  } else {
    // As nccl-tests: to the next rank, from the one before.
    MPI_Sendrecv(input, n, MPI_FLOAT, (rank + 1) % nranks, 0, output, n, MPI_FLOAT,
                 (rank + nranks - 1) % nranks, 0, all, MPI_STATUS_IGNORE);
  }
}

float Op::right(std::size_t i) const {
  const auto sum = [&](std::size_t at) {
    float total = 0;
    for (int r = 0; r < nranks; ++r) total += value_at(at, r);
    return total;
  };
  if (name == "all-reduce" || name == "reduce") return sum(i);
  if (name == "reduce-scatter") return sum(static_cast<std::size_t>(rank) * part() + i);
  if (name == "broadcast") return value_at(i, 0);
  if (name == "send-recv") return value_at(i, (rank + nranks - 1) % nranks);
  const std::size_t from = i / part();
  const std::size_t at = i % part();
  if (name == "all-gather") return value_at(at, static_cast<int>(from));
  return value_at(static_cast<std::size_t>(rank) * part() + at, static_cast<int>(from));
}

double cpu_s() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

/// Nearest rank, as in gradwire-perf.
double percentile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int nranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  if (argc < 5 || !is_known(argv[1])) {
    std::fprintf(stderr, "usage: mpi_collective COLLECTIVE WARMUP FILE SIZE:ITERATIONS...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const std::string_view name = argv[1];
  const int warmup = std::atoi(argv[2]);
  std::vector<std::pair<std::size_t, int>> plans;
  std::size_t largest = 64;
  for (int i = 4; i < argc; ++i) {
    char* colon = nullptr;
    const std::size_t bytes = std::strtoull(argv[i], &colon, 10);
    plans.emplace_back(bytes, *colon == ':' ? std::atoi(colon + 1) : 20);
    largest = std::max(largest, bytes);
  }
  float* const input = allocate(largest);
  float* const output = allocate(largest);
  std::string json = "{\"program\": \"mpi_collective\", \"nranks\": " + std::to_string(nranks) +
                     ", \"results\": [";
  for (const auto& [bytes, iterations] : plans) {
    Op op{name, rank, nranks, bytes / sizeof(float), input, output};
    if (op.has_parts()) op.count = op.part() * static_cast<std::size_t>(nranks);
    for (std::size_t i = 0; i < op.count; ++i) input[i] = value_at(i, rank);
    for (int i = 0; i < warmup; ++i) op.run();
    MPI_Barrier(MPI_COMM_WORLD);
    const double cpu_before_s = cpu_s();
    std::vector<double> times_s;
    times_s.reserve(static_cast<std::size_t>(iterations));
    for (int i = 0; i < iterations; ++i) {
      const auto start = Clock::now();
      op.run();
      times_s.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    const double used_s = cpu_s() - cpu_before_s;
    long wrong = 0;
    // A broadcast leaves the root's output as it was.
    const bool has_output = name != "broadcast" || rank != 0;
    for (std::size_t i = 0; has_output && i < op.results(); ++i) wrong += output[i] != op.right(i);
    long all_wrong = 0;
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    std::sort(times_s.begin(), times_s.end());
    char line[512];
    std::snprintf(line, sizeof(line),
                  "%s\n{\"size_bytes\": %zu, \"iterations\": %d, \"time_p50_us\": %.3f, "
                  "\"time_p99_us\": %.3f, \"time_min_us\": %.3f, \"cpu_s_per_gb\": %.6f, "
                  "\"wrong\": %ld}",
                  json.back() == '[' ? "" : ",", bytes, iterations, percentile(times_s, 0.5) * 1e6,
                  percentile(times_s, 0.99) * 1e6, times_s.front() * 1e6,
                  used_s / (static_cast<double>(bytes) * iterations / 1e9), all_wrong);
    json += line;
  }
  json += "]}\n";
  int status = 0;
  if (rank == 0) {
    std::FILE* const file = std::fopen(argv[3], "w");
    if (file == nullptr || std::fputs(json.c_str(), file) < 0 || std::fclose(file) != 0) {
      std::fprintf(stderr, "mpi_collective: %s could not be written\n", argv[3]);
      status = 1;
    }
  }
  MPI_Finalize();
  return status;
}
