#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""ShellCheck finds no name that a script uses and nothing sets, in .ci/run and the programs of
scripts/ with what they source: their last lines run after an hour, or once a month. It does not
look into arrays, so those of one line are shown to it as arguments. Exit 77 (skipped) if it is not
installed."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sources import ROOT

PATHS = "SCRIPTDIR:.:scripts:scripts/lib"


def findings(texts: dict[str, str]) -> str:
    """@param texts  by a path FOLDER/NAME from the root: a copy is looked at beside its folders."""
    found = ""
    for path, text in texts.items():
        shown = re.sub(r"^(\s*)(\w+)\+?=\((.+)\)$", r"\1\2=(1); : \3", text, flags=re.MULTILINE)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path
            copy.parent.mkdir()
            for beside in (*ROOT.iterdir(), *(ROOT / path).parent.iterdir()):
                link = Path(folder) / beside.relative_to(ROOT)
                if beside.is_dir() and not link.exists():
                    link.symlink_to(beside)
            copy.write_text(shown)
            run = subprocess.run(
                ["shellcheck", "-x", "-P", PATHS, "-i", "SC2154", "-f", "gcc", path],
                cwd=folder, capture_output=True, text=True, check=False)
        found += run.stdout + run.stderr
    return found


def main() -> int:
    if shutil.which("shellcheck") is None:
        print("skipped: there is no shellcheck")
        return 77
    wrong = ('#!/bin/bash\n. "$(dirname "$0")/lib/setup.sh"\n'
             'logs=("$repo_root"/* "$nobody_sets")\necho "${logs[@]}" "$repo_root" "$nor_this"\n')
    found = findings({"scripts/wrong.sh": wrong})
    if ("nobody_sets" not in found or "nor_this" not in found or
            len(found.strip().splitlines()) != 2):
        print(f"shellcheck does not find what it is asked for: {found!r}")
        return 1
    scripts = sorted(p for p in (ROOT / "scripts").glob("*.sh") if os.access(p, os.X_OK))
    texts = {str(p.relative_to(ROOT)): p.read_text() for p in [ROOT / ".ci/run", *scripts]}
    found = findings(texts)
    print(found or f"{len(texts)} programs use no name that nothing sets")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
