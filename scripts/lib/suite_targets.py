# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of some suites need: the files that Ninja makes for them, one a line.

usage: suite_targets.py BUILD_FOLDER SUITE[,SUITE...]

Meson writes down what each test depends on; a build with sanitizers, whose files take longest to
compile, makes no other.
"""

import json
import pathlib
import sys


def suite_targets(folder, suites):
    """Paths relative to `folder` of the files that the tests of `suites` (a set) depend on."""
    def read(what):
        return json.loads((folder / f"meson-info/intro-{what}.json").read_text(encoding="utf-8"))

    needed = set()
    for test in read("tests"):
        if suites & {suite.split(":")[-1] for suite in test["suite"]}:
            needed.update(test["depends"])
    files = [file for target in read("targets") if target["id"] in needed
             for file in target["filename"]]
    return sorted(str(pathlib.Path(file).relative_to(folder)) for file in files)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    targets = suite_targets(pathlib.Path(sys.argv[1]).resolve(), set(sys.argv[2].split(",")))
    if not targets:
        sys.exit(f"{sys.argv[1]} has no tests in the suites {sys.argv[2]}")
    print("\n".join(targets))
