// SPDX-License-Identifier: BSD-3-Clause
// The fake's streams and events. Streams are queues that a test can hold back; events can be opened
// by other processes. Of CUDA graphs there is what others notice of a capture.
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "fake_cuda_file.h"

namespace {

using namespace gradwire::fake_cuda;

struct Marks {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> passed;
  std::atomic<bool> failed;
};

struct Event {
  Shared shared;
  bool imported = false;
  ~Event() {
    if (shared.base != nullptr) shared.release();
  }
  [[nodiscard]] Marks& marks() const { return *reinterpret_cast<Marks*>(shared.base); }
};

struct Stream {
  std::deque<std::function<bool(Stream&)>> work;  ///< each says whether it is done
  bool held = false;
  bool failed = false;
  bool captured = false;  ///< into a graph, which nobody runs: what it is given is not done
  bool spoilt = false;    ///< the capture
  /// @return whether anything was done.
  bool run() {
    bool any = false;
    for (; !work.empty() && work.front()(*this); any = true) work.pop_front();
    return any;
  }
};

std::mutex streams_mutex;
std::map<void*, std::shared_ptr<Event>> events;  ///< what streams were given of one outlives it
std::map<void*, Stream*> streams;
std::map<void*, std::unique_ptr<Stream>> destroyed;  ///< until they have done what they were given
Stream default_stream;
bool held = false;
thread_local int capture_mode = 0;  ///< CU_STREAM_CAPTURE_MODE_GLOBAL

Stream* stream_of(void* stream) {
  if (stream == nullptr) return &default_stream;
  const auto found = streams.find(stream);
  return found == streams.end() ? nullptr : found->second;
}

/// Runs what may run, until nothing more does: a stream may wait for another.
/// @param even  one that runs although it is held back, and whatever it waits for
void run_streams(Stream* even = nullptr) {
  bool any = true;
  while (any) {
    any = false;
    const auto run = [&](Stream& stream) {
      if (even != nullptr || (!held && !stream.held)) any = stream.run() || any;
    };
    // Those that waited for it go on by themselves.
    if (even != nullptr && even->work.empty()) return run_streams();
    run(default_stream);
    for (const auto& [key, stream] : streams) run(*stream);
    for (const auto& [key, stream] : destroyed) run(*stream);
    std::erase_if(destroyed, [](const auto& each) { return each.second->work.empty(); });
  }
}

int give(void* stream, std::function<bool(Stream&)> work) {
  Stream* to = stream_of(stream);
  if (to == nullptr) return kInvalidHandle;
  if (to->captured) return kSuccess;
  to->work.push_back(std::move(work));
  run_streams();
  return kSuccess;
}

bool any_captured() {
  return std::any_of(streams.begin(), streams.end(),
                     [](const auto& each) { return each.second->captured; });
}

/// For calls that CUDA forbids a thread while any other captures, unless it has asked to be left
/// out.
bool spoils_capture() {
  constexpr int kRelaxed = 2;
  if (capture_mode == kRelaxed || !any_captured()) return false;
  for (const auto& [key, stream] : streams) stream->spoilt |= stream->captured;
  return true;
}

}  // namespace

bool gradwire::fake_cuda::may_not_now() {
  const std::lock_guard lock(streams_mutex);
  return spoils_capture();
}

