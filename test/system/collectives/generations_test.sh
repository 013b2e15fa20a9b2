#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Real daemons pass through generations of keys, of 2^22 packets each: a group sums, every bit of it
# is compared, until its links are in the fourth generation, whose keys lie in the places of the
# first one's. Packets of 64 bytes make that short. No packet is refused on the way.
. "$(dirname "$0")/../_init.sh"

generation=$((1 << 22))
"$gradwire_cli" key make "$run_dir/cluster.key" >/dev/null

# count INDEX NAME: that counter of all groups so far.
count() {
  "$gradwire_cli" counters --socket "$(daemon_socket "$1")" |
    awk -v name="lane.0.transport.$2" \
      '$1 == name {found = $2} END {print found == "" ? "none" : found}'
}
# sent MANY: both daemons have sent so many data packets, each of which had a number of its own.
sent() {
  local first second
  first=$(count 0 data_packets_sent) second=$(count 1 data_packets_sent)
  [[ $first != none && $second != none ]] && ((first > $1 && second > $1))
}

# passes MODE
passes() {
  local mode=$1 before end i reason
  memif_ring_start 2 --security.key_file "$run_dir/cluster.key" --security.mode "$mode" \
    --transport.payload_bytes 64 --transport.tiles never --transport.exchange_kib 0
  rm -f "$run_dir/stop"
  background sums "$python" "$programs/sums.py" --sizes 262144 --until "$run_dir/stop" \
    $(sockets 2)
  for end in 1 2 3; do
    step "$mode: generation $end is in use"
    eventually 180 sent $((end * generation)) ||
      fail "daemon 0 has sent $(count 0 data_packets_sent) packets, daemon 1 $(
        count 1 data_packets_sent)"
  done
  before=$(count 0 data_packets_sent)
  eventually 30 sent $((before + 100000)) || fail "nothing goes on in generation 3"
  touch "$run_dir/stop"
  expect_ended "$mode: all sums were right" sums
  sed 's/^/       /' "$run_dir/sums.out"
  for i in 0 1; do
    expect_text "$mode: daemon $i sealed its packets" "formed: .* security $mode by key" \
      "$(daemon_log "$i")"
    for reason in tag generation unsealed replay malformed; do
      expect "$mode: daemon $i refused none for $reason" \
        test "$(count "$i" "drops.$reason")" = 0
    done
    expect_stop "$i" TERM
  done
}

passes encrypt
passes authenticate
