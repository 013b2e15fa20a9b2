#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One user does all he may to keep the lanes busy: he removes pages of his memory and cuts it, ends
# a group with thousands of unfinished receives, has many clients post what is refused, and hangs up
# with his memory still mapped. The daemon stays and gets the memory back, no round of its lanes has
# more than a bounded number of steps, and another user's group sums all the time; his status, open
# and join succeed.
. "$(dirname "$0")/../_init.sh"

# Steps of a round that everything together may take: far more than any was seen to have, and far
# less than any of these took when a round had no bound: 11,400 for the receives alone.
most_steps=2500

mkdir "$run_dir/pool"
mount -t tmpfs -o size=16m tmpfs "$run_dir/pool"
on_exit umount "$run_dir/pool"
if [[ ${GRADWIRE_SANITIZE:-none} == none ]]; then
  # By its name alone: LD_PRELOAD takes a space in a path for the end of one.
  export SMALL_POOL=$run_dir/pool LD_PRELOAD=${small_pool##*/}
  export LD_LIBRARY_PATH=${small_pool%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
memif_ring_start 2 --daemon.socket_mode 0666
unset LD_PRELOAD
if [[ ${GRADWIRE_SANITIZE:-none} == none ]]; then
  grep -q "${small_pool##*/}" "/proc/${daemon_pids[0]}/maps" ||
    fail "the daemon takes the host's hugepages in place of the story's few"
fi
chmod 755 "$run_dir"

step "root's group sums all the time"
background bystanders "$python" "$programs/sums.py" --until "$run_dir/enough" \
  --sizes 0,1,1000,100003 $(sockets 2)
eventually 30 grep -q running "$run_dir/bystanders.out" || fail "no sum got through"

others_are_served() {
  expect "status succeeds" "$gradwire_cli" status --socket "$(daemon_socket 0)"
  expect "open, join and ops succeed" "$python" "$programs/sums.py" --sizes 1000 \
    $(sockets 2)
}

# The daemon tells the longest round of the last minute, and on a busy machine all this takes more.
longest=0
note_steps() {
  local steps
  "$gradwire_cli" status --json --socket "$(daemon_socket 0)" >"$run_dir/status.json"
  steps=$("$python" -c 'import json, sys
print(max(lane["round_steps_max"] for lane in json.load(sys.stdin)["lanes"]))' \
    <"$run_dir/status.json")
  longest=$((steps > longest ? steps : longest))
}

hog=("$python" "$hostile/lane_hogs.py")
step "a user whose clients post what is refused"
background flood "${hog[@]}" flood "$(daemon_socket 0)"
others_are_served
expect_ended "all are refused" flood
note_steps
step "a user's group ends with receives that nobody served"
background end "${hog[@]}" end "$(daemon_socket 0)"
others_are_served
expect_ended "they end" end
note_steps
if [[ ${GRADWIRE_SANITIZE:-none} == none ]]; then
  step "a user removes pages when there is none left"
  expect "is cut off" "${hog[@]}" punch "$(daemon_socket 0)" "${daemon_pids[0]}"
  daemon_alive 0 || fail "the daemon did not survive it"
  note_steps
  others_are_served
  expect_text "the log says who" "client .* removed pages from the memory" "$(daemon_log 0)"
  step "a user cuts what it shares with the daemon to nothing"
  expect "is cut off" "${hog[@]}" cut "$(daemon_socket 0)"
  daemon_alive 0 || fail "the daemon did not survive it"
  others_are_served
  step "a user hangs up and keeps its memory mapped"
  expect "the daemon takes it back" "${hog[@]}" keep "$(daemon_socket 0)" "$run_dir/pool"
  others_are_served
fi

note_steps
step "the longest round of a lane had $longest steps"
((longest > 50 && longest <= most_steps)) || fail "that is not within 51 and $most_steps"

touch "$run_dir/enough"
expect_ended "the other user's sums were right all the time" bystanders
for i in 0 1; do expect_stop $i TERM; done