extern "C" {
int fake_cuda_registrations();
void fake_cuda_hold_streams(int hold) {
  const std::lock_guard lock(streams_mutex);
  held = hold != 0;
  run_streams();
}
void fake_cuda_hold_stream(void* stream, int hold) {
  const std::lock_guard lock(streams_mutex);
  if (Stream* found = stream_of(stream)) found->held = hold != 0;
  run_streams();
}
void* fake_cuda_new_stream() {
  const std::lock_guard lock(streams_mutex);
  auto* stream = new Stream;
  streams[stream] = stream;
  return stream;
}
void fake_cuda_held(Held* out) {
  *out = {};
  count_memory(*out);
  out->registrations = fake_cuda_registrations();
  const std::lock_guard lock(streams_mutex);
  out->streams = static_cast<int>(streams.size());
  for (const auto& [key, event] : events) ++(event->imported ? out->imports : out->events);
}
void fake_cuda_begin_capture(void* stream) {
  const std::lock_guard lock(streams_mutex);
  Stream& begun = *stream_of(stream);
  begun.captured = true;
  begun.spoilt = false;
}
int fake_cuda_end_capture(void* stream) {
  const std::lock_guard lock(streams_mutex);
  Stream& ended = *stream_of(stream);
  ended.captured = false;
  return ended.spoilt ? 0 : 1;
}

int cuMemcpyAsync(unsigned long long to, unsigned long long from, std::size_t bytes, void* stream) {
  if (!has_context()) return kInvalidContext;
  pass_gate_of_copies();
  const std::lock_guard lock(streams_mutex);
  if (fails_now(kCopyRefused)) return kInvalidValue;
  return give(stream, [=](Stream& self) {
    if (fails_now(kCopyFails)) self.failed = true;
    if (self.failed) return true;
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return true;
  });
}
int cuStreamCreate(void** out, unsigned) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(streams_mutex);
  auto* stream = new Stream;
  streams[stream] = stream;
  *out = stream;
  return kSuccess;
}
int cuStreamDestroy_v2(void* stream) {
  const std::lock_guard lock(streams_mutex);
  const auto found = streams.find(stream);
  if (found == streams.end()) return kInvalidHandle;
  // As CUDA has it: at once, and what the stream was given is done all the same.
  found->second->held = false;
  destroyed[stream].reset(found->second);
  streams.erase(found);
  run_streams();
  return kSuccess;
}
int cuStreamSynchronize(void* stream) {
  const std::lock_guard lock(streams_mutex);
  if (spoils_capture()) return kCaptureUnsupported;
  Stream* found = stream_of(stream);
  if (found == nullptr) return kInvalidHandle;
  run_streams(found);
  return kSuccess;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  if (!has_context()) return kInvalidContext;
  if (fails_now(kStreamWait)) return kInvalidValue;
  const std::lock_guard lock(streams_mutex);
  const auto found = events.find(event);
  if (found == events.end()) return kInvalidHandle;
  // A graph knows nothing of what is outside it.
  if (Stream* to = stream_of(stream); to != nullptr && to->captured) {
    to->spoilt = true;
    return kCaptureIsolation;
  }
  const std::uint64_t number = found->second->marks().recorded.load();
  return give(stream, [event = found->second, number](Stream& self) {
    const Marks& marks = event->marks();
    if (marks.failed.load()) self.failed = true;
    return marks.passed.load() >= number;
  });
}
int cuStreamIsCapturing(void* stream, int* status) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(streams_mutex);
  const Stream* found = stream_of(stream);
  if (found == nullptr) return kInvalidHandle;
  if (stream == nullptr && any_captured()) return kCaptureImplicit;
  *status = found->captured ? (found->spoilt ? 2 : 1) : 0;
  return kSuccess;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}

int cuEventCreate(void** out, unsigned flags) {
  if (!has_context()) return kInvalidContext;
  if ((flags & 4) != 0 && (flags & 2) == 0) return kInvalidValue;
  const std::lock_guard lock(streams_mutex);
  auto event = std::make_shared<Event>();
  if (!make_shared_file(sizeof(Marks), event->shared)) return kOutOfMemory;
  events[event.get()] = event;
  *out = event.get();
  return kSuccess;
}
int cuEventDestroy_v2(void* event) {
  const std::lock_guard lock(streams_mutex);
  return events.erase(event) == 1 ? kSuccess : kInvalidHandle;
}
int cuEventRecord(void* event, void* stream) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(streams_mutex);
  const auto found = events.find(event);
  if (found == events.end()) return kInvalidHandle;
  const std::uint64_t number = found->second->marks().recorded.fetch_add(1) + 1;
  return give(stream, [event = found->second, number](Stream& self) {
    if (self.failed) event->marks().failed.store(true);
    event->marks().passed.store(number);
    return true;
  });
}
int cuEventQuery(void* event) {
  const std::lock_guard lock(streams_mutex);
  if (spoils_capture()) return kCaptureUnsupported;
  const auto found = events.find(event);
  if (found == events.end()) return kInvalidHandle;
  const Marks& marks = found->second->marks();
  if (marks.failed.load()) return kLaunchFailed;
  return marks.passed.load() >= marks.recorded.load() ? kSuccess : kNotReady;
}
int cuIpcGetEventHandle(Handle* out, void* event) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(streams_mutex);
  const auto found = events.find(event);
  if (found == events.end() || found->second->imported) return kInvalidHandle;
  *out = handle_of(Handle::kEvent, found->second->shared);
  return kSuccess;
}
int cuIpcOpenEventHandle(void** out, Handle handle) {
  if (!has_context()) return kInvalidContext;
  auto event = std::make_shared<Event>();
  event->imported = true;
  if (const int failed = open_handle(Handle::kEvent, handle, event->shared); failed != kSuccess) {
    // It has released what it opened.
    event->shared.base = nullptr;
    return failed;
  }
  const std::lock_guard lock(streams_mutex);
  events[event.get()] = event;
  *out = event.get();
  return kSuccess;
}
}
