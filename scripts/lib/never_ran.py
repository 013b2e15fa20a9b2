#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""never_ran.py FOLDER...: which tests of .ci/run's suites ran in none of these build folders, by
the JSON logs of `meson test` there. Exit 1 if there are any."""

import json
import pathlib
import sys

# Each test has one of these first in its list of suites.
WANTED = {"fast", "sim", "fuzz", "cost", "system"}
SHOWN = 10


def tests_of(folder):
    """{(suite, name)} of a build."""
    text = (folder / "meson-info/intro-tests.json").read_text(encoding="utf-8")
    return {(test["suite"][0].split(":")[-1], test["name"]) for test in json.loads(text)}


def ran_in(folder):
    """{(suite, name)} of those that logs tell of, whatever became of them."""
    ran = set()
    for log in (folder / "meson-logs").glob("suite-*.json"):
        for line in log.read_text(encoding="utf-8").splitlines():
            suites, _, name = json.loads(line)["name"].partition(" / ")
            ran.add((suites.split(":")[-1].split("+")[0], name))
    return ran


def main(paths):
    folders = [pathlib.Path(path) for path in paths]
    for folder in folders:
        if not (folder / "meson-info/intro-tests.json").exists():
            print(f"never ran: any test of {folder}, which is not set up")
            return 1
    tests = set().union(*map(tests_of, folders))
    ran = set().union(*map(ran_in, folders))
    never = sorted(test for test in tests - ran if test[0] in WANTED)
    for suite, name in never[:SHOWN]:
        print(f"never ran: {name}, of suite {suite}")
    if never[SHOWN:]:
        print(f"never ran: {len(never) - SHOWN} others")
    return 1 if never else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
