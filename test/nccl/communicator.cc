// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/communicator.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "nccl/calls.h"
#include "nccl/collnet_play.h"
#include "nccl/draw.h"
#include "nccl/failure.h"

namespace gradwire::nccl {
namespace {

/// News are waited for less long than requests, so that whoever waits for us does not fail first.
constexpr std::uint64_t kNewsShare = 4;
/// How long after a death somebody takes to abort a communicator whose connections do not come: a
/// connect or accept of a peer that is gone may stay without an end.
constexpr std::uint64_t kGiveUpNs = 2'000'000'000;
constexpr unsigned kServiceTickUs = 200;
constexpr unsigned kIdleRoundsMax = 32;
constexpr unsigned kIdleUs = 50;
constexpr unsigned kLateWritesUs = 20'000;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

}  // namespace

Communicator::Communicator(Host& host, const CommPlan& plan) : host_(host), plan_(plan) {
  for (const ConnectionPlan& one : plan.connections) {
    if (one.from != host.rank && one.to != host.rank) continue;
    auto& made = openings_.emplace_back(std::make_unique<Opening>());
    made->endpoint =
        std::make_unique<Endpoint>(host.library, host.options, one, one.from == host.rank);
    const std::uint64_t late_ns = std::uint64_t{one.late_us} * 1000;
    made->not_before_ns = now_ns();
    if (late_ns > 0) {
      made->not_before_ns += mixed(one.key, static_cast<std::uint64_t>(host.rank)) % late_ns;
    }
  }
  abort_at_ = kNever;
  if (plan.aborter == host.rank) {
    const auto all = static_cast<double>(messages_of(plan, host.rank));
    abort_at_ = static_cast<std::uint64_t>(all * plan.abort_after);
  }
  service_ = std::thread([this] { serve(); });
}

Communicator::~Communicator() { service_.join(); }

std::uint64_t Communicator::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& one : openings_) sum += one->endpoint->bytes_done();
  return sum;
}
std::uint64_t Communicator::messages() const {
  std::uint64_t sum = 0;
  for (const auto& one : openings_) {
    if (!one->endpoint->sends()) sum += one->endpoint->messages_done();
  }
  return sum;
}
std::uint64_t Communicator::later() const {
  std::uint64_t sum = 0;
  for (const auto& one : openings_) sum += one->endpoint->later();
  return sum;
}

std::uint64_t Communicator::patience_ns() const {
  return static_cast<std::uint64_t>(host_.options.setup_patience_s * 1e9);
}

bool Communicator::stopped() const {
  return failed_.load(std::memory_order_acquire) || host_.exchange.aborted_by(plan_.number) >= 0;
}

bool Communicator::excused() const {
  const int killed = host_.exchange.killed();
  return host_.exchange.aborted_by(plan_.number) >= 0 || (killed >= 0 && takes_part(plan_, killed));
}

bool Communicator::given_up() const {
  return excused() && now_ns() - host_.exchange.killed_since_ns() > kGiveUpNs;
}

template <class Work>
void Communicator::guarded(Work work) {
  try {
    work();
  } catch (const CallFailed& failure) {
    // The word of an abort or a death may come after what it brings about.
    const std::uint64_t began = now_ns();
    while (!excused() && now_ns() - began < patience_ns() / kNewsShare) usleep(1000);
    if (!excused()) {
      host_.exchange.fail(fmt::format("{}; no rank has aborted or died", failure.what()));
    }
    failed_.store(true, std::memory_order_release);
  } catch (const std::exception& failure) {
    host_.exchange.fail(failure.what());
    failed_.store(true, std::memory_order_release);
  }
}

