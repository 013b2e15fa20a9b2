// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_layout.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_memory.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "ipc/unique_fd.h"

extern "C" {
// Not in DPDK's public headers. Weak, since another release may not have it.
extern __attribute__((weak)) std::byte rte_eth_devices[];
}

namespace gradwire::port {
namespace {

/// Reads memory of this process at an address that may be any number: the kernel copies it through
/// a pipe, and refuses if nothing is there.
class Reader {
 public:
  Reader() noexcept {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    out_ = ipc::UniqueFd(ends[0]);
    in_ = ipc::UniqueFd(ends[1]);
  }
  template <class T>
  [[nodiscard]] std::optional<T> at(const void* address) const noexcept {
    T value{};
    const ssize_t copied = write(in_.get(), address, sizeof value);
    if (copied <= 0 || read(out_.get(), &value, static_cast<std::size_t>(copied)) != copied ||
        copied != static_cast<ssize_t>(sizeof value)) {
      return std::nullopt;
    }
    return value;
  }

 private:
  ipc::UniqueFd out_;
  ipc::UniqueFd in_;
};

bool is_eventfd(int fd) noexcept {
  constexpr std::string_view kEventFd = "anon_inode:[eventfd]";
  std::array<char, 64> path{};
  std::array<char, 64> link{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  const ssize_t bytes = readlink(path.data(), link.data(), link.size());
  return bytes > 0 && std::string_view(link.data(), static_cast<std::size_t>(bytes)) == kEventFd;
}

/// Whether it is memory that the driver allocated, which begins on a cache line.
bool is_allocated(const void* address) noexcept {
  return address != nullptr &&
         reinterpret_cast<std::uintptr_t>(address) % RTE_CACHE_LINE_SIZE == 0 &&
         rte_mem_virt2memseg_list(address) != nullptr;
}

bool is_bell(const Reader& reader, const rte_intr_handle* bell) noexcept {
  if (!is_allocated(bell) || !reader.at<std::array<std::byte, 64>>(bell)) return false;
  if (rte_intr_type_get(bell) != RTE_INTR_HANDLE_EXT) return false;
  const int fd = rte_intr_fd_get(bell);
  return fd == -1 || is_eventfd(fd);
}

/// How the part of a port begins that processes share, since DPDK 20.11.
struct PortData {
  std::array<char, RTE_ETH_NAME_MAX_LEN> name;
  void** rx_queues;
  void** tx_queues;
};

bool is_data_of(const Reader& reader, const void* address, std::uint16_t port_id) noexcept {
  if (!is_allocated(address)) return false;
  const auto data = reader.at<PortData>(address);
  std::array<char, RTE_ETH_NAME_MAX_LEN> name{};
  return data && rte_eth_dev_get_name_by_port(port_id, name.data()) == 0 &&
         std::strncmp(data->name.data(), name.data(), name.size()) == 0 &&
         data->rx_queues == rte_eth_fp_ops[port_id].rxq.data &&
         data->tx_queues == rte_eth_fp_ops[port_id].txq.data;
}

/// How much of what librte_ethdev keeps for a port is searched, in pointers. It begins with the
/// calls of its driver, whose number grows from release to release.
constexpr std::size_t kPortWords = 16;

/// @return nullptr if the library does not say how much it keeps for each port.
const std::byte* port_at(std::uint16_t port_id) noexcept {
  if (rte_eth_devices == nullptr) return nullptr;
  Dl_info library{};
  void* found = nullptr;
  if (dladdr1(rte_eth_devices, &library, &found, RTLD_DL_SYMENT) == 0 || found == nullptr) {
    return nullptr;
  }
  const std::size_t bytes = static_cast<const ElfW(Sym)*>(found)->st_size;
  const std::size_t of_each = bytes / RTE_MAX_ETHPORTS;
  if (bytes % RTE_MAX_ETHPORTS != 0 || of_each < kPortWords * sizeof(void*)) return nullptr;
  return rte_eth_devices + of_each * port_id;
}

/// What drivers/net/memif keeps there: the places of shared regions, and how many there are.
constexpr std::size_t kMostRegions = 256;

}  // namespace

std::optional<std::size_t> find_bell(const void* queue, std::size_t after) noexcept {
  constexpr std::size_t kSearched = 4 * sizeof(void*);
  const Reader reader;
  std::optional<std::size_t> found;
  for (std::size_t at = after; at < after + kSearched; at += sizeof(void*)) {
    const auto bell = reader.at<const rte_intr_handle*>(static_cast<const std::byte*>(queue) + at);
    if (!bell || !is_bell(reader, *bell)) continue;
    if (found) return std::nullopt;
    found = at;
  }
  return found;
}

const void* find_process_private(std::uint16_t port_id) noexcept {
  const Reader reader;
  const std::byte* port = port_at(port_id);
  const auto words = reader.at<std::array<const void*, kPortWords>>(port);
  const auto& calls = rte_eth_fp_ops[port_id];
  if (!words || (*words)[0] != reinterpret_cast<const void*>(calls.rx_pkt_burst) ||
      (*words)[1] != reinterpret_cast<const void*>(calls.tx_pkt_burst)) {
    return nullptr;
  }
  const void* found = nullptr;
  for (std::size_t i = 2; i + 1 < kPortWords; ++i) {
    if (!is_data_of(reader, (*words)[i], port_id)) continue;
    if (found != nullptr) return nullptr;
    found = (*words)[i + 1];
  }
  if (!is_allocated(found)) return nullptr;
  const auto regions = reader.at<std::array<const void*, kMostRegions>>(found);
  if (!regions) return nullptr;
  for (const void* region : *regions) {
    if (region != nullptr && !is_allocated(region)) return nullptr;
  }
  return found;
}

}  // namespace gradwire::port
