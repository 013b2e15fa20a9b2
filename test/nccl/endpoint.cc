// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/endpoint.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>

#include "nccl/calls.h"
#include "nccl/draw.h"
#include "nccl/failure.h"
#include "nccl/pattern.h"

namespace gradwire::nccl {
namespace {

constexpr std::size_t kSpareMax = 4;

}  // namespace

Slots::Slots(std::size_t count, std::size_t bytes_max)
    : stride_((bytes_max + 3 * kSlotMargin - 1) / kSlotMargin * kSlotMargin),
      bytes_(count * stride_),
      memory_(static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
              Unmap{bytes_}) {
  if (memory_.get() == MAP_FAILED) throw Failure(fmt::format("no memory for {} bytes", bytes_));
  fill_poison(data(), bytes_);
}

void Slots::Unmap::operator()(char* memory) const {
  if (memory != MAP_FAILED) munmap(memory, bytes);
}

Endpoint::Endpoint(Library& library, const Options& options, const ConnectionPlan& plan, bool sends)
    : library_(library), options_(options), plan_(plan), sends_(sends) {
  const auto depth = static_cast<std::size_t>(plan.depth);
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    slots_.emplace_back(depth, plan.bytes_max);
    Stream stream;
    // As NCCL leaves them: what a call does not write stays what it was.
    stream.requests.assign(depth, nullptr);
    stream.posted_ns.assign(depth, 0);
    stream.free_ns.assign(depth, 0);
    streams_.push_back(stream);
  }
}

std::string Endpoint::name(std::size_t stream, std::uint64_t sequence) const {
  return fmt::format("communicator {}, channel {}, rank {} to {}{}, {} {}", plan_.comm,
                     plan_.channel, plan_.from, plan_.to,
                     streams_.size() > 1 ? fmt::format(", stream {}", stream) : "",
                     sends_ ? "send" : "receive", sequence);
}

int Endpoint::tag(std::size_t stream) const {
  return plan_.from + static_cast<int>(stream) * 100;  // NCCL: the rank whose data it is
}

void Endpoint::need(nccl_net::Status status, const char* call, std::size_t stream,
                    std::uint64_t sequence) const {
  if (status == nccl_net::kSuccess) return;
  throw CallFailed(fmt::format("{}() gave status {}: {}", call, status, name(stream, sequence)));
}

void* Endpoint::not_written() { return reinterpret_cast<void*>(std::uintptr_t{0xdeadbee0}); }

void Endpoint::need_written(void* request, const char* call, std::size_t stream,
                            std::uint64_t sequence) const {
  if (request != not_written() && request != nccl_net::optional_completion()) return;
  throw Failure(fmt::format("{}() left *request as it was, so NCCL takes an old one for it: {}",
                            call, name(stream, sequence)));
}

void Endpoint::opened(void* comm) {
  comm_ = comm;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    const Slots& slots = slots_[s];
    need(library_.reg_mr(comm_, slots.data(), slots.bytes(), &whole_.emplace_back()), "reg_mr", s,
         0);
    for (std::size_t slot = 0; slot < static_cast<std::size_t>(plan_.depth); ++slot) {
      need(library_.reg_mr(comm_, slots.at(slot), slots.stride(), &single_.emplace_back()),
           "reg_mr", s, slot);
    }
  }
}

void Endpoint::close() {
  if (comm_ == nullptr) return;
  std::vector<void*> all = spare_;
  all.insert(all.end(), single_.begin(), single_.end());
  all.insert(all.end(), whole_.begin(), whole_.end());
  Draw draw(plan_.key);
  draw.shuffle(all);
  for (void* mr : all) need(library_.dereg_mr(comm_, mr), "dereg_mr", 0, 0);
  need(sends_ ? library_.close_send(comm_) : library_.close_recv(comm_), "close", 0, 0);
  comm_ = nullptr;
  if (!options_.check) return;
  for (const Slots& slots : slots_) fill_poison(slots.data(), slots.bytes());
}

void Endpoint::check_untouched() const {
  if (!options_.check) return;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    check_poison(slots_[s].data(), slots_[s].bytes(), s, streams_[s].posted,
                 "after the connection was closed");
  }
}

void Endpoint::churn(std::uint64_t drawn) {
  if (spare_.size() >= kSpareMax || (drawn % 2 == 0 && !spare_.empty())) {
    const std::size_t which = drawn / 2 % spare_.size();
    need(library_.dereg_mr(comm_, spare_[which]), "dereg_mr", 0, 0);
    spare_.erase(spare_.begin() + static_cast<std::ptrdiff_t>(which));
    return;
  }
  const Slots& slots = slots_[drawn / 2 % slots_.size()];
  const std::size_t from = drawn / 16 % slots.bytes();
  const std::size_t bytes = 1 + drawn / 256 % (slots.bytes() - from);
  need(library_.reg_mr(comm_, slots.data() + from, bytes, &spare_.emplace_back()), "reg_mr", 0, 0);
}

void* Endpoint::registration(std::size_t stream, std::size_t slot, bool own) const {
  return own ? single_[stream * static_cast<std::size_t>(plan_.depth) + slot] : whole_[stream];
}

bool Endpoint::finished() const {
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (streams_[s].done < plan_.steps[s]) return false;
  }
  return true;
}

bool Endpoint::progress() { return sends_ ? progress_sends() : progress_receives(); }

void Endpoint::check_patience(const Stream& stream, std::size_t index, std::uint64_t oldest) const {
  const std::uint64_t posted = stream.posted_ns[oldest % static_cast<std::uint64_t>(plan_.depth)];
  const double waited_s = static_cast<double>(now_ns() - posted) / 1e9;
  if (waited_s < options_.patience_s) return;
  throw Failure(fmt::format("a request is not done after {:.1f} s: {} of {}; {} more are under way",
                            waited_s, name(index, oldest), plan_.steps[index],
                            stream.posted - oldest - 1));
}

void Endpoint::check_poison(const char* data, std::size_t bytes, std::size_t stream,
                            std::uint64_t sequence, const char* when) const {
  const std::size_t at = first_other_than_poison(data, bytes);
  if (at == bytes) return;
  throw Failure(
      fmt::format("byte {} of {} was written {}: {}", at, bytes, when, name(stream, sequence)));
}

}  // namespace gradwire::nccl
