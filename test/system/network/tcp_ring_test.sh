#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The bench's ring over the kernel's TCP: right at awkward sizes, with one to five ranks, over IPv4
# and IPv6, busy and sleeping, in clear and by TLS, and it ends when a rank is gone.
. "$(dirname "$0")/../_init.sh"

[[ -x $gradwire_perf ]] || skip "there is no bench at $gradwire_perf: build first"

# Those of the ring that runs now: numbers of processes that have ended are soon another's.
pids=()
end_ring() {
  local pid
  for pid in "${pids[@]}"; do end_process "$pid"; done
}
on_exit end_ring

# ring RANKS OPTION...: all of them at once; fails if one does.
ring_epoch=0
meeting=$run_dir/meet
ring() {
  local ranks=$1 rank pid status=0
  shift
  ring_epoch=$((ring_epoch + 1))
  for ((rank = 0; rank < ranks; rank++)); do
    "$gradwire_perf" --transport tcp --rank "$rank" --nranks "$ranks" --rendezvous "$meeting" \
      --epoch "$ring_epoch" --timeout "$((20 * timeout_multiplier))" "$@" \
      >"$run_dir/ring-$rank.out" 2>"$run_dir/ring-$rank.err" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  pids=()
  ((status == 0)) || cat "$run_dir"/ring-*.err
  return "$status"
}

awkward=0,4,60,64,68,4096,32764,32768,65540,262140,1000004
for ranks in 1 2 3 5; do
  expect "$ranks ranks, awkward sizes" \
    ring "$ranks" --sizes "$awkward" -n 3 -w 1 --tcp-wait sleep
  expect_text "the whole table is there" '^ *1000004 .* 0 ' "$run_dir/ring-0.out"
done
for datatype in fp32 fp64 fp16 bf16 int8 int32 int64 uint8; do
  redops="sum avg min max prod"
  [[ $datatype == *int* ]] && redops+=" band bor bxor"
  for redop in $redops; do
    expect "3 ranks, $datatype $redop, in place" ring 3 --sizes 8,1000,200008 -n 2 -w 1 \
      -d "$datatype" -o "$redop" --in-place --tcp-wait sleep --tcp-chunk 4096 --tcp-lag 1
  done
done
expect "2 ranks that spin" ring 2 --sizes 64,8M -n 3 -w 1
expect "small socket buffers" ring 3 --sizes 1000004 -n 2 --tcp-buffer 4K --tcp-wait sleep
meeting=tcp://127.0.0.1:$((20000 + $$ % 10000))
expect "rank 0 as the meeting place" ring 3 --sizes 4,1000 -n 2 --tcp-wait sleep
meeting=$run_dir/meet
expect "without exchange" ring 2 --sizes 4,1000 -n 2 --tcp-exchange 0 --tcp-wait sleep
expect "MSG_ZEROCOPY" ring 3 --sizes 64,4000004 -n 2 --tcp-zerocopy --tcp-wait sleep
for ranks in 2 3 5; do
  expect "$ranks ranks, TLS, awkward sizes" \
    ring "$ranks" --sizes "$awkward" -n 3 -w 1 --tcp-wait sleep --tls
done
expect_text "it says who seals" \
  '^# TLSv1.3, TLS_AES_128_GCM_SHA256, sealed by (OpenSSL|the kernel), opened by' \
  "$run_dir/ring-0.out"
expect "2 ranks that spin, TLS, in place" ring 2 --sizes 64,8M -n 3 -w 1 --in-place --tls
expect "small socket buffers, TLS" \
  ring 3 --sizes 1000004 -n 2 --tcp-buffer 4K --tcp-wait sleep --tls
# By io_uring, if the bench was built with it and the kernel lets it: the same bits and ends.
uring=
for io in uring uring-multishot; do
  if ! ring 2 --sizes 64 -n 1 --tcp-io "$io" 2>"$run_dir/uring.err"; then
    grep -qE 'built without liburing|the kernel refuses' "$run_dir/uring.err" ||
      fail "--tcp-io $io fails for another reason than a kernel or a build without it: \
$(cat "$run_dir/uring.err")"
    note "--tcp-io $io is not tested: $(tail -n 1 "$run_dir/uring.err")"
    continue
  fi
  uring+=" $io"
  for ranks in 2 3 5; do
    expect "$ranks ranks, $io, awkward sizes" \
      ring "$ranks" --sizes "$awkward" -n 3 -w 1 --tcp-wait sleep --tcp-io "$io"
  done
  expect "$io, small socket buffers" \
    ring 3 --sizes 1000004 -n 2 --tcp-buffer 4K --tcp-wait sleep --tcp-io "$io"
  expect "$io, in place, 2 ranks that spin" \
    ring 2 --sizes 64,8M -n 3 -w 1 --in-place --tcp-io "$io"
  expect "$io, zero-copy sends from registered memory" \
    ring 3 --sizes 64,4000004 -n 2 --tcp-zerocopy --tcp-wait sleep --tcp-io "$io"
done
if [[ -e /proc/net/if_inet6 ]] && grep -q '^0*1 ' /proc/net/if_inet6; then
  expect "IPv6" ring 2 --sizes 1000004 -n 2 --tcp-address ::1 --tcp-wait sleep
fi

for io in poll tls $uring; do
  how=(--tcp-io "$io")
  [[ $io != tls ]] || how=(--tls)
  step "a rank that is killed, ${how[*]}: the others say so and end"
  mkdir "$run_dir/killed-$io"
  for rank in 0 1 2; do
    "$gradwire_perf" --transport tcp --rank $rank --nranks 3 --rendezvous "$run_dir/killed-$io" \
      --sizes 4M -n 1000000 --tcp-wait sleep "${how[@]}" --timeout 5 \
      >"$run_dir/killed-$rank.out" 2>&1 &
    pids+=($!)
  done
  sleep 1
  kill -KILL "${pids[1]}"
  wait "${pids[1]}" || true
  for rank in 0 2; do
    status=0
    wait "${pids[rank]}" || status=$?
    ((status == 1)) || fail "rank $rank ended with $status, 1 is right"
    expect_text "rank $rank names a neighbor" '(rank 1|rank 0|rank 2)' "$run_dir/killed-$rank.out"
  done
  pids=()
done
