#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What has a name in several languages has the same one in all: datatypes, redops, packet types,
abort codes, drop reasons and packet fields in C++, C, Python, the Wireshark dissector, the numpy
reference and doc/protocol; members of the configuration and keys; counters and metrics in their
table, in pages, dashboards, alerts and stories; the default socket in C++ and in the texts of the
interfaces."""

import re
import sys

from sources import ROOT, own_files

# Fields of lib/wire/layout.h whose name in the dissector is shorter.
DISSECTOR = {
    "packet_number": "number", "group_id": "group",
    "culprit_rank": "culprit", "reporter_rank": "reporter",
}
# They are the room of another struct, parts of an integer, or nothing.
NO_FIELD = re.compile(r"^(type_fields|reserved\d*|high|low|collective_and_datatype|bits"
                      r"|(asks|format)_and_\w+)$")
# A metric has a unit, or is a count of events.
METRIC = re.compile(r"\b(gradwire_\w+?_(?:total|seconds|bytes|steps|mbufs|up|path))(?:_bucket)?\b")
COUNTER = re.compile(r"\blane\.\d\.(?:transport\.)?(?!transport\b|drops\.|ops\.)(\w+)")


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def protocol_pages():
    """All of them, one after the other."""
    pages = sorted((ROOT / "doc/protocol").glob("*.md"))
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def enumeration(path, name):
    """Names and values of a C++ enum class, without kNone and kCount."""
    body = re.search(r"enum class %s\b[^{]*\{(.*?)\};" % name, text(path), re.S).group(1)
    body = re.sub(r"//.*", "", body)
    found, value = {}, -1
    for entry in filter(None, (e.strip() for e in body.split(","))):
        word, _, number = (part.strip() for part in entry.partition("="))
        value = int(number) if number else value + 1
        if word not in ("kNone", "kCount"):
            found[snake(word[1:])] = value
    return found


def strings(path, name):
    """The words of an array or tuple of strings."""
    body = re.search(r"\b%s\b[^=]*= ?[({](.*?)[)}]" % name, text(path), re.S).group(1)
    return re.findall(r'"([^"]+)"', body)


def lua_table(name):
    body = re.search(r"local %s = \{(.*?)\n?\}" % name, text("scripts/wireshark/gradwire.lua"),
                     re.S).group(1)
    return {word: int(number) for number, word in re.findall(r'\[(\d+)\] = "([^"]+)"', body)}


def python_table(name):
    body = re.search(r"^%s = \{(.*?)\}" % name, text("python/gradwire/client.py"), re.S | re.M)
    return {word: int(number) for word, number in re.findall(r'"(\w+)": (\d+)', body.group(1))}


def c_values():
    return {word.lower(): int(number)
            for word, number in re.findall(r"\bGW_(\w+) = (\d+)", text("lib/client/gradwire.h"))}


def table_of_types(name):
    """The names in a table of lib/base/types.h."""
    body = re.search(r"k%sTable =.*?\n\}\);" % name, text("lib/base/types.h"), re.S).group(0)
    return re.findall(r'\{%s::k\w+, "([\w-]+)"\}' % name, body)


def assigned(path, names):
    """Numbers of constants that Python assigns, several to a line: A, B = 1, 2."""
    found = {}
    for left, right in re.findall(r"^([A-Z_, ]+) = ([\d, ]+)$", text(path), re.M):
        found |= dict(zip(left.split(", "), map(int, right.split(", "))))
    return {name: found[snake_upper(name)] for name in names if snake_upper(name) in found}


def snake_upper(name):
    return name.replace("-", "_").upper()


def collective_pages(collectives, protocol):
    """As pages(), of collectives. Packets carry those that go in the group's order of ops, an
    all-reduce as 0; a transfer's packets have numbers of their own."""
    yield ("collectives", "enum Collective",
           {w.replace("_", "-"): n
            for w, n in enumeration("lib/base/types.h", "Collective").items()}, collectives)
    values = c_values()
    yield ("collectives", "lib/client/gradwire.h",
           {w: values.get(w.replace("-", "_")) for w in collectives}, collectives)
    for path in ("python/gradwire/_native.py", "test/system/hostile/raw_client.py"):
        yield ("collectives", path, assigned(path, collectives), collectives)
    refusal = re.sub(r'"\s*"', "", text("lib/command/command_check.cc"))
    refusal = re.search(r"is unknown; 1 is (.*?)\"", refusal).group(1)
    yield ("collectives", "the refusal of lib/command/command_check.cc",
           {w: int(n) for n, w in re.findall(r"(\d+) ([\w-]+)", "1 " + refusal)}, collectives)
    help_text = re.search(r'"--collective", collective,(.*?)\);',
                          text("app/gradwire-perf/options.cc"), re.S).group(1)
    yield ("collectives", "the help of app/gradwire-perf/options.cc",
           {w: 0 for w in collectives if w in help_text or w in ("send", "recv")},
           dict.fromkeys(collectives, 0))
    sent = {"all-reduce": 0} | {w: n for w, n in collectives.items() if 1 < n < 6}
    yield ("collectives", "the dissector", lua_table("COLLECTIVES"), sent)
    ordered = sent | {"barrier": collectives["barrier"]}
    yield ("collectives", "test/peer/wire.py", assigned("test/peer/wire.py", ordered), ordered)
    listed = re.search(r"collective has 4 bits: (.*?)\)", protocol, re.S).group(1)
    yield ("collectives", "doc/protocol/ring.md",
           {w: int(n) for n, w in re.findall(r"(\d+),? ([a-z-]+)", listed)}, ordered)


