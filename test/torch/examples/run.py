# SPDX-License-Identifier: BSD-3-Clause
"""run.py PROGRAM ARGUMENT...: as if the package were installed: torch then finds the
backend by its entry point, and a program need not import it."""
import os
import runpy
import sys

import gradwire.torch  # noqa: F401  pylint: disable=unused-import

del sys.argv[0]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
