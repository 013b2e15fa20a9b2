# SPDX-License-Identifier: BSD-3-Clause
"""python -m gradwire.torch.build: compiles the C++ extension of the PyTorch backend for the torch,
the Python and the gradwire that are here, into this user's cache folder (doc/pytorch.md, "The C++
extension").

    --check          say what is there and what is missing, and build nothing
    --force          build it also if it is there

    CXX              the compiler; else the first of c++, g++ and clang++ that is there
    XDG_CACHE_HOME   where the cache folder lies; ~/.cache if it is not set

Exit status: 0 if it is there and fits; 1 with the reason if not."""
import argparse
import concurrent.futures
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

import torch

from . import extension

_COMPILERS = ("c++", "g++", "clang++")
# The last lines of what a compiler says of an error.
_LINES_SHOWN = 40
_MINUTES_MOST = 20


class Missing(Exception):
    """What is needed and not there, with what to do."""


def compiler():
    """The command, as a list."""
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        if shutil.which(named[0]) is None:
            raise Missing("compiler: CXX is %r, and there is no such program" % os.environ["CXX"])
        return named
    for name in _COMPILERS:
        if shutil.which(name):
            return [name]
    raise Missing("compiler: none of %s is there: install g++ (apt-get install g++), or name one "
                  "in CXX" % ", ".join(_COMPILERS))


def torch_folders():
    """(folders of torch's headers, the folder of its libraries)."""
    root = os.path.dirname(os.path.abspath(torch.__file__))
    headers = os.path.join(root, "include")
    if not os.path.isfile(os.path.join(headers, "c10", "core", "Allocator.h")):
        raise Missing("torch's headers: %s has no c10/core/Allocator.h: this torch came without "
                      "them, those from pip have them" % headers)
    return ([headers, os.path.join(headers, "torch", "csrc", "api", "include")],
            os.path.join(root, "lib"))


def python_folders():
    """Folders of Python's headers."""
    folders = list(dict.fromkeys(sysconfig.get_path(name) for name in ("include", "platinclude")))
    if not any(os.path.isfile(os.path.join(folder, "Python.h")) for folder in folders):
        raise Missing("Python's headers: %s has no Python.h: install those of Python %s (apt-get "
                      "install python3-dev)" % (folders[0], sysconfig.get_python_version()))
    return folders


def sources():
    found = [path for path, _ in extension.sources() if path.endswith(".cc")]
    if not found:
        raise Missing("sources: the package has no torch/cpp: install gradwire anew")
    return found


def _run(command):
    """Raises Missing with what the program says if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=60 * _MINUTES_MOST)
    if done.returncode != 0:
        lines = done.stdout.splitlines()
        errors = [line for line in lines if "error" in line.lower()]
        raise Missing("the compiler failed (%s):\n%s" % (
            shlex.join(command), "\n".join((errors or lines)[-_LINES_SHOWN:])))


def commands(folder):
    """([command that compiles a source], the one that links), with results in ``folder``."""
    headers, libraries = torch_folders()
    flags = [*compiler(), "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-w",
             "-D_GLIBCXX_USE_CXX11_ABI=%d" % extension.uses_new_strings()]
    for each in [*headers, *python_folders()]:
        flags += ["-isystem", each]
    objects, compiles = [], []
    for source in sources():
        objects.append(os.path.join(folder, os.path.basename(source) + ".o"))
        compiles.append([*flags, "-c", source, "-o", objects[-1]])
    # Torch's libraries are in the process already when it is loaded: no path to them is needed.
    links = [*compiler(), "-shared", "-Wl,--as-needed", *objects, "-L" + libraries, "-ltorch_cpu",
             "-lc10", "-o", os.path.join(folder, extension.NAME + ".so")]
    return compiles, links


def build():
    """Builds it, in a folder of its own, and puts it in its place at once."""
    where = extension.path()
    try:
        os.makedirs(os.path.dirname(where), mode=0o700, exist_ok=True)
        folder = tempfile.mkdtemp(prefix="build-", dir=os.path.dirname(where))
    except OSError as error:
        raise Missing("cache folder: %s; name another one in XDG_CACHE_HOME" % error) from None
    try:
        compiles, links = commands(folder)
        workers = min(len(compiles), len(os.sched_getaffinity(0)))
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(_run, compiles))
        _run(links)
        made = os.path.join(folder, extension.NAME + ".so")
        os.chmod(made, 0o700)
        os.rename(made, where)
    except subprocess.TimeoutExpired as error:
        raise Missing("the compiler took more than %d minutes: %s"
                      % (_MINUTES_MOST, shlex.join(error.cmd))) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _loads(where)


def _loads(where):
    """Raises Missing if the file may not be loaded, or cannot be."""
    why = extension.why_not(where)
    if why is None:
        try:
            extension.load(where)
        except ImportError as error:
            why = str(error)
    if why is not None:
        raise Missing("extension: %s: %s" % (where, why))


def check():
    """Prints what is there and what is missing. @return whether the extension is there and fits."""
    well = True
    for name, find in (("compiler", lambda: shlex.join(compiler())),
                       ("torch's headers", lambda: "%s, of torch %s" % (
                           torch_folders()[0][0], torch.__version__)),
                       ("Python's headers", lambda: python_folders()[0]),
                       ("sources", lambda: "%d files" % len(sources()))):
        try:
            print("%s: %s" % (name, find()))
        except Missing as missing:
            print("MISSING: %s" % missing)
    where = extension.path()
    try:
        _loads(where)
        print("extension: %s, loads" % where)
    except Missing as missing:
        print("MISSING: %s" % missing)
        well = False
    return well


def main():
    parser = argparse.ArgumentParser(prog="python -m gradwire.torch.build",
                                     description="Builds the C++ extension of the PyTorch backend.")
    parser.add_argument("--check", action="store_true",
                        help="say what is there and what is missing, and build nothing")
    parser.add_argument("--force", action="store_true", help="build it also if it is there")
    arguments = parser.parse_args()
    if arguments.check:
        return 0 if check() else 1
    where = extension.path()
    if not arguments.force and extension.why_not(where) is None:
        try:
            _loads(where)
            print("it is there: %s" % where)
            return 0
        except Missing:
            pass  # built anew
    began = time.monotonic()
    try:
        build()
    except Missing as missing:
        print("gradwire.torch.build: FAILED: %s" % missing, file=sys.stderr)
        return 1
    print("built in %.0f s: %s" % (time.monotonic() - began, where))
    return 0


if __name__ == "__main__":
    sys.exit(main())
