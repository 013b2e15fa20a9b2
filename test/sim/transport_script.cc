// SPDX-License-Identifier: BSD-3-Clause
// Plays a story of the transport: a text file of timed lines, each does something to a sender or a
// receiver, or says what has to be so. Packets have 1,000 bytes and their number is their cookie.
//
//   config window BYTES              before anything else
//   5ms send 3 [past]                the next three packets; `past`: probes, past window and pacing
//   6ms ack 1-2 5 [credit N] [posted N] [delay T] [ce N]
//   7ms timer                        on_deadline()
//   8ms blocked | forget
//   9ms receive 4 [ce]               at the receiver
//   expect acked 1 2 | acked none | lost 3 | probes 2 | in_flight 0 | deadline 5ms | deadline never
//   expect pto_count 1 | can_send yes | credit 40 | posted 3 | malformed yes | last_number 4
//   expect ack_due no | ranges 4-4 1-2      `ranges` writes the acknowledgement
//
// transport_script FILE: exit status 0 if all was so; else the line that was not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "transport/receiver.h"
#include "transport/sender.h"

namespace {

using namespace gradwire;
using namespace gradwire::transport;
using Words = std::vector<std::string>;

TimeNs parse_time(const std::string& word) {
  if (word == "never") return kNever;
  char* unit = nullptr;
  const double value = std::strtod(word.c_str(), &unit);
  const std::string name = unit;
  const double scale = name == "ms" ? 1e6 : name == "us" ? 1e3 : name == "ns" ? 1 : 0;
  if (scale == 0) throw std::runtime_error("a time needs ms, us or ns: " + word);
  return static_cast<TimeNs>(value * scale + 0.5);
}

wire::AckRange parse_range(const std::string& word) {
  const std::size_t dash = word.find('-');
  const std::uint64_t first = std::stoull(word);
  return {first, dash == std::string::npos ? first : std::stoull(word.substr(dash + 1))};
}

class Story {
 public:
  void line(const Words& words) {
    if (words[0] == "config") {
      if (words.at(1) != "window") throw std::runtime_error("unknown setting " + words[1]);
      window_ = std::stoull(words.at(2));
    } else if (words[0] == "expect") {
      expect(words.at(1), Words(words.begin() + 2, words.end()));
    } else {
      now_ = std::max(now_, parse_time(words[0]));
      act(words.at(1), Words(words.begin() + 2, words.end()));
    }
  }

 private:
  static constexpr std::uint32_t kBytes = 1'000;

  Sender& sender() {
    if (!sender_) {
      sender_ = std::make_unique<Sender>(SenderConfig{}, make_static_controller(window_), numbers_);
    }
    return *sender_;
  }

  void take(const Outcome& outcome) {
    acked_.assign(outcome.acked.begin(), outcome.acked.end());
    lost_.assign(outcome.lost.begin(), outcome.lost.end());
    std::sort(acked_.begin(), acked_.end());
    std::sort(lost_.begin(), lost_.end());
    probes_ = outcome.probes;
    malformed_ = outcome.malformed;
  }

  void act(const std::string& what, const Words& words) {
    if (what == "send") {
      const bool past = words.size() > 1 && words[1] == "past";
      for (std::uint64_t i = std::stoull(words.at(0)); i > 0; --i) {
        if (!past && !sender().can_send(now_, kBytes)) throw std::runtime_error("may not send");
        last_ = sender().on_sent(now_, kBytes, last_ + 1);
      }
    } else if (what == "unacknowledged") {
      // Packets of the same link that want no acknowledgement.
      for (std::uint64_t i = std::stoull(words.at(0)); i > 0; --i) last_ = numbers_.take();
    } else if (what == "ack") {
      ack(words);
    } else if (what == "timer") {
      take(sender().on_deadline(now_));
    } else if (what == "blocked") {
      sender().set_blocked(now_);
    } else if (what == "forget") {
      sender().forget_all();
    } else if (what == "receive") {
      const std::uint64_t number = std::stoull(words.at(0));
      if (words.size() > 1 && words[1] == "unacknowledged") {
        receiver_.note(number);
      } else if (receiver_.check(number) == Receiver::Verdict::kNew) {
        receiver_.accept(now_, number, words.size() > 1);
      } else {
        receiver_.on_duplicate(now_);
      }
    } else {
      throw std::runtime_error("unknown action " + what);
    }
  }

