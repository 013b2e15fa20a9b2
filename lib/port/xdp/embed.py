#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""embed.py OBJECT OUTPUT: the compiled XDP program as a C++ array, so that the daemon carries it
and no file has to be found on the host. OBJECT may be "none": then the array is empty."""

import pathlib
import sys

BYTES_A_LINE = 16


def main():
    source, output = sys.argv[1:]
    data = b"" if source == "none" else pathlib.Path(source).read_bytes()
    lines = [
        "// Made by lib/port/xdp/embed.py.",
        '#include "port/xdp/xdp_program.h"',
        "namespace gradwire::port {",
        "namespace {",
        f"constexpr unsigned char kBytes[{len(data) + 1}] = {{",
    ]
    for start in range(0, len(data), BYTES_A_LINE):
        lines.append("".join(f"{byte}," for byte in data[start : start + BYTES_A_LINE]))
    lines += [
        "0};",
        "}  // namespace",
        "std::span<const std::byte> xdp_program_object() noexcept {",
        f"  return {{reinterpret_cast<const std::byte*>(kBytes), {len(data)}}};",
        "}",
        "}  // namespace gradwire::port",
    ]
    pathlib.Path(output).write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