void Communicator::serve() {
  guarded([this] { set_up(); });
  progress_ = std::thread([this] {
    guarded([this] { drive(); });
    driven_.store(true, std::memory_order_release);
  });
  if (plan_.all_reduces > 0) {
    collnet_ = std::thread([this] { guarded([this] { play_collnet(); }); });
  }
  guarded([this] { connect_all(); });
  all_open_.store(true, std::memory_order_release);
  guarded([this] { churn_until_done(); });
  progress_.join();
  if (collnet_.joinable()) collnet_.join();
  try {
    if (!host_.exits()) close_all();
  } catch (const std::exception& failure) {
    host_.exchange.fail(failure.what());
  }
  ended_.store(true, std::memory_order_release);
}

/// As ncclNetInit() and the search for the topology do it.
void Communicator::set_up() {
  Library& library = host_.library;
  const auto need = [](nccl_net::Status status, const char* call) {
    if (status != nccl_net::kSuccess) throw Failure(fmt::format("{}() gave {}", call, status));
  };
  need(library.init(&context_, plan_.seed), "init");
  initialised_ = true;
  need(library.devices(&devices_), "devices");
  if (devices_ < 1) throw Failure(fmt::format("devices() says {}", devices_));
  for (int device = 0; device < devices_; ++device) {
    nccl_net::PropertiesV12 properties;
    need(library.properties(device, &properties), "get_properties");
    const bool host_memory = (properties.pointers & nccl_net::kPointerHost) != 0;
    if (properties.name == nullptr || properties.speed_mbps < 1 || properties.comms_max < 1 ||
        properties.receives_max < 1 || !host_memory || properties.message_bytes < 1 ||
        properties.device_type != nccl_net::kDeviceTypeHost) {
      throw Failure(
          fmt::format("properties of device {} make no sense: name {}, {} Mbit/s, "
                      "comms_max {}, receives_max {}, pointers {}, device type {}",
                      device, properties.name == nullptr ? "null" : properties.name,
                      properties.speed_mbps, properties.comms_max, properties.receives_max,
                      properties.pointers, properties.device_type));
    }
    if (properties.receives_max < host_.options.streams) {
      throw Failure(fmt::format("--streams {}, and device {} groups {} receives at most",
                                host_.options.streams, device, properties.receives_max));
    }
  }
  listen();
}

void Communicator::listen() {
  for (const auto& one : openings_) {
    const ConnectionPlan& plan = one->endpoint->plan();
    if (plan.to != host_.rank) continue;
    const int device = static_cast<int>(plan.key % static_cast<unsigned>(devices_));
    HandleBytes handle{};
    const nccl_net::Status status =
        host_.library.listen(context_, device, handle.data(), &one->listen_comm);
    if (status != nccl_net::kSuccess || one->listen_comm == nullptr) {
      throw Failure(fmt::format("listen() gave {} for device {}", status, device));
    }
    host_.exchange.send(Word::kHandle, plan.from, plan.number, handle);
  }
}

bool Communicator::try_connect(Opening& one) {
  const ConnectionPlan& plan = one.endpoint->plan();
  if (!one.has_handle) {
    const auto handle = host_.exchange.handle_of(plan.number);
    if (!handle) return false;
    one.handle = *handle;
    one.has_handle = true;
  }
  void* comm = nullptr;
  host_.library.say_attributes(context_);
  const int device = static_cast<int>(plan.key / 2 % static_cast<unsigned>(devices_));
  const nccl_net::Status status = host_.library.connect(context_, device, one.handle.data(), &comm);
  if (status != nccl_net::kSuccess) {
    throw CallFailed(fmt::format("connect() gave {}: communicator {}, channel {}, rank {} to {}",
                                 status, plan.comm, plan.channel, plan.from, plan.to));
  }
  if (comm == nullptr) return false;
  one.endpoint->opened(comm);
  return true;
}

bool Communicator::try_accept(Opening& one) {
  const ConnectionPlan& plan = one.endpoint->plan();
  void* comm = nullptr;
  host_.library.say_attributes(context_);
  const nccl_net::Status status = host_.library.accept(one.listen_comm, &comm);
  if (status != nccl_net::kSuccess) {
    throw CallFailed(fmt::format("accept() gave {}: communicator {}, channel {}, rank {} to {}",
                                 status, plan.comm, plan.channel, plan.from, plan.to));
  }
  if (comm == nullptr) return false;
  // NCCL closes the listener before it registers memory.
  host_.library.close_listen(std::exchange(one.listen_comm, nullptr));
  one.endpoint->opened(comm);
  return true;
}

