// SPDX-License-Identifier: BSD-3-Clause
#include "neighbors.h"

#include <cstring>
#include <span>
#include <utility>

#include "rendezvous.h"

namespace gradwire::perf {
namespace {

/// How other ranks reach this one.
struct TcpInfo {
  char address[62] = {};  ///< as text, ended by a zero
  std::uint16_t port = 0;
};
static_assert(sizeof(TcpInfo) == 64);

/// The first bytes of a connection, which tell it from those of other runs and programs.
struct TcpHello {
  std::uint64_t group_id = 0;
  std::uint64_t rank = 0;
};

Result<TcpSocket> connect_downstream(const Options& options, const Meeting& meeting,
                                     const TcpTuning& tuning, Clock::time_point deadline) {
  TcpInfo info;
  std::memcpy(&info, meeting.rank_infos.data() + next_rank(options) * sizeof(info), sizeof(info));
  info.address[sizeof(info.address) - 1] = '\0';
  auto socket = tcp_connect(info.address, info.port, tuning, deadline);
  if (!socket) return socket;
  const TcpHello hello{meeting.group_id, options.rank};
  auto said = tcp_send_all(*socket, std::as_bytes(std::span(&hello, 1)), deadline);
  if (!said) return tl::unexpected(said.error());
  return socket;
}

Result<TcpSocket> accept_upstream(const Options& options, const Meeting& meeting,
                                  const TcpSocket& listener, const TcpTuning& tuning,
                                  Clock::time_point deadline) {
  while (true) {
    auto socket = tcp_accept(listener, tuning, deadline);
    if (!socket) return socket;
    TcpHello hello;
    const auto said =
        tcp_receive_all(*socket, std::as_writable_bytes(std::span(&hello, 1)), deadline);
    // A foreign connection: the next may be the right one.
    if (!said || hello.group_id != meeting.group_id || hello.rank != previous_rank(options)) {
      continue;
    }
    return socket;
  }
}

}  // namespace

Result<Neighbors> connect_neighbors(const Options& options, const std::string& address,
                                    const TcpTuning& tuning, Clock::time_point deadline) {
  const auto listener = tcp_listen(address, 0, tuning);
  if (!listener) return tl::unexpected(listener.error());
  const auto port = tcp_port(*listener);
  if (!port) return tl::unexpected(port.error());
  TcpInfo own;
  address.copy(own.address, sizeof(own.address) - 1);
  own.port = *port;
  const auto meeting = meet(options, std::as_bytes(std::span(&own, 1)));
  if (!meeting) return tl::unexpected(meeting.error());

  Neighbors neighbors;
  neighbors.group_id = meeting->group_id;
  const bool accepts = options.nranks > 2 || options.rank == 1;
  const bool connects = options.nranks > 2 || options.rank == 0;
  if (connects) {
    auto socket = connect_downstream(options, *meeting, tuning, deadline);
    if (!socket) return tl::unexpected(socket.error());
    neighbors.downstream = std::move(*socket);
  }
  if (accepts) {
    auto socket = accept_upstream(options, *meeting, *listener, tuning, deadline);
    if (!socket) return tl::unexpected(socket.error());
    (connects ? neighbors.upstream : neighbors.downstream) = std::move(*socket);
  }
  return neighbors;
}

}  // namespace gradwire::perf
