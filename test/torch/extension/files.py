# SPDX-License-Identifier: BSD-3-Clause
"""The file of the C++ extension.

    files.py missing       it is not built, and what is needed for that is missing
    files.py there PORT    it was just built"""
import contextlib
import io
import logging
import os
import sys

import torch.distributed as dist

import gradwire.torch
from gradwire.torch import build, extension


def told(*arguments, **environment):
    """(exit status, output) of the build with these arguments and this environment."""
    before, sys.argv = dict(os.environ), ["build", *arguments]
    os.environ.update(environment)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = build.main()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return status, output.getvalue()


def refused(text, *arguments, **environment):
    status, output = told(*arguments, **environment)
    assert status == 1 and text in output, (status, output)


def not_used(text):
    module, said = extension._look()
    assert module is None and said.startswith("not used: ") and text in said, said


def missing():
    _, output = told("--check")
    print(output)
    where = extension.path()
    refused("MISSING: extension: %s: it is not built for this torch" % where, "--check")
    refused("FAILED: compiler: none of c++, g++, clang++ is there", PATH="/nowhere", CXX="")
    refused("FAILED: compiler: CXX is 'nocompiler'", CXX="nocompiler")
    refused("FAILED: cache folder: ", XDG_CACHE_HOME="/proc/none")
    if "MISSING: torch" not in output and "MISSING: Python" not in output:
        refused("FAILED: the compiler failed (false ", CXX="false")
    assert not os.path.exists(where)
    not_used("it is not built for this torch, Python and gradwire: python -m gradwire.torch.build")
    os.makedirs(os.path.dirname(where), 0o700, exist_ok=True)
    with open(where, "w", encoding="utf-8") as file:
        file.write("no library")
    os.chmod(where, 0o700)
    not_used("%s cannot be loaded: " % where)
    refused("MISSING: extension: %s: " % where, "--check")


def there(port):
    class Kept(logging.Handler):
        def emit(self, record):
            lines.append((record.levelname, record.getMessage()))

    lines = []
    log = logging.getLogger("gradwire.torch")
    log.setLevel(logging.INFO)
    log.addHandler(Kept())
    where = extension.path()
    assert gradwire.torch.stats() == {}
    for _ in range(2):
        dist.init_process_group("gradwire", init_method="tcp://127.0.0.1:" + port, rank=0,
                                world_size=1)
        assert gradwire.torch.stats()["extension"] == "used: " + where, gradwire.torch.stats()
        dist.destroy_process_group()
    assert lines == [("INFO", "gradwire: with the C++ extension: " + where)], lines
    assert told() == (0, "it is there: %s\n" % where)
    status, output = told("--check")
    assert status == 0 and "extension: %s, loads" % where in output, output
    os.environ["GRADWIRE_TORCH_EXTENSION"] = "off"
    not_used("GRADWIRE_TORCH_EXTENSION is off")
    del os.environ["GRADWIRE_TORCH_EXTENSION"]
    for each in (where, os.path.dirname(where)):
        mode = os.stat(each).st_mode & 0o777
        os.chmod(each, 0o777)
        not_used("others may write to %s: chmod go-w it" % each)
        assert lines[-1][0] == "WARNING" and "others may write" in lines[-1][1], lines
        os.chmod(each, mode)
    if os.getuid() == 0:
        os.chown(where, 65534, 65534)
        not_used("%s belongs to user 65534, and this process runs as 0" % where)
        os.chown(where, 0, 0)
    assert extension._look()[1] == "used: " + where


if __name__ == "__main__":
    {"missing": missing, "there": there}[sys.argv[1]](*sys.argv[2:])
