#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""House rules that a program can check: an SPDX line in every file, lines of at most 100 columns
and files of at most 400 lines in code (but for those of a list), folders of at most 40 files (but
for corpora), no two headers of one name in a library, no word twice in a row in
comments, texts and pages, no path of a developer's machine and no package registry's host anywhere,
one spelling of some words, every package with its reason, every test in a meson.build, every module
and C++ source of the Python package in its meson.build, Debian's package with the version and the
packages of the build.
`house.py --self-test` shows that each rule fails on a text that breaks it."""

import argparse
import collections
import pathlib
import re
import sys

from sources import CODE, ROOT, is_script, own_files

COLUMNS_MAX = 100
LINES_MAX = 400
# A file has one concern. These are longer, each for its reason, and have at most 800 lines.
LONGER_MAX = 800
LONGER = {
    "lib/client/gradwire.h": "the public header is one document",
    "python/gradwire/client.py": "the classes of the Python interface and their documentation",
    "python/gradwire/torch/backend.py": "torch.distributed's Backend is one class",
    "python/gradwire/torch/hook.py": "one DDP hook",
    "test/fuzz/connection.cc": "one target: its actions are the format of its corpus",
    "test/fuzz/contributions.cc": "one target: its actions are the format of its corpus",
    "test/fuzz/transfers.cc": "one target: its actions are the format of its corpus",
}
ROOMS = {"lib", "app", "drivers", "test", "scripts"}
FILES_MAX = 40
SPDX = "SPDX-License-" + "Identifier: BSD-3-Clause"
NO_SPDX_NAMES = {"LICENSE"}
NO_SPDX_ENDINGS = {".json", ".png", ".bin", ".pcap"}
BUILD_FILES = {"meson.build", "meson_options.txt"}
# Written so that they do not match themselves.
FORBIDDEN = re.compile(
    r"(?<![\w.$}])/(?:wor[k]|roo[t]|home/\w+)/|\.pyen[v]|"
    r"\b(?:deb\.debia[n]|pypi\.or[g]|pythonhoste[d]|security\.debia[n]|proxy\.golan[g])"
)

# One spelling of a word in code, texts and pages.
SPELLINGS = {re.compile(r"neighbou[r]", re.I): "neighbor"}

# A word twice in a row: the trace of a careless replacement.
TWICE = re.compile(r"(?<![\w-])([a-z]+) \1(?![\w-])")
TWICE_FINE = {"that", "had", "long", "build", "proc"}
PROSE = {".h": r'//.*|"[^"]*"', ".cc": r'//.*|"[^"]*"', ".md": r".*"}


def words_twice(path, line):
    for prose in re.findall(PROSE.get(path.suffix, r"(?!)"), line):
        for found in TWICE.finditer(prose):
            if found.group(1) not in TWICE_FINE:
                yield found.group(0)


def check(path, text, code):
    """Yields (line number, what is wrong)."""
    lines = text.splitlines()
    if path.name not in NO_SPDX_NAMES and path.suffix not in NO_SPDX_ENDINGS:
        if not any(SPDX in line for line in lines[:3]):
            yield 1, "no SPDX line among the first three"
    for number, line in enumerate(lines, 1):
        found = FORBIDDEN.search(line)
        if found:
            yield number, f"a path or host of one machine: {found.group(0)}"
        for other, spelling in SPELLINGS.items():
            if other.search(line):
                yield number, f"another spelling of {spelling}"
        for twice in words_twice(path, line):
            yield number, f"a word twice in a row: {twice}"
        if code and len(line) > COLUMNS_MAX:
            yield number, f"{len(line)} columns, {COLUMNS_MAX} allowed"
        if code and line != line.rstrip():
            yield number, "blanks at the end of the line"
    lines_max = LONGER_MAX if path.as_posix() in LONGER else LINES_MAX
    if code and len(lines) > lines_max:
        yield lines_max, f"{len(lines)} lines, {lines_max} allowed: split by concern"


def check_packages(text):
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#") and not re.match(r"^[a-z0-9.+-]+ +# \S", line):
            yield number, "a package without its reason: NAME # why"


def check_debian(control, packages, changelog, build):
    """Yields what debian/ says otherwise than the build does."""
    wanted = re.search(r"^Build-Depends:(.*?)^\S", control, re.M | re.S).group(1)
    known = set(re.search(r"^# \[build\].*?$(.*?)^$", packages, re.M | re.S).group(1).split())
    for name in re.findall(r"[a-z0-9.+-]{2,}", re.sub(r"\(.*?\)", "", wanted)):
        if name not in known | {"debhelper-compat"}:
            yield 1, f"debian/control builds with {name}; the set [build] has no such package"
    version = re.search(r"^gradwire \((.*)-\d+\)", changelog, re.M).group(1)
    if f"version: '{version}'," not in build:
        yield 1, f"debian/changelog has version {version}, and meson.build another"


def check_registered(path, builds):
    """Yields that no build runs the test. builds: texts of the meson.build of the folders above,
    the nearest first."""
    stem = path.stem.removesuffix("_test")
    in_room = f"'{path.parent.name}/{stem}"
    names = (f"'{path.name}'", f"'{path.stem}'", f"'{stem}'", f"{in_room}'", f"{in_room}_test.sh'")
    if re.search(r"_test$", path.stem) and not any(n in text for text in builds for n in names):
        yield 1, f"no meson.build above it names {path.name}: nobody runs it"


def check_installed(path, build):
    """Yields that a module or a source of the package is not installed. build: text of its
    meson.build."""
    if f"'{path.relative_to('python/gradwire')}'," not in build:
        yield 1, "python/gradwire/meson.build does not name it: it is not installed"


def check_folders(paths):
    """Yields folders of code with more files than a room holds, but for corpora, and headers of one
    name in a library."""
    rooms, headers = collections.Counter(), collections.defaultdict(list)
    for path in paths:
        if path.parts[0] in ROOMS and "corpus" not in path.as_posix():
            rooms[path.parent] += 1
        if path.parts[0] == "lib" and path.suffix == ".h":
            headers[path.parts[1], path.name].append(path)
    for folder, files in rooms.items():
        if files > FILES_MAX:
            yield folder, f"{files} files, {FILES_MAX} allowed: make rooms by subject"
    for same in headers.values():
        for path in same[1:]:
            yield path, f"a header of the same name as {same[0]}"


def builds_above(path):
    for folder in list(path.parents)[:2]:
        build = ROOT / folder / "meson.build"
        if build.is_file():
            yield build.read_text(encoding="utf-8")


def check_tree():
    failures = 0
    files = own_files()
    for path in files:
        data = (ROOT / path).read_bytes()
        if b"\0" in data:
            continue
        code = path.suffix in CODE or path.name in BUILD_FILES or is_script(path)
        text = data.decode("utf-8", errors="replace")
        wrongs = list(check(path, text, code))
        if path.parts[0] == "test":
            wrongs += check_registered(path, list(builds_above(path)))
        if path.parts[:2] == ("python", "gradwire") and path.suffix in (".py", ".cc", ".h"):
            build = (ROOT / "python/gradwire/meson.build").read_text(encoding="utf-8")
            wrongs += check_installed(path, build)
        if path.as_posix() == "scripts/packages.debian":
            wrongs += check_packages(text)
            others = ("debian/control", "debian/changelog", "meson.build")
            control, changelog, build = (
                (ROOT / name).read_text(encoding="utf-8") for name in others
            )
            wrongs += check_debian(control, text, changelog, build)
        for number, wrong in wrongs:
            print(f"{path}:{number}: {wrong}")
            failures += 1
    for path, wrong in check_folders(files):
        print(f"{path}: {wrong}")
        failures += 1
    print(f"{len(files)} files, {failures} breaches")
    return failures == 0 and len(files) > 0


def self_test():
    good = f"# {SPDX}\nx = 1\n"
    cases = [
        (good, True),
        ("x = 1\n", False),
        (good + "y" * 101 + "\n", False),
        (good + "y" * 100 + "\n", True),
        (good + "z \n", False),
        (good + "p = '/wor" + "k/main/x'\n", False),
        (good + "p = '/roo" + "t/x'\n", False),
        (good + "p = '$repo/wor" + "k/x'\n", True),
        (good + "u = 'deb.debia" + "n.org'\n", False),
        (good + "x\n" * 400, False),
        (good + 't = "it failed failed"\n', False),
        (good + "// the the mbuf\n", False),
        (good + "// a Neighbou" + "r\n", False),
        (good + "long long x = 1;  // as in RFC 1, that that names\n", True),
        (good + "std::mutex mutex;  // reduce reduce-scatter\n", True),
    ]
    wrong = 0
    for text, fine in cases:
        found = list(check(pathlib.PurePosixPath("lib/x.cc"), text, True))
        if (not found) != fine:
            print(f"{text[-60:]!r} should {'pass' if fine else 'fail'}, found {found}")
            wrong += 1
    if not list(check_packages("gcc\n")) or list(check_packages("gcc  # compiler\n# [x]\n\n")):
        print("the check of the package list is wrong")
        wrong += 1
    control, packages = "Build-Depends:\n debhelper-compat (= 13),\n g++,\n\nPackage: x\n", (
        "# [build] x\ng++  # compiler\n\n# [run] y\nps  # z\n\n")
    other = control.replace("g++", "ps")
    for text, version, fine in ((control, "1.2", True), (other, "1.2", False),
                                (control, "1.3", False)):
        if (not list(check_debian(text, packages, f"gradwire ({version}-1) x", "version: '1.2',"))
                ) != fine:
            print(f"debian/ with {text!r}, version {version}, should {'pass' if fine else 'fail'}")
            wrong += 1
    story, unit = (pathlib.PurePosixPath(p) for p in ("test/s/leave_test.sh", "test/u/op_test.cc"))
    for path, build, fine in ((story, "'leave': 60,", True), (story, "'leaves': 60,", False),
                              (story, "'s/leave': 60,", True), (story, "'t/leave': 60,", False),
                              (unit, "files('op_test.cc')", True), (unit, "files('x.cc')", False)):
        if (not list(check_registered(path, [build]))) != fine:
            print(f"{path} in {build!r} should {'pass' if fine else 'fail'}")
            wrong += 1
    for name, fine in (("torch/wire.py", True), ("torch/wired.py", False), ("wire.py", False)):
        path = pathlib.PurePosixPath("python/gradwire") / name
        if (not list(check_installed(path, "'torch/wire.py',"))) != fine:
            print(f"{path} should {'pass' if fine else 'fail'}")
            wrong += 1
    room = [pathlib.PurePosixPath(f"lib/a/x{i}.h") for i in range(FILES_MAX)]
    for paths, fine in ((room, True), (room + [pathlib.PurePosixPath("lib/a/y.h")], False),
                        (room + [pathlib.PurePosixPath("lib/a/b/x1.h")], False),
                        (room + [pathlib.PurePosixPath("lib/b/x1.h")], True)):
        if (not list(check_folders(paths))) != fine:
            print(f"{len(paths)} files, {paths[-1]} last, should {'pass' if fine else 'fail'}")
            wrong += 1
    print(f"{len(cases) + 17} cases, {wrong} wrong")
    return wrong == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    sys.exit(0 if (self_test() if arguments.self_test else check_tree()) else 1)