void Communicator::connect_all() {
  const std::uint64_t began = now_ns();
  for (std::size_t left = openings_.size(); left > 0 && !stopped(); usleep(kServiceTickUs)) {
    left = 0;
    for (const auto& one : openings_) {
      if (one->open.load(std::memory_order_relaxed) || stopped()) continue;
      const bool late = now_ns() < one->not_before_ns;
      const bool sends = one->endpoint->sends();
      if (!late && (sends ? try_connect(*one) : try_accept(*one))) {
        one->open.store(true, std::memory_order_release);
        continue;
      }
      ++left;
      if (given_up()) return failed_.store(true, std::memory_order_release);
      if (now_ns() - began < patience_ns()) continue;
      const ConnectionPlan& plan = one->endpoint->plan();
      throw Failure(
          fmt::format("{} has given no connection for {:.1f} s: communicator {}, "
                      "channel {}, rank {} to {}",
                      sends ? "connect()" : "accept()", host_.options.setup_patience_s, plan.comm,
                      plan.channel, plan.from, plan.to));
    }
  }
}

void Communicator::churn_until_done() {
  Draw draw(mixed(host_.options.seed, static_cast<std::uint64_t>(host_.rank)));
  while (!driven_.load(std::memory_order_acquire)) {
    usleep(kServiceTickUs * 5);
    if (!host_.options.check || openings_.empty() || stopped()) continue;
    Opening& one = *openings_[draw.between(0, openings_.size() - 1)];
    if (one.open.load(std::memory_order_acquire)) one.endpoint->churn(draw.number());
  }
}

void Communicator::drive() {
  std::uint64_t first = 0;
  for (unsigned idle = 0; !stopped();) {
    drive_round(idle);
    if (first == 0 && idle == 0) first = now_ns();
    if (first != 0) seconds_ = static_cast<double>(now_ns() - first) / 1e9;
    const bool finished = std::all_of(openings_.begin(), openings_.end(),
                                      [](const auto& one) { return one->endpoint->finished(); });
    if (finished && all_open_.load(std::memory_order_acquire)) break;
  }
}

void Communicator::drive_round(unsigned& idle) {
  bool moved = false;
  std::uint64_t done = 0;
  for (const auto& one : openings_) {
    if (!one->open.load(std::memory_order_acquire)) continue;
    const std::uint64_t before = one->endpoint->messages_done();
    moved |= one->endpoint->progress();
    done += one->endpoint->messages_done();
    host_.messages.fetch_add(one->endpoint->messages_done() - before, std::memory_order_relaxed);
  }
  if (done >= abort_at_ && host_.exchange.aborted_by(plan_.number) < 0) {
    host_.exchange.abort(plan_.number);
  }
  idle = moved ? 0 : idle + 1;
  if (idle == 0) return;
  sched_yield();  // all that NCCL does
  if (host_.options.check && idle % kIdleRoundsMax == 0) usleep(kIdleUs);
}

void Communicator::play_collnet() {
  CollNetPlay play(host_, plan_, [this] { return stopped(); });
  play.run();
}

void Communicator::close_all() {
  Draw draw(mixed(host_.options.seed, 77));
  draw.shuffle(openings_);
  for (const auto& one : openings_) {
    if (one->listen_comm != nullptr) host_.library.close_listen(one->listen_comm);
    one->endpoint->close();
  }
  if (initialised_) host_.library.finalize(context_);
  if (stopped()) usleep(kLateWritesUs);
  for (const auto& one : openings_) {
    if (one->open.load(std::memory_order_acquire)) one->endpoint->check_untouched();
  }
}

}  // namespace gradwire::nccl
