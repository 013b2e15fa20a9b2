// SPDX-License-Identifier: BSD-3-Clause
// Real memory: hugepages must pass, a heap buffer must not. Plain asserts in a main of its own,
// since a Catch2 v2 case cannot skip (exit 77) if the machine has no free hugepage.
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "host/placement.h"

namespace {

constexpr std::size_t kBytes = 2u << 20;
int failures = 0;

void expect(bool holds, const char* what, const std::string& detail = "") {
  std::printf("%s: %s %s\n", holds ? "ok" : "FAILED", what, detail.c_str());
  if (!holds) ++failures;
}

}  // namespace

int main() {
  using namespace gradwire::host;
  void* const huge =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
  if (huge == MAP_FAILED) {
    std::printf("skipped: no free 2 MiB hugepage: %s\n", std::strerror(errno));
    return 77;
  }
  const auto heap = std::make_unique<char[]>(2 * kBytes);
  std::memset(heap.get(), 1, 2 * kBytes);
  const MemoryRange huge_range{"hugepage", huge, kBytes};
  const MemoryRange heap_range{"heap buffer", heap.get(), 2 * kBytes};

  const auto untouched = read_placement(huge_range, kBytes);
  expect(untouched && untouched->pages_absent == 1, "an untouched page is on no node");
  std::memset(huge, 1, kBytes);

  const auto mappings = read_mappings();
  expect(mappings.has_value(), "smaps of this process parse");
  if (!mappings) return 1;

  expect(page_bytes_of(*mappings, huge_range) == kBytes, "the page size of a hugepage is 2 MiB");
  const MemoryRange only_huge[] = {huge_range};
  expect(verify_hugepages(*mappings, only_huge).has_value(), "hugepage memory is verified");

  const MemoryRange only_heap[] = {heap_range};
  const auto heap_verdict = verify_hugepages(*mappings, only_heap);
  expect(!heap_verdict.has_value(), "a heap buffer is refused");
  expect(!heap_verdict && heap_verdict.error().message.find("heap buffer") != std::string::npos,
         "the refusal names the range", heap_verdict ? "" : heap_verdict.error().message);
  const MemoryRange both[] = {huge_range, heap_range};
  expect(!verify_hugepages(*mappings, both).has_value(), "one bad range among good ones is found");
  const MemoryRange past[] = {{"past", static_cast<char*>(huge), kBytes * 1024}};
  expect(!verify_hugepages(*mappings, past).has_value(), "a range past its mapping is refused");

  const auto placement = read_placement(huge_range, kBytes);
  expect(placement && placement->pages_absent == 0 && placement->pages_by_node.size() == 1 &&
             placement->pages_by_node.begin()->second == 1,
         "a touched page is on one node", placement ? to_string(*placement) : "");
  const auto heap_placement = read_placement(heap_range, 4096);
  std::size_t pages = 0;
  if (heap_placement) {
    for (const auto& [node, count] : heap_placement->pages_by_node) pages += count;
  }
  expect(pages >= 2 * kBytes / 4096, "every page of the heap buffer is found");

  munmap(huge, kBytes);
  return failures == 0 ? 0 : 1;
}
