// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a test asks of the fake libcuda.so.1 that its process has loaded, and other processes for
/// tests, since CUDA opens nothing in the process that made it. For tests alone.
#pragma once

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "fake_cuda.h"

namespace gradwire::test {

template <class Function>
Function* fake_cuda_function(const char* name) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* found = library == nullptr ? nullptr : ::dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string("the fake CUDA has no ") + name);
  return reinterpret_cast<Function*>(found);
}

inline fake_cuda::Held fake_cuda_held_here() {
  fake_cuda::Held held;
  fake_cuda_function<void(fake_cuda::Held*)>("fake_cuda_held")(&held);
  return held;
}

inline void hold_fake_streams(bool hold) {
  fake_cuda_function<void(int)>("fake_cuda_hold_streams")(hold ? 1 : 0);
}

/// A stream of the caller's, which can be held back alone.
class FakeStream {
 public:
  FakeStream() : stream_(fake_cuda_function<void*()>("fake_cuda_new_stream")()) {}
  ~FakeStream() { fake_cuda_function<int(void*)>("cuStreamDestroy_v2")(stream_); }
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;
  void hold(bool held) const {
    fake_cuda_function<void(void*, int)>("fake_cuda_hold_stream")(stream_, held ? 1 : 0);
  }
  void begin_capture() const {
    fake_cuda_function<void(void*)>("fake_cuda_begin_capture")(stream_);
  }
  /// @return whether nothing has spoilt it.
  [[nodiscard]] bool end_capture() const {
    return fake_cuda_function<int(void*)>("fake_cuda_end_capture")(stream_) == 1;
  }
  [[nodiscard]] void* get() const { return stream_; }

 private:
  void* stream_;
};

inline void fail_next(fake_cuda::Failing what) {
  fake_cuda_function<void(fake_cuda::Failing)>("fake_cuda_fail_next")(what);
}

/// Runs `body` in another process, which ends with what it returned; "" is success.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<std::string()>& body) {
    REQUIRE(::pipe(text_) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) {
      ::close(text_[1]);
      return;
    }
    std::string result;
    try {
      result = body();
    } catch (const std::exception& error) {
      result = error.what();
    }
    (void)!::write(text_[1], result.data(), result.size());
    ::_exit(0);
  }
  ~OtherProcess() {
    if (pid_ > 0) wait();
    ::close(text_[0]);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  void kill() { ::kill(pid_, SIGKILL); }
  std::string wait() {
    std::string text;
    char part[512];
    for (ssize_t got = 0; (got = ::read(text_[0], part, sizeof part)) > 0;) {
      text.append(part, static_cast<std::size_t>(got));
    }
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    return text;
  }

 private:
  pid_t pid_ = -1;
  int text_[2] = {-1, -1};
};

}  // namespace gradwire::test
