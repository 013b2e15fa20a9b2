# SPDX-License-Identifier: BSD-3-Clause
"""The tree's own files, for the checks that read sources."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".h", ".cc", ".py", ".sh"}


def own_files(root=ROOT):
    """Files that git tracks or would track, relative to root; in an unpacked archive, all but
    build folders."""
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-z",
               "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith((".git", "build", "__pycache__"))]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(pathlib.Path(n) for n in set(names) if (root / n).is_file())


def is_script(path, root=ROOT):
    """A program without an ending: .ci/run and the like."""
    if path.suffix:
        return False
    with open(root / path, "rb") as f:
        return f.read(2) == b"#!"
