// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Lanes in the test's hand: none answers a request unless the test, or a rule that it set, says
/// so. One thread.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/lanes/lane_control.h"
#include "table_support.h"

namespace gradwire::control::test {

using command::RequestType;

class FakeLanes final : public LaneControl {
 public:
  ~FakeLanes() override {
    for (command::GroupPlan* plan : plans) delete plan;
  }
  std::uint8_t lanes() const override { return 2; }
  std::span<const LocalAddress> addresses() const override { return local; }
  bool send(std::uint8_t lane, command::Request* request) override {
    if (full) return false;
    log.push_back({lane, request->type});
    if (answers.contains(request->type)) {
      done(lane, request);
    } else {
      held.push_back({lane, request});
    }
    return true;
  }
  bool next_notice(command::Notice& out) override {
    if (notices.empty()) return false;
    out = notices.front();
    notices.pop_front();
    return true;
  }
  Resolution resolve(std::uint16_t port, const wire::IpAddress& ip, Asking asking) override {
    const std::string text = wire::to_string(ip);
    Resolution out;
    out.asked = asked.contains(text);
    if (asking == Asking::kInTurn) {
      if (!out.asked && room_to_ask == 0) return out;
      if (!out.asked) --room_to_ask;
      asked_in_turn.insert(text);
      questions.push_back(text);
    }
    if (asking == Asking::kNotNow && !out.asked && !known.contains(text)) return out;
    asked.insert(text);
    out.asked = true;
    resolved_ports.insert(port);
    out.hop = hops.contains(text) ? wire::parse_ip(hops.at(text)).value() : ip;
    if (unreachable.contains(text)) {
      out.state = ResolveState::kFailed;
      out.error = "no such family";
    } else if (!silent.contains(text) || known.contains(text)) {
      out.state = ResolveState::kResolved;
      out.mac = {2, 0, 0, 0, 0, ip.bytes[3]};
    }
    return out;
  }
  Result<command::GroupPlan*> create_plan(std::uint64_t handle,
                                          const PlanRequest& request) override {
    if (!plan_error.empty()) return fail(ErrorCode::kResourceExhausted, plan_error);
    plan_requests.push_back(request);
    auto* plan = new command::GroupPlan;
    plan->group_handle = handle;
    plan->shards.resize(request.lanes);
    plans.insert(plan);
    return plan;
  }
  void destroy_plan(command::GroupPlan* plan) override {
    REQUIRE(plans.erase(plan) == 1);
    delete plan;
    ++plans_destroyed;
  }

  void done(std::uint8_t lane, command::Request* request) {
    command::Notice notice;
    notice.lane = lane;
    notice.request = request;
    notices.push_back(notice);
  }
  /// Answers what is held of `type`. @return how many there were.
  int finish(RequestType type) {
    int count = 0;
    for (auto it = held.begin(); it != held.end();) {
      if (it->second->type == type) {
        done(it->first, it->second);
        it = held.erase(it);
        ++count;
      } else {
        ++it;
      }
    }
    return count;
  }
  int count(RequestType type) const {
    return static_cast<int>(
        std::ranges::count_if(log, [type](const auto& entry) { return entry.second == type; }));
  }
  /// Requests of `type` that are held: what a lane has and has not answered.
  std::vector<command::Request*> holding(RequestType type) const {
    std::vector<command::Request*> found;
    for (const auto& [lane, request] : held) {
      if (request->type == type) found.push_back(request);
    }
    return found;
  }
  void formed(std::uint64_t handle, std::uint8_t lane) {
    command::Notice notice;
    notice.type = command::NoticeType::kGroupFormed;
    notice.lane = lane;
    notice.group_handle = handle;
    notices.push_back(notice);
  }
  void aborted(std::uint64_t handle, std::uint8_t lane, const AbortReason& reason) {
    command::Notice notice;
    notice.type = command::NoticeType::kGroupAborted;
    notice.lane = lane;
    notice.group_handle = handle;
    notice.reason = reason;
    notices.push_back(notice);
  }

  std::vector<LocalAddress> local = {local_address(0, "10.0.0.1")};
  std::set<RequestType> answers = {RequestType::kAddClient, RequestType::kAddMemory,
                                   RequestType::kAddGroup,  RequestType::kAbortGroup,
                                   RequestType::kAddEvent,  RequestType::kSetFaults,
                                   RequestType::kMemberLeft};
  std::vector<std::pair<std::uint8_t, RequestType>> log;
  std::deque<std::pair<std::uint8_t, command::Request*>> held;
  std::deque<command::Notice> notices;
  std::set<std::string> unreachable;
  std::set<std::string> silent;
  std::set<std::string> asked_in_turn;
  std::vector<std::string> questions;  ///< the same in their order
  std::size_t room_to_ask = SIZE_MAX;
  std::set<std::string> asked;
  std::set<std::string> known;              ///< without a question
  std::map<std::string, std::string> hops;  ///< routers, by the address that they lead to
  std::set<std::uint16_t> resolved_ports;
  std::string plan_error;
  std::vector<PlanRequest> plan_requests;
  std::set<command::GroupPlan*> plans;
  int plans_destroyed = 0;
  bool full = false;
};

}  // namespace gradwire::control::test
