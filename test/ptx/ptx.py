#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The kernels' PTX, as nvcc writes it for the architectures of release builds, kept compressed so
that only remaking it needs nvcc.

usage: ptx.py make              compiles it anew (nvcc, two minutes)
       ptx.py unpack FOLDER     one file for each text
       ptx.py check             fails if a source has changed since it was made
"""
import hashlib
import lzma
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LIB = HERE.parent.parent / "lib"
PACKED = HERE / "kernels.ptx.xz"
DIGEST = HERE / "kernels.sources"
SOURCE = "reduce/cuda/kernels.cu"
# As lib/reduce/cuda/meson.build has them. sm_80's text is sm_90's but for its name.
ARCHITECTURES = ("80", "90", "100")
# What of a source matters, if not all of it does: other enums come and go, and change no kernel.
PARTS = {"base/types.h": r"enum class (?:DataType|RedOp)\b.*?};",
         "base/wire_format.h": r"enum class WireFormat\b.*?};|kFormatBlock = \d+"}
ARGS = ("-std=c++20", "--expt-relaxed-constexpr", "-fmad=false", "-prec-div=true", "-ftz=false")
MARK = "// gradwire: kernels.sm_"


def sources() -> list[str]:
    """The kernels' source and all of the project's that it includes."""
    found, left = [], [SOURCE]
    while left:
        path = left.pop()
        if path in found:
            continue
        found.append(path)
        text = (LIB / path).read_text()
        left += [name for name in re.findall(r'^#include "([^"]+)"', text, re.M)]
    return sorted(found)


def code_of(text: str) -> str:
    """The text without comments and line breaks, which change no kernel."""
    text = re.sub(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/',
                  lambda found: found[0] if found[0][0] == '"' else " ", text, flags=re.S)
    return " ".join(text.split())


def digest() -> str:
    lines = ["# SPDX-License-Identifier: BSD-3-Clause",
             f"flags {' '.join(ARGS)} {' '.join(ARCHITECTURES)}"]
    for path in sources():
        code = code_of((LIB / path).read_text())
        if path in PARTS:
            code = " ".join(re.findall(PARTS[path], code))
        lines.append(f"{path} {hashlib.sha256(code.encode()).hexdigest()}")
    return "\n".join(lines) + "\n"


def compiled(architecture: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "kernels.ptx"
        subprocess.run(["nvcc", *ARGS, f"-arch=compute_{architecture}", "-ptx", f"-I{LIB}", "-o",
                        out, LIB / SOURCE], check=True)
        # Names of what is local to the file have a hash of where it lies.
        return re.sub(r"_[0-9a-f]{8}_10_kernels_cu_[0-9a-f]{8}", "_kernels_cu", out.read_text())


def make() -> int:
    texts = "".join(f"{MARK}{each}\n{compiled(each)}" for each in ARCHITECTURES)
    packed = lzma.compress(texts.encode(), preset=9 | lzma.PRESET_EXTREME)
    PACKED.write_bytes(packed)
    DIGEST.write_text(digest())
    print(f"{PACKED.name}: {len(texts)} bytes in {len(packed)}")
    return 0


def unpack(folder: str) -> int:
    for part in lzma.decompress(PACKED.read_bytes()).decode().split(MARK)[1:]:
        name, text = part.split("\n", 1)
        (pathlib.Path(folder) / f"kernels.sm_{name}.ptx").write_text(text)
    return 0


def check() -> int:
    made_of, now = DIGEST.read_text().splitlines(), digest().splitlines()
    if made_of == now:
        print(f"{PACKED.name} is of these sources")
        return 0
    for line in sorted(set(made_of) ^ set(now)):
        print(f"{'made of' if line in made_of else 'now'}: {line}")
    print("the PTX that the tests run is older than its sources: run test/ptx/ptx.py make "
          "(it needs nvcc), and commit what it writes")
    return 1


def self_test() -> int:
    assert code_of("a  /* b\n */ c // d\n e") == "a c e"
    assert code_of('f("//") /**/ g') == 'f("//") g'
    assert code_of("int a = 1;") != code_of("int a = 2;")
    assert len(re.findall(PARTS["base/types.h"], code_of((LIB / "base/types.h").read_text()))) == 2
    assert "base/types.h" in sources() and "reduce/gpu/kernel_body.h" in sources()
    return 0


def main() -> int:
    match sys.argv[1:]:
        case ["make"]:
            return make()
        case ["unpack", folder]:
            return unpack(folder)
        case ["check"]:
            return check() or self_test()
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
