// SPDX-License-Identifier: BSD-3-Clause
#include "gdrcopy.h"

#include <dlfcn.h>

#include <cerrno>

namespace gradwire::gpu_cuda {
namespace {

constexpr std::uintptr_t kGpuPageBytes = 64 * 1024;
constexpr const char* kLibraries[] = {"libgdrapi.so.2", "libgdrapi.so"};

}  // namespace

struct Gdrcopy::Api {
  // As gdrapi.h of GDRCopy 2 declares it: a struct of one integer, passed by value.
  struct Handle {
    unsigned long h;
  };

  void* session = nullptr;
  void* (*open)() = nullptr;
  int (*close)(void*) = nullptr;
  int (*pin)(void*, unsigned long, std::size_t, std::uint64_t, std::uint32_t, Handle*) = nullptr;
  int (*unpin)(void*, Handle) = nullptr;
  int (*map)(void*, Handle, void**, std::size_t) = nullptr;
  int (*unmap)(void*, Handle, void*, std::size_t) = nullptr;
};

Gdrcopy::Gdrcopy(std::unique_ptr<Api> api) noexcept : api_(std::move(api)) {}

Gdrcopy::~Gdrcopy() {
  if (api_->session != nullptr) api_->close(api_->session);
}

std::unique_ptr<Gdrcopy> Gdrcopy::open(std::string& why) {
  void* library = nullptr;
  for (const char* name : kLibraries) {
    library = library == nullptr ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : library;
  }
  if (library == nullptr) {
    why = "GDRCopy's libgdrapi.so.2 is not installed";
    return nullptr;
  }
  auto api = std::make_unique<Api>();
  const auto find = [&](const char* name, auto& out) {
    out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(dlsym(library, name));
    if (out == nullptr) why = std::string("GDRCopy's library has no ") + name;
    return out != nullptr;
  };
  if (!find("gdr_open", api->open) || !find("gdr_close", api->close) ||
      !find("gdr_pin_buffer", api->pin) || !find("gdr_unpin_buffer", api->unpin) ||
      !find("gdr_map", api->map) || !find("gdr_unmap", api->unmap)) {
    return nullptr;
  }
  api->session = api->open();
  if (api->session == nullptr) {
    why = "GDRCopy's kernel module gdrdrv is not loaded";
    return nullptr;
  }
  return std::unique_ptr<Gdrcopy>(new Gdrcopy(std::move(api)));
}

int Gdrcopy::map(std::uintptr_t device_address, std::size_t bytes, GdrMapping& out) {
  // Pages of the GPU are pinned whole.
  const std::uintptr_t begin = device_address / kGpuPageBytes * kGpuPageBytes;
  const std::uintptr_t end =
      (device_address + bytes + kGpuPageBytes - 1) / kGpuPageBytes * kGpuPageBytes;
  Api::Handle handle{};
  if (api_->pin(api_->session, begin, end - begin, 0, 0, &handle) != 0) return -EIO;
  void* base = nullptr;
  if (api_->map(api_->session, handle, &base, end - begin) != 0) {
    api_->unpin(api_->session, handle);
    return -ENOMEM;
  }
  out = {handle.h, base, end - begin, static_cast<std::byte*>(base) + (device_address - begin)};
  return 0;
}

int Gdrcopy::unmap(const GdrMapping& mapping) {
  const int unmapped =
      api_->unmap(api_->session, Api::Handle{mapping.handle}, mapping.base, mapping.bytes);
  const int unpinned = api_->unpin(api_->session, Api::Handle{mapping.handle});
  return unmapped != 0 || unpinned != 0 ? -EIO : 0;
}

}  // namespace gradwire::gpu_cuda
