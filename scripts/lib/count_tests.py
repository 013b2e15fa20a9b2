#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""count_tests.py LOG...: what failed and was skipped, and a last line 'N passed, N failed,
N skipped', from the JSON logs of `meson test`. Exit 1 if anything failed or nothing passed."""

import json
import shlex
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


def reason_of(test):
    """The last line that a test printed is its reason to skip or fail."""
    lines = (test.get("stdout", "") + test.get("stderr", "")).strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


# What a test's outcome may depend on, besides its command.
TELLING = ("GRADWIRE_TEST_SEED", "MALLOC_PERTURB_", "PYTHONHASHSEED")


def again(test):
    """The command that runs a test again as it ran, but for the environment that Meson gives it."""
    environment = test.get("env", {})
    words = [f"{name}={environment[name]}" for name in TELLING if name in environment]
    return " ".join(words + [shlex.quote(word) for word in test.get("command", [])])


def main(paths):
    passed = failed = skipped = 0
    for path in paths:
        with open(path, encoding="utf-8") as log:
            for line in log:
                test = json.loads(line)
                if test["result"] in PASSED:
                    passed += 1
                elif test["result"] in SKIPPED:
                    skipped += 1
                    print(f"skipped: {test['name']}: {reason_of(test)}")
                else:
                    failed += 1
                    print(f"failed: {test['name']} ({test['result']}): {reason_of(test)}")
                    print(f"        again: {again(test)}")
                    print(f"        whole output: {path}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
