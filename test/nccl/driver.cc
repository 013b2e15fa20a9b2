// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/driver.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <new>

#include "nccl/failure.h"
#include "nccl/rank.h"

namespace gradwire::nccl {
namespace {

constexpr int kPollMs = 20;

std::size_t shared_bytes(std::size_t processes) { return processes * sizeof(Figures); }

}  // namespace

Driver::Driver(const Options& options, const Plan& plan) : options_(options), plan_(plan) {
  const auto count = static_cast<std::size_t>(plan.processes);
  processes_.resize(count);
  void* memory =
      mmap(nullptr, shared_bytes(count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Failure("no memory for the ranks' figures");
  shared_ = static_cast<Figures*>(memory);
  for (std::size_t i = 0; i < count; ++i) new (shared_ + i) Figures();
}

Driver::~Driver() {
  for (const Process& process : processes_) {
    if (process.pid > 0 && !process.ended) {
      kill(process.pid, SIGKILL);
      waitpid(process.pid, nullptr, 0);
    }
    if (process.socket >= 0) close(process.socket);
  }
  munmap(shared_, shared_bytes(processes_.size()));
}

void Driver::start(int rank) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Failure("no socket pair for a rank");
  }
  Process& process = processes_[static_cast<std::size_t>(rank)];
  process.socket = ends[0];
  process.pid = fork();
  if (process.pid < 0) throw Failure("no process for a rank");
  if (process.pid > 0) {
    close(ends[1]);
    return;
  }
  for (const Process& other : processes_) {
    if (other.socket >= 0) close(other.socket);
  }
  const int code = run_rank(options_, rank, ends[1], shared_[static_cast<std::size_t>(rank)]);
  std::exit(code);
}

std::string Driver::run() {
  const std::uint64_t began = now_ns();
  for (int rank = 0; rank < plan_.processes; ++rank) start(rank);
  const auto ended = [](const Process& process) { return process.ended; };
  while (failure_.empty() && !std::all_of(processes_.begin(), processes_.end(), ended)) {
    take_words();
    look_for_ends();
    if (static_cast<double>(now_ns() - began) > options_.limit_s * 1e9 && failure_.empty()) {
      failure_ = fmt::format("not over after {:.0f} s", options_.limit_s);
      for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
        if (!processes_[rank].ended) failure_ += fmt::format(", rank {} still runs", rank);
      }
    }
  }
  return failure_;
}

void Driver::take_words() {
  std::vector<pollfd> waits;
  for (const Process& process : processes_) waits.push_back({process.socket, POLLIN, 0});
  poll(waits.data(), waits.size(), kPollMs);
  for (std::size_t i = 0; i < waits.size(); ++i) {
    if ((waits[i].revents & POLLIN) != 0) take_word(i);
  }
}

bool Driver::take_word(std::size_t rank) {
  Word word;
  if (recv(processes_[rank].socket, &word, sizeof(word), MSG_DONTWAIT) != sizeof(word)) {
    return false;
  }
  pass_on(word);
  return true;
}

void Driver::pass_on(const Word& word) {
  if (word.kind == Word::kFailed) {
    if (failure_.empty()) failure_ = fmt::format("rank {}: {}", word.from, word.text.data());
    return;
  }
  if (word.kind == Word::kReached) {
    kill_rank(word.from);
    return;
  }
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const auto number = static_cast<int>(rank);
    if (word.to != number && (word.to != kToAll || word.from == number)) continue;
    send(processes_[rank].socket, &word, sizeof(word), MSG_NOSIGNAL);
  }
}

void Driver::kill_rank(int rank) {
  if (options_.kill_by.empty()) {
    Process& process = processes_[static_cast<std::size_t>(rank)];
    kill(process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    process.ended = true;
    killed_ = rank;
  } else if (std::system(fmt::format("RANK={}; {}", rank, options_.kill_by).c_str()) != 0) {
    failure_ = fmt::format("the command of --kill-by failed: {}", options_.kill_by);
  }
  Word word;
  word.kind = Word::kKilled;
  word.from = rank;
  word.to = kToAll;
  pass_on(word);
  // Its own communicators end, too, where the process lives on.
  if (!options_.kill_by.empty()) {
    send(processes_[static_cast<std::size_t>(rank)].socket, &word, sizeof(word), MSG_NOSIGNAL);
  }
}

void Driver::look_for_ends() {
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    Process& process = processes_[rank];
    int status = 0;
    if (process.ended || waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
    process.ended = true;
    while (take_word(rank)) {  // what it said last
    }
    if (!failure_.empty() || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
    failure_ = WIFSIGNALED(status)
                   ? fmt::format("rank {} was ended by signal {}", rank, WTERMSIG(status))
                   : fmt::format("rank {} exited with {}", rank, WEXITSTATUS(status));
  }
}

Figures Driver::figures() const {
  Figures sum;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    if (static_cast<int>(rank) == killed_) continue;
    const Figures& one = shared_[rank];
    for (std::size_t i = 0; i < kCalls; ++i) {
      sum.calls[i].wall.add(one.calls[i].wall);
      sum.calls[i].waits += one.calls[i].waits;
      sum.calls[i].cpu.add(one.calls[i].cpu);
    }
    sum.bytes += one.bytes;
    sum.messages += one.messages;
    sum.later += one.later;
    sum.all_reduces += one.all_reduces;
    sum.seconds = std::max(sum.seconds, one.seconds);
    sum.cpu_seconds += one.cpu_seconds;
  }
  return sum;
}

}  // namespace gradwire::nccl
