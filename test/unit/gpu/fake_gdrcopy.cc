// SPDX-License-Identifier: BSD-3-Clause
// GDRCopy over fake_cuda.cc's memory: a mapping is the memory itself. As the real one it takes
// whole pages of 64 KiB only.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {
struct Handle {
  unsigned long h;
};
int session;
constexpr std::uintptr_t kGpuPage = 64 * 1024;
}  // namespace

extern "C" {
// GRADWIRE_FAKE_GDRCOPY=0: as without its kernel module.
void* gdr_open() {
  const char* text = std::getenv("GRADWIRE_FAKE_GDRCOPY");
  return text != nullptr && *text == '0' ? nullptr : &session;
}
int gdr_close(void*) { return 0; }
int gdr_pin_buffer(void*, unsigned long address, std::size_t bytes, std::uint64_t, std::uint32_t,
                   Handle* out) {
  out->h = address;
  return address % kGpuPage == 0 && bytes % kGpuPage == 0 ? 0 : -1;
}
int gdr_unpin_buffer(void*, Handle) { return 0; }
int gdr_map(void*, Handle handle, void** out, std::size_t) {
  *out = reinterpret_cast<void*>(handle.h);
  return 0;
}
int gdr_unmap(void*, Handle handle, void* address, std::size_t) {
  return address == reinterpret_cast<void*>(handle.h) ? 0 : -1;
}
}
