// SPDX-License-Identifier: BSD-3-Clause
#include "host/placement.h"

#include <fmt/format.h>
#include <numaif.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace gradwire::host {
namespace {

template <class T>
std::optional<T> number(std::string_view text, int base) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc{} || parsed != end || text.empty()) return std::nullopt;
  return value;
}

/// "7f00-7f10 rw-p 00000000 00:00 0 [heap]" has its addresses first and no colon in them; every
/// other line is "Name:   value".
std::optional<Mapping> parse_header(std::string_view line) {
  const std::string_view span = line.substr(0, line.find(' '));
  const std::size_t dash = span.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto begin = number<std::uintptr_t>(span.substr(0, dash), 16);
  const auto end = number<std::uintptr_t>(span.substr(dash + 1), 16);
  if (!begin || !end || *end < *begin) return std::nullopt;
  return Mapping{*begin, *end, 0};
}

/// "KernelPageSize:     2048 kB"
std::optional<std::size_t> parse_page_size(std::string_view line) {
  const std::size_t first = line.find_first_of("0123456789");
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t last = line.find_last_of("0123456789");
  const auto kibibytes = number<std::size_t>(line.substr(first, last - first + 1), 10);
  if (!kibibytes || *kibibytes == 0 || !line.ends_with(" kB")) return std::nullopt;
  return *kibibytes * 1024;
}

}  // namespace

Result<std::vector<Mapping>> parse_smaps(std::string_view text) {
  std::vector<Mapping> mappings;
  std::size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const std::string_view line = text.substr(0, text.find('\n'));
    text = line.size() < text.size() ? text.substr(line.size() + 1) : std::string_view{};
    if (const auto header = parse_header(line)) {
      mappings.push_back(*header);
    } else if (line.starts_with("KernelPageSize:")) {
      const auto page_bytes = parse_page_size(line);
      if (!page_bytes || mappings.empty()) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("smaps line {}: \"{}\" is not the page size of a mapping",
                                line_number, line));
      }
      mappings.back().page_bytes = *page_bytes;
    }
  }
  for (const Mapping& mapping : mappings) {
    if (mapping.page_bytes == 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("smaps: mapping {:x}-{:x} has no KernelPageSize", mapping.begin,
                              mapping.end));
    }
  }
  return mappings;
}

Result<std::vector<Mapping>> read_mappings(const std::string& smaps_path) {
  std::ifstream in(smaps_path);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    return fail(ErrorCode::kSystem,
                fmt::format("{}: cannot be read: {}", smaps_path, std::strerror(errno)));
  }
  return parse_smaps(text.str());
}

Result<std::size_t> page_bytes_of(std::span<const Mapping> mappings, const MemoryRange& range) {
  if (range.base == nullptr || range.bytes == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the memory range is empty", range.name));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(range.base);
  const std::uintptr_t end = begin + range.bytes;
  std::size_t covered = 0;
  std::size_t smallest = 0;
  for (const Mapping& mapping : mappings) {
    const std::uintptr_t from = std::max(begin, mapping.begin);
    const std::uintptr_t to = std::min(end, mapping.end);
    if (from >= to) continue;
    covered += to - from;
    smallest = smallest == 0 ? mapping.page_bytes : std::min(smallest, mapping.page_bytes);
  }
  if (covered != range.bytes) {
    return fail(ErrorCode::kNotFound, fmt::format("{}: only {} of {} bytes at {} are mapped",
                                                  range.name, covered, range.bytes, range.base));
  }
  return smallest;
}

Result<void> verify_hugepages(std::span<const Mapping> mappings,
                              std::span<const MemoryRange> ranges) {
  const auto base_page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (const MemoryRange& range : ranges) {
    const auto page_bytes = page_bytes_of(mappings, range);
    if (!page_bytes) return tl::unexpected(page_bytes.error());
    if (*page_bytes <= base_page) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: {} bytes at {} are on pages of {} bytes, must be on hugepages",
                              range.name, range.bytes, range.base, *page_bytes));
    }
  }
  return {};
}

Result<NodePlacement> read_placement(const MemoryRange& range, std::size_t page_bytes) {
  if (range.base == nullptr || range.bytes == 0 || page_bytes == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the memory range is empty, or its page size is 0", range.name));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(range.base) / page_bytes * page_bytes;
  const auto end = reinterpret_cast<std::uintptr_t>(range.base) + range.bytes;
  std::vector<void*> pages;
  for (std::uintptr_t page = begin; page < end; page += page_bytes) {
    // The address inside the range: the first page may begin before it.
    pages.push_back(
        reinterpret_cast<void*>(std::max(page, reinterpret_cast<std::uintptr_t>(range.base))));
  }
  std::vector<int> status(pages.size(), -ENOENT);
  if (move_pages(0, pages.size(), pages.data(), nullptr, status.data(), 0) != 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("{}: move_pages: {}", range.name, std::strerror(errno)));
  }
  NodePlacement placement;
  for (const int node : status) {
    if (node >= 0) {
      ++placement.pages_by_node[node];
    } else {
      ++placement.pages_absent;
    }
  }
  return placement;
}

std::string to_string(const NodePlacement& placement) {
  std::string out;
  for (const auto& [node, pages] : placement.pages_by_node) {
    out += fmt::format("{}node {}: {} page{}", out.empty() ? "" : ", ", node, pages,
                       pages == 1 ? "" : "s");
  }
  if (placement.pages_absent > 0) {
    out +=
        fmt::format("{}pages not touched yet: {}", out.empty() ? "" : ", ", placement.pages_absent);
  }
  return out;
}

std::string pci_root(const std::string& address, const std::string& devices) {
  if (address.empty() || address.find('/') != std::string::npos) return {};
  std::error_code error;
  const auto path = std::filesystem::canonical(std::filesystem::path(devices) / address, error);
  if (error) return {};
  for (const auto& part : path) {
    if (part.string().starts_with("pci")) return part.string();
  }
  return {};
}

}  // namespace gradwire::host
