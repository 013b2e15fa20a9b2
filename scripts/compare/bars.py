# SPDX-License-Identifier: BSD-3-Clause
"""The bars of the comparison: what gradwire has to reach next to the others of the same run."""

KB, MB = 1 << 10, 1 << 20


def size_text(size):
    for unit, bits in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << bits and size % (1 << bits) == 0:
            return f"{size >> bits} {unit}B"
    return f"{size} B"


TCP_PEERS = ("tcp", "gloo", "mpi-tcp")
OTHERS_TCP = ("gloo", "mpi-tcp")


def busbw(rows, row, size):
    figures = rows.get(row, {}).get(size)
    return figures["busbw_bytes_per_s"] if figures else None


def best_of(rows, names, size):
    found = [busbw(rows, row, size) for row in names]
    return max((value for value in found if value is not None), default=None)


def ratio(value, other):
    return value / other if value is not None and other else None


def bar(what, value, least, aim):
    if value is None:
        return {"what": what, "value": "not measured", "bar": least, "aim": aim,
                "verdict": "not measured"}
    if least is None:
        verdict = "aim reached" if aim and value >= aim else "printed"
    elif value < least:
        verdict = "NOT REACHED"
    else:
        verdict = "aim reached" if aim and value >= aim else "reached"
    return {"what": what, "value": value, "bar": least, "aim": aim, "verdict": verdict}


def memif_bars(rows):
    def over_tcp(row, size):
        return ratio(busbw(rows, row, size), best_of(rows, TCP_PEERS, size))

    def over(row, size):
        return ratio(busbw(rows, "gradwire", size), busbw(rows, row, size))

    bars = [
        bar("busbw at 64 MB over the best kernel-TCP peer", over_tcp("gradwire", 64 * MB), 3.0, 4),
        bar("busbw at 256 MB over the best kernel-TCP peer", over_tcp("gradwire", 256 * MB),
            2.5, 3.5),
    ]
    for size in (64, 256):
        bars.append(bar(f"busbw at {size} MB over Open MPI's shared memory",
                        over("mpi-shm", size * MB), 1.4, 2))
    for name, size in (("64 KB", 64 * KB), ("1 MB", MB)):
        bars.append(bar(f"time at {name}, Open MPI over TCP / gradwire", over("mpi-tcp", size),
                        1.4, 2.5))
    bars.append(bar("p50 at 64 B, Open MPI over TCP / gradwire", over("mpi-tcp", 64), 3, 4.5))
    bars.append(bar("1,408 B payloads, busbw at 64 MB over the best kernel-TCP peer",
                    over_tcp("gradwire-1408", 64 * MB), 2.0, 2.7))
    # The ring over TCP is ours, and twice as fast as what users would otherwise take.
    for size in (64, 256):
        value = ratio(busbw(rows, "gradwire", size * MB), best_of(rows, OTHERS_TCP, size * MB))
        if value is not None:
            bars.append(bar(f"busbw at {size} MB over the better of Gloo and Open MPI TCP", value,
                            None, None))
    for row, name in (("gradwire", "gradwire"), ("tcp", "TCP ring")):
        for size in (64, 256):
            value = ratio(busbw(rows, row, size * MB), busbw(rows, "bare", size * MB))
            if value is not None:
                bars.append(bar(f"{name} over the driver alone, {size} MB", value, None, None))
    return bars


def veth_bars(variants):
    bars = []
    for variant, least, aim in (("off", 1.2, 2), ("on", None, 1)):
        rows = variants.get(variant, {}).get("rows", {})
        value = ratio(busbw(rows, "gradwire", 64 * MB), best_of(rows, TCP_PEERS, 64 * MB))
        bars.append(bar(f"af_xdp on veth over the best TCP there, 64 MB, segmentation offloads "
                        f"{variant}", value, least, aim))
    return bars


def daemon_bars(rows, title):
    bars = []
    for size in sorted(rows.get("daemon", {})):
        if size < 16 * MB:
            continue
        value = ratio(busbw(rows, "daemon", size), busbw(rows, "gradwire", size))
        bars.append(bar(f"through the daemon against embedded, {size // MB} MB{title}", value,
                        0.8, 0.95))
    return bars


def sealed_bars(rows, title):
    """Packets that are sealed, beside the ring over TCP by TLS and the same row in clear."""
    bars = []
    for row, mode in (("daemon", "authenticate"), ("daemon", "encrypt"),
                      ("gradwire", "authenticate"), ("gradwire", "encrypt")):
        sealed = f"{row}-{mode}"
        for size in sorted(rows.get(sealed, {})):
            name = f"{sealed}, {size_text(size)}{title}"
            over_tls = ratio(busbw(rows, sealed, size), busbw(rows, "tls", size))
            if over_tls is not None:
                # At 64 MB, through daemons or embedded, twice TLS is what was set.
                least = 2 if size == 64 * MB else None
                bars.append(bar(f"{name}, over the TCP ring by TLS", over_tls, least, None))
            of_clear = ratio(busbw(rows, sealed, size), busbw(rows, row, size))
            if of_clear is not None:
                bars.append(bar(f"{name}, over {row} in clear", of_clear, None, None))
    return bars


