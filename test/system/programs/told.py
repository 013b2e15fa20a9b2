# SPDX-License-Identifier: BSD-3-Clause
"""What programs of transfers say of a result or an error that is not as it has to be."""

import re

import numpy as np

import gradwire
from ring import WAIT_S


def wait(works):
    for work in works:
        work.wait(WAIT_S)


def same(got, want, what):
    wrong = np.nonzero(got.view("uint8") != want.view("uint8"))[0]
    if len(wrong):
        raise SystemExit(f"{what}: {len(wrong)} of {want.nbytes} bytes are wrong, the first is "
                         f"{wrong[0]}")


def told(act, code, pattern, what):
    try:
        act()
    except gradwire.GradwireError as error:
        if error.code == code and re.search(pattern, str(error)):
            print(f"  {what}: {error}", flush=True)
            return
        raise SystemExit(f"{what}: {error.code.name}: {error}") from error
    raise SystemExit(f"{what}: no error")