def format_pages():
    """As pages(), of wire formats."""
    formats = enumeration("lib/base/wire_format.h", "WireFormat")
    names = re.findall(r'\{WireFormat::k\w+, "(\w+)"\}', text("lib/base/wire_format.h"))
    yield "formats", "their table", {w: i for i, w in enumerate(names)}, formats
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", text("doc/protocol/formats.md"), re.M)
    yield "formats", "doc/protocol/formats.md", {w: int(n) for n, w in rows}, formats
    yield ("formats", "lib/client/gradwire.h",
           {w: c_values().get("wire_" + w) for w in formats}, formats)
    body = re.search(r"^WIRES = \{(.*?)\}", text("python/gradwire/client.py"), re.M).group(1)
    yield ("formats", "python/gradwire/formats.py",
           {w: int(n) for w, n in re.findall(r'"(\w+)": (\d+)', body)}, formats)
    reference = ["same"] + strings("test/reference/formats.py", "FORMATS")
    yield ("formats", "test/reference/formats.py", {w: i for i, w in enumerate(reference)},
           formats)


def pages():
    """(what, where, names and values there, names and values that should be there)"""
    datatypes = {w: i for i, w in enumerate(table_of_types("DataType"))}
    redops = {w: i for i, w in enumerate(table_of_types("RedOp"))}
    collectives = {w: i for i, w in enumerate(table_of_types("Collective"), 1)}
    spaced = {"kPacketTypes": {}, "kAborts": {}}
    for words, path, name in (("kPacketTypes", "lib/wire/packet_type.h", "PacketType"),
                              ("kAborts", "lib/base/abort_reason.h", "AbortCode")):
        spaced[words] = {w.replace("_", " "): n for w, n in enumeration(path, name).items()}
    protocol = protocol_pages()
    yield ("redops", "enum RedOp", enumeration("lib/base/types.h", "RedOp"), redops)
    # kBytes is moved, never reduced: the tables of datatypes leave it out.
    reduced = [n for name, n in enumeration("lib/base/types.h", "DataType").items()
               if name != "bytes"]
    yield ("datatypes", "enum DataType", dict(enumerate(reduced)),
           dict(enumerate(datatypes.values())))
    yield ("redops", "python/gradwire/client.py", python_table("OPS"), redops)
    yield ("datatypes", "python/gradwire/client.py", python_table("DATATYPES"), datatypes)
    yield ("redops", "test/reference/reference.py",
           {w: i for i, w in enumerate(strings("test/reference/reference.py", "REDOPS"))}, redops)
    yield ("redops", "lib/client/gradwire.h",
           {w: n for w, n in c_values().items() if w in redops}, redops)
    yield ("redops", "the dissector", lua_table("REDOPS"), redops)
    yield ("datatypes", "the dissector", lua_table("DATATYPES"), datatypes)
    for what, table, words in (("packet types", "TYPES", "kPacketTypes"),
                               ("abort codes", "ABORTS", "kAborts")):
        yield (what, "the dissector", {w.replace("-", " "): n for w, n in lua_table(table).items()},
               spaced[words])
    rows = {name.replace("-", " "): int(number)
            for number, name in re.findall(r"^\| (\d+) \| ([a-z -]+) \|", protocol, re.M)}
    for words in spaced.values():
        yield ("names and numbers", "tables of doc/protocol",
               {w: rows.get(w) for w in words}, words)
    table = dict(re.findall(r"\| (\d+) \| (\w+) \|$", protocol, re.M))
    yield ("redops", "doc/protocol", {w: int(n) for n, w in table.items()}, redops)
    yield ("redops", "test/peer/wire.py",
           {w: i for i, w in enumerate(strings("test/peer/wire.py", "REDOPS"))}, redops)
    yield ("datatypes", "test/peer/wire.py",
           {w: i for i, w in enumerate(re.findall(r'\("(\w+)", \d\)', text("test/peer/wire.py")))},
           datatypes)
    yield ("datatypes", "test/reference/reference.py",
           dict.fromkeys(re.findall(r'^    "(\w+)": np\.dtype', text("test/reference/reference.py"),
                                    re.M)), dict.fromkeys(datatypes))
    for what, name, words in (("redops", "_NAMES", redops), ("datatypes", "_OF_TORCH", datatypes)):
        names = strings("python/gradwire/torch/datatypes.py", name)
        yield (what, "python/gradwire/torch/datatypes.py", dict.fromkeys(names),
               dict.fromkeys(words))
    yield from collective_pages(collectives, protocol)
    yield from format_pages()
    drops = set(enumeration("lib/wire/drop.h", "Drop"))
    listed = set(re.findall(r"`(\w+)`", re.search(r"\n## Drop reasons\n(.*?)\n## ", protocol,
                                                   re.S).group(1)))
    yield ("drop reasons", "doc/protocol", dict.fromkeys(drops & listed), dict.fromkeys(drops))