def baseline_bars(rows, title):
    """A weak baseline would convince nobody: the TCP ring against the better of the others."""
    ratios = {}
    for size in rows.get("tcp", {}):
        value = ratio(busbw(rows, "tcp", size), best_of(rows, OTHERS_TCP, size))
        if value is not None:
            ratios[size] = value
    if not ratios:
        return []
    worst = min(ratios, key=ratios.get)
    return [bar(f"TCP ring over the better of Gloo and Open MPI TCP, its worst size ({worst} B)"
                f"{title}", ratios[worst], 0.9, None)]


def at_most(what, value, most):
    verdict = "not measured" if value is None else "reached" if value <= most else "NOT REACHED"
    return {"what": what, "value": "not measured" if value is None else value, "bar": most,
            "aim": None, "verdict": verdict, "most": True}


def time_of(rows, row, size, key="time_p50_us"):
    return rows.get(row, {}).get(size, {}).get(key)


def beside_bars(alone, busy, wake_us):
    """What a busy process on each core may cost; --beside busy. wake_us: what two threads of a core
    take to wake each other, both ways, which the daemon's lane and its client have to."""
    names = {64: "64 B", 64 * KB: "64 KB", MB: "1 MB", 16 * MB: "16 MB"}
    bars = []
    for size, name in names.items():
        for key, most in (("time_p50_us", 1.5), ("time_p99_us", 3)):
            bars.append(at_most(
                f"daemon beside busy over alone, {name}, {key[5:8]}",
                ratio(time_of(busy, "daemon", size, key), time_of(alone, "daemon", size, key)),
                most))
        if size >= MB:
            bars.append(at_most(
                f"embedded beside busy over alone, {name}, p50",
                ratio(time_of(busy, "gradwire", size), time_of(alone, "gradwire", size)), 2.2))
        for row, title in (("daemon", "daemon"), ("gradwire", "embedded")):
            bars.append(at_most(f"{title} over the TCP ring, both beside busy, {name}, p50",
                                ratio(time_of(busy, row, size), time_of(busy, "tcp", size)), 1))
    bars.append(at_most("daemon over embedded, alone, 64 KB, p50",
                        ratio(time_of(alone, "daemon", 64 * KB),
                              time_of(alone, "gradwire", 64 * KB)), 1.3))
    embedded = time_of(alone, "gradwire", 64)
    bars.append(at_most("daemon over embedded and twice two threads' wake-ups, alone, 64 B, p50",
                        ratio(time_of(alone, "daemon", 64),
                              embedded + 2 * wake_us if embedded and wake_us else None), 1))
    return bars


def of_best_repetitions(variants):
    """The same figures, of the repetition with the least median of each row and size."""
    def best(figures):
        faster = figures["time_p50_us"] / figures["time_p50_us_least"]
        return {**figures, "busbw_bytes_per_s": figures["busbw_bytes_per_s"] * faster,
                "time_p50_us": figures["time_p50_us_least"],
                "time_p99_us": figures.get("time_p99_us_least")}
    return {
        variant: {"rows": {row: {size: best(figures) for size, figures in sizes.items()}
                           for row, sizes in measured["rows"].items()}}
        for variant, measured in variants.items()
    }


def judge(meta, variants, wake_us=None):
    """Judged by medians over the repetitions; "best" is the same ratio of best repetitions."""
    bars = bars_of(meta, variants, wake_us)
    for one, best in zip(bars, bars_of(meta, of_best_repetitions(variants), wake_us)):
        one["best"] = best["value"]
    return bars


def small_op_bars(variants):
    """Of more than two ranks, which share cores here: printed, since nobody set a bar."""
    bars = []
    for variant, measured in variants.items():
        for size, name in ((64, "64 B"), (8 * KB, "8 KB")):
            for row, title in (("daemon", "daemon"), ("gradwire", "embedded")):
                value = ratio(time_of(measured["rows"], "mpi-tcp", size),
                              time_of(measured["rows"], row, size))
                bars.append(bar(f"p50 at {name}, Open MPI over TCP / {title}, offloads {variant}",
                                value, None, None))
    return bars


def bars_of(meta, variants, wake_us):
    bars = []
    if meta["nranks"] > 2:
        return small_op_bars(variants)
    if meta.get("beside"):
        alone, busy = (variants.get(v, {}).get("rows", {}) for v in ("plain", "busy"))
        return beside_bars(alone, busy, wake_us)
    for variant, measured in variants.items():
        rows = measured["rows"]
        title = f", offloads {variant}" if variant in ("on", "off") else ""
        if meta["link"] == "memif":
            bars += memif_bars(rows)
        bars += daemon_bars(rows, title)
        bars += sealed_bars(rows, title)
        bars += baseline_bars(rows, title)
    if meta["link"] == "veth":
        bars = veth_bars(variants) + bars
    return bars