  void ack(const Words& words) {
    wire::AckHeader header;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "credit") {
        header.credit_chunks = std::stoull(words.at(++i));
      } else if (words[i] == "posted") {
        header.posted_op_seq = std::stoull(words.at(++i));
      } else if (words[i] == "delay") {
        header.delay_ns = static_cast<std::uint32_t>(parse_time(words.at(++i)));
      } else if (words[i] == "ce") {
        header.ecn_ce_count = static_cast<std::uint32_t>(std::stoul(words.at(++i)));
      } else {
        header.ranges[header.range_count++] = parse_range(words[i]);
      }
    }
    take(sender().on_ack(now_, header));
  }

  void expect(const std::string& what, const Words& words) {
    std::string wanted;
    for (const std::string& word : words) wanted += (wanted.empty() ? "" : " ") + word;
    const std::string found = value_of(what, wanted);
    if (found != wanted) throw std::runtime_error(fmt::format("{} is {}", what, found));
  }

  static std::string list(const std::vector<Cookie>& cookies) {
    return cookies.empty() ? "none" : fmt::format("{}", fmt::join(cookies, " "));
  }
  static std::string yes(bool value) { return value ? "yes" : "no"; }

  std::string value_of(const std::string& what, const std::string& wanted) {
    if (what == "acked") return list(acked_);
    if (what == "lost") return list(lost_);
    if (what == "probes") return std::to_string(probes_);
    if (what == "malformed") return yes(malformed_);
    if (what == "in_flight") return std::to_string(sender().packets_in_flight());
    if (what == "pto_count") return std::to_string(sender().pto_count());
    if (what == "can_send") return yes(sender().can_send(now_, kBytes));
    if (what == "credit") return std::to_string(sender().credit_chunks());
    if (what == "posted") return std::to_string(sender().posted_op_seq());
    if (what == "last_number") return std::to_string(last_);
    if (what == "ack_due") return yes(receiver_.ack_due(now_, false));
    if (what == "deadline") {
      const TimeNs deadline = sender().deadline();
      if (deadline == parse_time(wanted)) return wanted;
      return deadline == kNever ? "never" : fmt::format("{}ns", deadline);
    }
    if (what == "ranges") {
      wire::AckHeader header;
      receiver_.write_ack(now_, header);
      std::string text;
      for (std::size_t i = 0; i < header.range_count; ++i) {
        text +=
            fmt::format("{}{}-{}", i > 0 ? " " : "", header.ranges[i].first, header.ranges[i].last);
      }
      return text;
    }
    throw std::runtime_error("nothing is called " + what);
  }

  std::uint64_t window_ = 1'000'000;
  PacketNumbers numbers_;
  std::unique_ptr<Sender> sender_;
  Receiver receiver_{ReceiverConfig{}};
  TimeNs now_ = 0;
  std::uint64_t last_ = 0;
  std::vector<Cookie> acked_;
  std::vector<Cookie> lost_;
  std::uint32_t probes_ = 0;
  bool malformed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  std::ifstream file(argc > 1 ? argv[1] : "");
  if (!file) {
    fmt::print(stderr, "usage: transport_script FILE\n");
    return 2;
  }
  Story story;
  std::string text;
  int expectations = 0;
  for (int number = 1; std::getline(file, text); ++number) {
    std::istringstream line(text.substr(0, text.find('#')));
    Words words;
    for (std::string word; line >> word;) words.push_back(word);
    if (words.empty()) continue;
    try {
      story.line(words);
      expectations += words[0] == "expect" ? 1 : 0;
    } catch (const std::exception& error) {
      fmt::print("{}:{}: {}\n  {}\n", argv[1], number, error.what(), text);
      return 1;
    }
  }
  fmt::print("{}: {} expectations met\n", argv[1], expectations);
  return expectations > 0 ? 0 : 1;
}
