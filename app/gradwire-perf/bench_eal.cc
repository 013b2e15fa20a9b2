// SPDX-License-Identifier: BSD-3-Clause
#include "bench_eal.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "port/eal.h"

namespace gradwire::perf {
namespace {

bool eal_started = false;

}  // namespace

HugeMemory::~HugeMemory() {
  if (address_ != nullptr) munmap(address_, bytes_);
}

Result<std::byte*> HugeMemory::allocate(std::uint64_t bytes) {
  constexpr std::uint64_t kPage = 2u << 20;
  bytes_ = (bytes + kPage - 1) / kPage * kPage;
  void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
  if (mapped == MAP_FAILED) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("{} hugepages of 2 MB are needed for the buffers, and the kernel "
                            "refuses them: {}; reserve more in /proc/sys/vm/nr_hugepages",
                            bytes_ / kPage, std::strerror(errno)));
  }
  address_ = mapped;
  return static_cast<std::byte*>(mapped);
}

port::PortConfig port_config(const PortOption& option, const EmbeddedOptions& wanted) {
  port::PortConfig config;
  config.device = option.device;
  config.ip = *wire::parse_ip(option.ip);
  config.prefix_bits = option.prefix_bits;
  config.mtu = option.mtu;
  config.rx_descriptors = config.tx_descriptors = wanted.descriptors;
  return config;
}

Result<std::vector<std::string>> bench_eal_arguments(const std::vector<std::string>& from_user) {
  return port::make_eal_arguments("gradwire-perf", from_user,
                                  fmt::format("gradwire-perf-{}", getpid()));
}

Result<void> start_bench_eal(std::vector<std::string> arguments, unsigned lanes) {
  auto started = port::start_eal(std::move(arguments), lanes);
  if (started) eal_started = true;
  return started;
}

bool leave_bench_eal() noexcept {
  if (eal_started) port::leave_eal();
  return eal_started;
}

}  // namespace gradwire::perf
