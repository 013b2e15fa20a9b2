#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""clang-format-14 would change nothing in the tree's C++ sources. Exit 77 (skipped) where it is
not installed: other versions break lines at other places."""

import shutil
import subprocess
import sys

from sources import ROOT, own_files

FORMATTER = "clang-format-14"


def main():
    if shutil.which(FORMATTER) is None:
        print(f"skipped: there is no {FORMATTER}, by which the sources are laid out")
        return 77
    sources = [str(p) for p in own_files() if p.suffix in {".h", ".cc", ".cu", ".cuh"}]
    if not sources:
        print("no C++ sources found")
        return 1
    run = subprocess.run([FORMATTER, "--dry-run", "-Werror", *sources], cwd=ROOT, check=False)
    if run.returncode != 0:
        print(f"to mend: {FORMATTER} -i FILE...")
    else:
        print(f"{len(sources)} sources are formatted")
    return 1 if run.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
