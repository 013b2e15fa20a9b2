#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""operate.py CHECK FILE: reads JSON that the operator's CLI printed, and checks it.

  waiting RANK  `gradwire ops`: an op waits for that rank, by name, since more than half a second
  late RANK     `gradwire groups`: a group waited for that rank, half a second or more
  perfetto      a trace-event file: what its format demands, and ops that began and ended
  moving        `gradwire top --once`: chunks moved
  counted       `gradwire counters`: what every all-reduce leaves behind
"""

import json
import sys


def check_waiting(ops, rank):
    waits = [op for op in ops if op["waits_for_rank"] == int(rank) and op["since_s"] > 0.5]
    assert waits, f"no op waits for rank {rank}: {ops}"
    assert waits[0]["waits_for"] in ("upstream", "downstream"), waits[0]
    assert f"rank {rank}" in waits[0]["text"], waits[0]
    assert waits[0]["posted_s"] >= 0 and waits[0]["bytes"] > 0, waits[0]


def check_late(groups, rank):
    late = [one for group in groups for one in group["late_ranks"] if one["rank"] == int(rank)]
    assert any(one["waited_s"] >= 0.5 and one["last_s"] < 60 for one in late), groups


def check_perfetto(trace):
    open_ops = {}
    ended = 0
    order = {"b": 0, "n": 1, "e": 2}
    timed = [event for event in trace["traceEvents"] if event["ph"] in order]
    for event in sorted(timed, key=lambda e: (e["ts"], order[e["ph"]])):
        for key in ("name", "cat", "id", "pid", "tid", "ts"):
            assert key in event, f"{key} is missing: {event}"
        assert event["ts"] >= 0, event
        if event["ph"] == "b":
            assert event["id"] not in open_ops, f"begun twice: {event}"
            # Of an op that is older than the trace nobody knows the bytes any more.
            known = "posted" not in event["args"]
            assert ("bytes" in event["args"]) == known, event
            assert not known or event["args"]["bytes"] > 0, event
            open_ops[event["id"]] = event
        elif event["ph"] == "e":
            begun = open_ops.pop(event["id"])
            assert begun["name"] == event["name"] and begun["ts"] <= event["ts"], (begun, event)
            ended += 1
        else:
            assert event["id"] in open_ops, f"a moment of no op: {event}"
    assert not open_ops, f"never ended: {open_ops}"
    assert ended >= 20, f"{ended} ops"
    names = {event["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert names == {"process_name", "thread_name"}, names
    assert float(trace["otherData"]["begins_at_unix_s"]) > 1.6e9, trace["otherData"]
    print(f"{ended} ops")


def check_moving(top):
    lane = top["lanes"][0]
    assert top["busbw_bytes_per_s"] > 0 and lane["rx_packets_per_s"] > 0, top
    assert 0 < lane["load"] <= 1 and lane["ops_per_s"] > 0, lane
    assert 0 < top["latency_p50_us"] <= top["latency_p99_us"], top


def check_counted(counters):
    for name in ("lane.0.busy_ns", "lane.0.idle_ns", "lane.0.op_bytes", "lane.0.ops_done",
                 "port.net_memif0.rx_packets"):
        assert counters[name] > 0, f"{name}: {counters[name]}"
    assert any(name.startswith("group.") and name.endswith(".data_packets_sent") and value > 0
               for name, value in counters.items()), counters


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as file:
        globals()["check_" + sys.argv[1]](json.load(file), *sys.argv[3:])
