#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The shared library's promises: what it exports, what it needs, and that its header is C99.

Arguments: library, version script, header, C++ compiler, readelf-like tools from PATH.
"""
import re
import subprocess
import sys
import unittest

LIBRARY, MAP, HEADER, COMPILER = sys.argv[1:5]
HEADER_TEXT = open(HEADER, encoding="utf-8").read()
DECLARED = set(re.findall(r"^[a-z].*?\b(gw_[a-z_]+)\(", HEADER_TEXT, re.M))


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Abi(unittest.TestCase):
    def test_exports_are_what_the_header_declares(self):
        lines = output("nm", "-D", "--defined-only", LIBRARY).splitlines()
        exported = {line.split()[-1] for line in lines} - {f"GRADWIRE_1.{n}" for n in range(11)}
        newer = {"gw_all_reduce_on_stream": 1, "gw_memory_device": 1, "gw_all_gather": 2,
                 "gw_barrier": 2, "gw_broadcast": 2, "gw_reduce": 2, "gw_reduce_scatter": 2,
                 "gw_group_get_info": 3, "gw_group_join_processes": 3, "gw_group_rank_of": 3,
                 "gw_post": 4, "gw_all_to_all": 5, "gw_gather": 5, "gw_recv": 5, "gw_scatter": 5,
                 "gw_send": 5, "gw_wait_on_stream": 6, "gw_flush": 7,
                 "gw_post_more": 7, "gw_round_trip": 8, "gw_work_bytes": 9,
                 "gw_client_describe_for": 10}
        self.assertEqual(exported, {f"{n}@@GRADWIRE_1.{newer.get(n, 0)}" for n in DECLARED})

    def test_version_script_names_each_once(self):
        names = re.findall(r"^\s+(gw_[a-z_]+);", open(MAP, encoding="utf-8").read(), re.M)
        self.assertEqual(sorted(names), sorted(DECLARED))

    def test_it_needs_no_dpdk_no_cuda_no_numa(self):
        needed = set(re.findall(r"NEEDED.*\[(.*?)\]", output("readelf", "-d", LIBRARY)))
        libraries = r"libfmt|libstdc\+\+|libgcc_s|libm|libc|ld-linux.*|lib([at]|ub)san"
        allowed = re.compile(rf"^({libraries})\.so")
        self.assertEqual([name for name in needed if not allowed.match(name)], [])
        self.assertIn("libc.so.6", needed)

    def test_header_is_c99_and_cxx(self):
        source = '#include "%s"\nint main(void) { return gw_abi_version() == 0; }\n' % HEADER
        for language in (["-x", "c", "-std=c99"], ["-x", "c++", "-std=c++11"]):
            command = COMPILER.split() + language + ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
            subprocess.run(command + ["-fsyntax-only", "-"], input=source, text=True, check=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
