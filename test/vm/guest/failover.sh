# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Two daemons with two e1000e NICs each, all by vfio: a rail with IPv4 on one hub, and one with IPv6
# on another. Amid large ops and amid small ones QEMU sets the first rail's links down, and up again
# when the other rail has carried on: no op fails, no bit changes, nothing stands still for longer
# than two path limits, log and status tell it, and the first rail is taken again.
. /opt/gradwire/vm/story.sh

first=(0000:00:11.0 0000:00:12.0) second=(0000:00:13.0 0000:00:14.0)
set_link=/opt/gradwire/vm/set_link.sh
base=/opt/gradwire/test/system
export PYTHONPATH=/opt/gradwire/python:/opt/gradwire/test:$base/programs:$base/hostile
export PYTHONDONTWRITEBYTECODE=1 GRADWIRE_LIBRARY=$bin/libgradwire.so
large=$((64 << 20))

stty -F /dev/ttyS2 raw -echo || fail "there is no third serial port"
"$setup_host" --hugepages 640 --memlock unlimited \
  --bind "$(IFS=, && echo "${first[*]},${second[*]}")" >"$work/setup.out" 2>&1 ||
  fail "setup-host.sh: $(cat "$work/setup.out")"
for address in "${first[@]}" "${second[@]}"; do
  [[ $(driver_of "$address") == vfio-pci ]] || fail "$address is not vfio-pci's"
done
ulimit -l unlimited
daemon_memory=(-m 256)
daemon host-0 0@0,1@1 "${first[0]}" 10.9.1.1 adaptive "${second[0]}" fd09:2::1
daemon host-1 0@2,1@3 "${first[1]}" 10.9.1.2 adaptive "${second[1]}" fd09:2::2
daemon_ready host-0
daemon_ready host-1
limit_s=$((silence_ms / 4 / 1000))
say "daemons are ready; a path is silent after $limit_s s"

# pull NAME BYTES LINK...: amid ops of that size. What host 0's daemon says while the links are down
# is in NAME.status and NAME.ports.
pull() {
  local name=$1 bytes=$2 look=()
  shift 2
  for verb in status ports; do
    look+=("gradwire $verb --socket $work/host-0.sock >$work/$name.$verb &&")
  done
  python3 /opt/gradwire/test/system/programs/rails_cut.py --bytes "$bytes" --cuts 1 \
    --cut "$set_link off $*" --mend "${look[*]} $set_link on $*" --still $((2 * limit_s)) \
    "$work/host-0.sock" "$work/host-1.sock" >"$work/$name.out" 2>&1 ||
    fail "a link is set down amid ops of $bytes bytes: $(cat "$work/$name.out")"
  say "$(cat "$work/$name.out")"
  grep -qE '^  lane 0: its data has gone to fd09:2::2 for [0-9.]+ s, because its first path is' \
    "$work/$name.status" || fail "the status does not tell it: $(cat "$work/$name.status")"
  grep 'data has gone' "$work/$name.status"
  grep -qE "^${first[0]} .* down( |$)" "$work/$name.ports" ||
    fail "the link was not down: $(cat "$work/$name.ports")"
}
pull small 1000 e1000e-0-1
pull large $large e1000e-0-1 e1000e-0-2
for rank in 0 1; do
  log=$work/host-$rank.log
  other=$((1 - rank))
  on="rank $other \\(10\\.9\\.1\\.$((other + 1))\\)"
  left="^[0-9T:.+-]+ warn.*lane 0 leaves port ${first[rank]}: $on is silent there, and answers"
  left+=" at fd09:2::$((other + 1))"
  (($(grep -cE "$left" "$log") >= 2)) || fail "log $rank does not say twice that the port is left"
  (($(grep -cE "lane 0 takes port ${first[rank]} again: $on answers there" "$log") >= 2)) ||
    fail "log $rank does not say twice that the port is taken again"
done
grep -hE 'lane 0 (leaves|takes) port' "$work/host-0.log"
gradwire counters --socket "$work/host-0.sock" >"$work/counters"
moves=$(sed -n 's/^lane\.0\.transport\.path_moves //p' "$work/counters")
((moves >= 4)) || fail "the counters show $moves moves, not 4"
daemons_end
"$setup_host" --undo >"$work/undo.out" 2>&1 || fail "--undo: $(cat "$work/undo.out")"

printf 'table: a link is set down in QEMU, and up again\n'
printf '| op, bytes | ops | longest op, s | longest without progress, s | allowed, s |\n'
printf '| ---: | ---: | ---: | ---: | ---: |\n'
for name in small large; do
  sed -nE "s/^([0-9]+) ops of ([0-9]+) bytes .*bits, ([0-9.]+) s an op.* ([0-9.]+) s without.*/| \
\\2 | \\1 | \\3 | \\4 | $((2 * limit_s)) |/p" "$work/$name.out"
done
echo 'story: done'
