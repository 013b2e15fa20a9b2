#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The player finds each fault that is planted in the reference plug-in, and says what was wrong:
faults_test.py PLAYER PLUGIN. Without a fault the same run passes."""

import concurrent.futures
import os
import re
import subprocess
import sys

SMALL = ["--seed", "1", "--megabytes", "12", "--abort", "never"]
PAIR = ["--seed", "5", "--processes", "2", "--communicators", "1", "--channels", "1", "--megabytes",
        "12", "--abort", "never", "--kill", "always"]
# fault: arguments, what the player has to say. Times decide about a "lost" request alone.
FAULTS = {
    "wrong_byte": (SMALL, r"byte \d+ of \d+ is wrong"),
    "early_recv": (SMALL, r"byte \d+ of \d+ is wrong|was written"),
    "early_send": (SMALL, r"byte \d+ of \d+ is wrong"),
    "late_write": (SMALL, r"was written (before|behind|after)|byte \d+ of \d+ is wrong"),
    "no_size": (SMALL, r"test\(\) says 0 bytes of a receive, \d+ were sent"),
    "lost": (SMALL + ["--patience", "2"], r"a request is not done after \d+\.\d s: "
             r"communicator \d+, channel \d+, rank \d to \d, (send|receive) \d+"),
    "stale_request": (SMALL, r"i(send|recv)\(\) left \*request as it was"),
    "blocks": (SMALL + ["--waits-max", "5"], r"calls waited in the kernel, 5 may: .*test\(\)"),
    "silent_death": (PAIR + ["--patience", "2"], r"not done after \d+\.\d s"),
    "wrong_sum": (["--seed", "1", "--collnet-only"], r"element \d+ of \d+ is wrong, datatype"),
}


def play(player, plugin, fault):
    arguments, _ = FAULTS[fault] if fault != "none" else (SMALL, "")
    run = subprocess.run([player, plugin, *arguments], capture_output=True, text=True, check=False,
                         timeout=120, env=dict(os.environ, GRADWIRE_SOCKETS_FAULT=fault))
    return fault, run.returncode, run.stdout + run.stderr


def main():
    player, plugin = sys.argv[1:3]
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for fault, code, text in pool.map(lambda f: play(player, plugin, f), ["none", *FAULTS]):
            if fault == "none":
                found = code == 0
            else:
                found = code == 1 and re.search(r"FAILED: .*(" + FAULTS[fault][1] + ")", text)
            print(f"{fault}: {'as it should be' if found else 'NOT FOUND'}: {text.strip()}")
            wrong += not found
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
