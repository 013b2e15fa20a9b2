// SPDX-License-Identifier: BSD-3-Clause
#include "rdma/verbs_device.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "wire/frame.h"

namespace gradwire::perf {
namespace {

constexpr const char* kHowToMakeOne =
    "an Ethernet NIC without RDMA can have SoftRoCE: modprobe rdma_rxe; rdma link add rxe0 type "
    "rxe "
    "netdev INTERFACE";

struct FreeDevices {
  void operator()(ibv_device** list) const noexcept { ibv_free_device_list(list); }
};

/// An IPv4 address is mapped into IPv6 there.
std::optional<ibv_gid> gid_of(const std::string& address) {
  const auto ip = wire::parse_ip(address);
  if (!ip) return std::nullopt;
  ibv_gid gid{};
  if (ip->family == 6) {
    std::memcpy(gid.raw, ip->bytes.data(), sizeof(gid.raw));
  } else {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, ip->bytes.data(), 4);
  }
  return gid;
}

/// What was looked at, for the error.
struct Seen {
  std::vector<std::string> devices;  ///< "rxe0 with 10.9.0.1 fe80::1"
  std::vector<std::string> names;
};

class Search {
 public:
  Search(const RdmaOptions& rdma, const ibv_gid& wanted) : rdma_(rdma), wanted_(wanted) {}

  /// Looks at one device. @return whether it is the one; it is in `found` then.
  Result<bool> look_at(ibv_device* device, VerbsDevice& found) {
    const std::string name = ibv_get_device_name(device);
    seen_.names.push_back(name);
    if (!rdma_.device.empty() && rdma_.device != name) return false;
    if (device->transport_type == IBV_TRANSPORT_IWARP) {
      seen_.devices.push_back(name + ", which is iWARP");
      return false;
    }
    VerbsDevice candidate;
    candidate.context.reset(ibv_open_device(device));
    if (!candidate.context) {
      return fail(ErrorCode::kSystem,
                  fmt::format("RDMA device {} cannot be opened: {}; may this user write to "
                              "/dev/infiniband/uverbs*?",
                              name, std::strerror(errno)));
    }
    candidate.name = name;
    if (const int error = ibv_query_device(candidate.context.get(), &candidate.attributes);
        error != 0) {
      return fail(ErrorCode::kSystem,
                  fmt::format("RDMA device {} does not answer: {}", name, std::strerror(error)));
    }
    std::string addresses;
    for (unsigned port = 1; port <= candidate.attributes.phys_port_cnt; ++port) {
      candidate.port = static_cast<std::uint8_t>(port);
      if (find_gid(candidate, addresses)) {
        found = std::move(candidate);
        return true;
      }
    }
    seen_.devices.push_back(name + (addresses.empty() ? " without one" : " with" + addresses));
    return false;
  }

  [[nodiscard]] tl::unexpected<Error> not_found() const {
    std::string text;
    if (seen_.names.empty()) {
      text = fmt::format("there is no RDMA device here (rdma link show); {}", kHowToMakeOne);
    } else if (seen_.devices.empty()) {
      text = fmt::format("there is no RDMA device '{}' here: --rdma-device may be one of: {}",
                         rdma_.device, fmt::join(seen_.names, ", "));
    } else {
      text = fmt::format(
          "no RDMA device has --rdma-address {} as an address of RoCEv2; there are: {}; {}",
          rdma_.address, fmt::join(seen_.devices, "; "), kHowToMakeOne);
    }
    return fail(ErrorCode::kNotFound, text);
  }

 private:
  bool find_gid(VerbsDevice& candidate, std::string& addresses) {
    ibv_context* const context = candidate.context.get();
    if (ibv_query_port(context, candidate.port, &candidate.port_attributes) != 0) return false;
    for (int index = 0; index < candidate.port_attributes.gid_tbl_len; ++index) {
      ibv_gid_entry entry{};
      if (ibv_query_gid_ex(context, candidate.port, static_cast<std::uint32_t>(index), &entry, 0) !=
              0 ||
          entry.gid_type != IBV_GID_TYPE_ROCE_V2) {
        continue;
      }
      addresses += " " + text_of(entry.gid);
      if (std::memcmp(entry.gid.raw, wanted_.raw, sizeof(wanted_.raw)) != 0) continue;
      candidate.gid_index = index;
      candidate.gid = entry.gid;
      return true;
    }
    return false;
  }

  const RdmaOptions& rdma_;
  const ibv_gid wanted_;
  Seen seen_;
};

}  // namespace

Result<VerbsDevice> find_verbs_device(const RdmaOptions& rdma) {
  const auto wanted = gid_of(rdma.address);
  if (!wanted) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--rdma-address '{}': must be an IPv4 or IPv6 address", rdma.address));
  }
  int count = 0;
  const std::unique_ptr<ibv_device*, FreeDevices> list(ibv_get_device_list(&count));
  Search search(rdma, *wanted);
  VerbsDevice found;
  for (int i = 0; list && i < count; ++i) {
    const auto is_it = search.look_at(list.get()[i], found);
    if (!is_it) return tl::unexpected(is_it.error());
    if (!*is_it) continue;
    if (found.port_attributes.state != IBV_PORT_ACTIVE) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("port {} of RDMA device {}, which has {}, is {}: bring its interface "
                              "up (rdma link show)",
                              found.port, found.name, rdma.address,
                              ibv_port_state_str(found.port_attributes.state)));
    }
    return found;
  }
  return search.not_found();
}

std::string text_of(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  const auto* const raw = gid.raw;
  constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::memcmp(raw, kMapped, sizeof(kMapped)) == 0) {
    ::inet_ntop(AF_INET, raw + sizeof(kMapped), text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, raw, text, sizeof(text));
  }
  return text;
}

}  // namespace gradwire::perf
