// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/formation_missing.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "control/formation/folding.h"
#include "control/plans/plan_request.h"

namespace gradwire::control {
namespace {

/// What came from a neighbor's address that explains why the group does not form; empty if nothing
/// did.
std::string unfit_text(const collective::Unfit& unfit, const NeighborPath& path,
                       std::uint32_t epoch) {
  const std::string ip = wire::to_string(path.remote_ip);
  if (unfit.other_epoch) {
    return fmt::format(
        "rank {} at {} joins epoch {} of this group, this rank epoch {}: all processes of a group "
        "join with one epoch",
        path.rank, ip, unfit.epoch, epoch);
  }
  if (unfit.version != 0) {
    return fmt::format(
        "rank {} at {} sends version {} of the chunk protocol, this daemon version {}: daemons of "
        "a group must be of one release",
        path.rank, ip, unfit.version, wire::kProtocolVersion);
  }
  if (unfit.unsealed) {
    return fmt::format(
        "rank {} at {} sends packets that are not sealed as those of this rank are, or somebody in "
        "its name does: is [security] the same at both?",
        path.rank, ip);
  }
  if (!unfit.hello) return {};
  if (unfit.says_rank != path.rank) {
    return fmt::format(
        "{} is rank {} in the table here, but the hellos of this group that come from there say "
        "rank {}: do all processes list the ranks in the same order?",
        ip, path.rank, unfit.says_rank);
  }
  return fmt::format(
      "rank {} at {} sends hellos of this group with another token: its table is another one. Do "
      "all processes list the same ranks in the same order?",
      path.rank, ip);
}

}  // namespace

std::uint16_t late_rank(const Group& group, const Published& published) {
  if (group.state != GroupState::kForming || group.nranks() == 1) return group.rank;
  for (std::uint8_t lane = 0; lane < group.wanted.lanes; ++lane) {
    if (group.lanes_formed.test(lane)) continue;
    const collective::ShardStatus& status = published_of(published, group, lane).status;
    if (!status.downstream_heard) return group.downstream_rank();
    if (!status.upstream_heard) return group.upstream_rank();
    if (!status.attached_heard) return static_cast<std::uint16_t>(group.nranks() + group.rank);
  }
  return group.rank;
}

std::string what_is_missing(const Group& group, const Published& published,
                            const LaneControl& lanes) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (group.state == GroupState::kGathering) {
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      if (group.members[i].joined()) continue;
      add(fmt::format("member {} of {} has not joined", i, group.members.size()));
    }
    return text;
  }
  if (group.state == GroupState::kResolving) {
    const auto unresolved = [&add](std::span<const NeighborPath> paths, const char* side) {
      for (const NeighborPath& path : paths) {
        if (path.remote_mac) continue;
        add(unanswered_text(path, side));
      }
    };
    unresolved(group.wanted.downstream, "downstream");
    unresolved(group.wanted.upstream, "upstream");
    constexpr std::size_t kNamed = 3;
    std::size_t silent = 0;
    std::size_t unasked = 0;
    for (const PeerPaths& peer : group.wanted.peers) {
      const auto asked = std::ranges::find_if(peer.paths, [](const NeighborPath& path) {
        return path.asked && !path.remote_mac.has_value();
      });
      if (asked != peer.paths.end()) {
        if (silent++ < kNamed) add(unanswered_text(*asked, "for direct ops,"));
      } else if (std::ranges::any_of(peer.paths,
                                     [](const auto& path) { return !path.remote_mac; })) {
        ++unasked;
      }
    }
    if (silent > kNamed) add(fmt::format("{} further ranks do not answer", silent - kNamed));
    if (unasked > 0) {
      add(
          fmt::format("{} ranks were not asked for their MAC addresses yet, since questions go out "
                      "in turn, users' first and then their groups'",
                      unasked));
    }
    if (group.making != nullptr) add("its keys are still being made");
    return text.empty() ? "its lanes have not been started yet" : text;
  }
  for (std::uint8_t lane = 0; lane < group.wanted.lanes; ++lane) {
    if (group.lanes_formed.test(lane)) continue;
    const collective::ShardStatus& status = published_of(published, group, lane).status;
    if (!group.wanted.downstream.empty() && !status.downstream_heard) {
      const NeighborPath& path = path_of(group.wanted.downstream, lane);
      if (const std::string unfit = unfit_text(status.downstream_unfit, path, group.key.epoch);
          !unfit.empty()) {
        add(unfit);
        continue;
      }
      const auto too_big = lanes.too_big(path.port, path.remote_ip);
      // A client's text is short, so what a router says goes before a guess.
      const std::string why =
          too_big ? ": " + text_of(*too_big)
                  : fmt::format(" (if it answers pings, an MTU on the path is below {})",
                                wire::full_packet_bytes(
                                    group.wanted.payload_bytes + seal_bytes(group.wanted),
                                    path.remote_ip.family));
      add(fmt::format("downstream rank {} ({}) has not answered the hello of lane {}{}", path.rank,
                      wire::to_string(path.remote_ip), lane, why));
    }
    if (!group.wanted.upstream.empty() && !status.upstream_heard) {
      const NeighborPath& path = path_of(group.wanted.upstream, lane);
      if (const std::string unfit = unfit_text(status.upstream_unfit, path, group.key.epoch);
          !unfit.empty()) {
        add(unfit);
        continue;
      }
      add(fmt::format("upstream rank {} ({}) has sent no hello to lane {}", path.rank,
                      wire::to_string(path.remote_ip), lane));
    }
    if (!status.attached_heard) {
      add(
          fmt::format("rank {}, which has no members, and the hellos of lane {} have not answered "
                      "each other",
                      group.nranks() + group.rank, lane));
    } else if (status.downstream_heard && status.upstream_heard) {
      add(fmt::format("lane {} has not finished forming", lane));
    }
  }
  return text.empty() ? "the lanes have not finished forming" : text;
}

std::string short_receive_ring(const Group& group, const LaneControl& lanes) {
  if (group.wanted.direct_bytes == 0) return {};
  const std::uint32_t ranks = group.all_ranks();
  const std::uint32_t wanted = ranks + ranks / 16;  // acknowledgements, besides
  for (const LocalAddress& address : lanes.addresses()) {
    const std::uint32_t places = address.rx_descriptors;
    if (places == 0 || places >= wanted || address.single_peer) continue;
    return fmt::format(
        "small ops of {} may bring a packet of each of its {} ranks at once, and a receive ring of "
        "the port at {} has {} places: those that find none are lost and sent again, which takes "
        "milliseconds. Set port.rx_descriptors to {}",
        key_text(group.key), ranks, wire::to_string(address.ip), places, std::bit_ceil(wanted));
  }
  return {};
}

}  // namespace gradwire::control
