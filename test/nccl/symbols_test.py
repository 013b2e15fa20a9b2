#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""NCCL runs in other people's images: the plug-in and libgradwire ask for no symbol that is newer
than glibc 2.35, and the plug-in gives NCCL its tables, and nobody anything else.
symbols_test.py PLUGIN LIBRARY"""

import re
import shutil
import subprocess
import sys

GLIBC_MAX = (2, 35)
TABLES = {"ncclCollNetPlugin_v12", "ncclCollNetPlugin_v7", "ncclNetPlugin_v12", "ncclNetPlugin_v8"}


def dynamic_symbols(path):
    """Yields (name, whether it is the library's own, version) of each."""
    done = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        found = re.match(r"[0-9a-f]{16} .{7} (\S+)\s+[0-9a-f]+\s+(\(?[\w.]*\)?)\s*(\S+)$", line)
        if found:
            section, version, name = found.groups()
            yield name, section != "*UND*", version.strip("()")


def too_new(version):
    found = re.match(r"GLIBC_(\d+)\.(\d+)", version)
    return found is not None and tuple(map(int, found.groups())) > GLIBC_MAX


def main():
    if shutil.which("objdump") is None:
        print("skipped: there is no objdump")
        return 77
    assert too_new("GLIBC_2.36") and not too_new("GLIBC_2.35") and not too_new("GLIBC_2.4")
    plugin, library = sys.argv[1:3]
    wrong = 0
    for path in (plugin, library):
        symbols = list(dynamic_symbols(path))
        versions = {version for _, own, version in symbols if not own}
        if not any(version.startswith("GLIBC_") for version in versions):
            print(f"{path}: no symbol of glibc's was found: has objdump another format?")
            wrong += 1
        for name, own, version in symbols:
            if not own and too_new(version):
                print(f"{path}: {name} is of {version}, and images with glibc "
                      f"{'.'.join(map(str, GLIBC_MAX))} have none")
                wrong += 1
    own = {name for name, own, _ in dynamic_symbols(plugin) if own}
    if own != TABLES:
        print(f"{plugin}: it gives {sorted(own)}, and should give {sorted(TABLES)}")
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
