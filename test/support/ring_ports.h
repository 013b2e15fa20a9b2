// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Two ethdev ports of net_ring. They are joined, so that each receives what the other sends; or a
/// test moves the frames between them.
#pragma once

#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <string>
#include <vector>

namespace gradwire::port {

class RingPorts {
 public:
  /// Ports "net_ring_NAMEa" and "net_ring_NAMEb".
  explicit RingPorts(const std::string& name, unsigned queues = 1, unsigned entries = 512,
                     bool joined = true) {
    for (unsigned q = 0; q < queues; ++q) {
      const std::string suffix = name + std::to_string(q);
      constexpr unsigned kFlags = RING_F_SP_ENQ | RING_F_SC_DEQ;
      to_b_.push_back(rte_ring_create(("ab" + suffix).c_str(), entries, SOCKET_ID_ANY, kFlags));
      to_a_.push_back(rte_ring_create(("ba" + suffix).c_str(), entries, SOCKET_ID_ANY, kFlags));
      from_a_.push_back(
          joined ? to_b_.back()
                 : rte_ring_create(("a" + suffix).c_str(), entries, SOCKET_ID_ANY, kFlags));
      from_b_.push_back(
          joined ? to_a_.back()
                 : rte_ring_create(("b" + suffix).c_str(), entries, SOCKET_ID_ANY, kFlags));
    }
    a_id_ =
        rte_eth_from_rings((name + "a").c_str(), to_a_.data(), queues, from_a_.data(), queues, 0);
    b_id_ =
        rte_eth_from_rings((name + "b").c_str(), to_b_.data(), queues, from_b_.data(), queues, 0);
    a_ = "net_ring_" + name + "a";
    b_ = "net_ring_" + name + "b";
  }
  ~RingPorts() {
    drain();
    for (auto* rings : {&from_a_, &from_b_}) {
      for (std::size_t q = 0; q < rings->size(); ++q) {
        if ((*rings)[q] != to_a_[q] && (*rings)[q] != to_b_[q]) rte_ring_free((*rings)[q]);
      }
    }
    for (auto* rings : {&to_a_, &to_b_}) {
      for (rte_ring* ring : *rings) rte_ring_free(ring);
    }
  }
  RingPorts(const RingPorts&) = delete;
  RingPorts& operator=(const RingPorts&) = delete;

  [[nodiscard]] const std::string& a() const { return a_; }
  [[nodiscard]] const std::string& b() const { return b_; }
  [[nodiscard]] rte_ring* to_b(unsigned queue = 0) const { return to_b_[queue]; }
  [[nodiscard]] rte_ring* to_a(unsigned queue = 0) const { return to_a_[queue]; }
  [[nodiscard]] rte_ring* from_a(unsigned queue = 0) const { return from_a_[queue]; }
  [[nodiscard]] rte_ring* from_b(unsigned queue = 0) const { return from_b_[queue]; }
  [[nodiscard]] bool made() const { return a_id_ >= 0 && b_id_ >= 0; }
  /// Frees frames that are under way, before the mempools are freed.
  void drain() {
    for (auto* rings : {&to_a_, &to_b_, &from_a_, &from_b_}) {
      for (rte_ring* ring : *rings) drain(ring);
    }
  }

 private:
  static void drain(rte_ring* ring) {
    void* frame = nullptr;
    while (rte_ring_dequeue(ring, &frame) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame));
  }

  std::vector<rte_ring*> to_a_;
  std::vector<rte_ring*> to_b_;
  std::vector<rte_ring*> from_a_;
  std::vector<rte_ring*> from_b_;
  std::string a_;
  std::string b_;
  int a_id_ = -1;
  int b_id_ = -1;
};

}  // namespace gradwire::port