def field_mistakes():
    dissector, protocol = text("scripts/wireshark/gradwire.lua"), protocol_pages()
    shown = {name.rsplit(".", 1)[-1] for name in re.findall(r'"(gradwire\.[\w.]+)"', dissector)}
    for struct, body in re.findall(r"struct (\w+) \{\n(.*?)\n\};", text("lib/wire/layout.h"), re.S):
        for field in re.findall(r"^  [\w:<>, ]+? (\w+);", body, re.M):
            if NO_FIELD.match(field):
                continue
            if not {field, DISSECTOR.get(field)} & shown:
                yield f"scripts/wireshark/gradwire.lua shows no field {field} (of {struct})"
            if field not in protocol and field.replace("_", " ") not in protocol:
                yield f"doc/protocol does not name {field} (of {struct})"


def key_mistakes():
    """Members of the configuration that no key sets: prefix_bits is part of port.ip."""
    keys = text("lib/config/keys.cc")
    structs = text("lib/base/sections.h") + text("lib/base/fault_settings.h")
    for section, body in re.findall(r"struct (\w+)(?:Section|Settings)\b[^{;]*\{\n(.*?)\n\};",
                                    structs, re.S):
        for member in re.findall(r"^  (?:std::\w+|bool|double) (\w+)[ ;{]", body, re.M):
            if member != "prefix_bits" and not re.search(r'"%s",|\("%s",' % (member, member), keys):
                yield f"lib/config/keys.cc has no key {section.lower()}.{member}"


def counter_mistakes():
    """Rows of the table of counters whose name is not their member's; counters and metrics that a
    page, a dashboard, an alert or a story names and that do not exist."""
    rows = re.findall(r'\{"(\w+)",\s*&\w+::(\w+)', text("lib/status/counter_table.h"))
    if not rows:
        yield "lib/status/counter_table.h has no rows that can be read"
    for name, member in rows:
        if name != member:
            yield f"lib/status/counter_table.h: {member} is called {name}"
    metrics = set(re.findall(r'"(gradwire_\w+)"', "".join(
        text(path) for path in ("lib/metrics/metrics.cc", "lib/status/counter_table.h"))))
    counters = {name for name, _ in rows}
    for path in own_files():
        name = path.as_posix()
        if not (name.startswith(("doc/", "config/", "test/system/"))
                or name in ("README.md", "CONTRIBUTING.md")):
            continue
        if path.suffix not in (".md", ".json", ".yml", ".sh"):
            continue
        page = text(name)
        for metric in set(METRIC.findall(page)) - metrics:
            yield f"{name} names the metric {metric}, which does not exist"
        for counter in set(COUNTER.findall(page)) - counters - {"NAME"}:
            yield f"{name} names the counter {counter}, which does not exist"


def mistakes():
    for what, where, found, wanted in pages():
        if not wanted or found != wanted:
            differ = [k for k in {**wanted, **found} if found.get(k, -1) != wanted.get(k, -1)]
            yield f"{what}: {where} differs in {', '.join(map(str, differ)) or 'everything'}"
    yield from field_mistakes()
    yield from key_mistakes()
    yield from counter_mistakes()
    path = re.search(r'kControlSocket = "([^"]+)"', text("lib/base/defaults.h")).group(1)
    for page in ("lib/client/gradwire.h", "python/gradwire/client.py",
                 "python/gradwire/torch/__init__.py"):
        if path not in text(page):
            yield f"{page} does not name the default socket {path}"


if __name__ == "__main__":
    found = list(mistakes())
    for mistake in found:
        print(mistake)
    print(f"{len(found)} names differ")
    sys.exit(1 if found else 0)
