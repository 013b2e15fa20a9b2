#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two daemons, each with an emulated GPU, on a memif link. The GPU reduces every chunk, by each way
# that payloads can take and both kinds of kernels: the bits are the reference's, and the counters
# say that the CPU reduced none. Small ops of three go off the ring, also if one of them reduces on
# the CPU. A GPU that is late is waited for; one that fails aborts the group
# with a reason, and the daemons go on.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_bystanders.sh"

gpu_emu=${GRADWIRE_GPU_EMU:-$build_folder/drivers/gpu/emu/librte_gpu_emu.so}
[[ -f $gpu_emu ]] || skip "this build has no drivers: DPDK's driver headers were not to be had"
# By name alone: the EAL refuses a path that everybody may write to part of, as a clone's in /tmp.
export LD_LIBRARY_PATH=${gpu_emu%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
gpu_emu=${gpu_emu##*/}

# gpu_ring DEVARGS FLAG...: two daemons with a GPU each.
gpu_ring() {
  daemon_eal=(-d "$gpu_emu" --vdev "gpu_emu0${1:+,$1}")
  shift
  # The chunks are counted as the ring has them.
  memif_ring_start 2 --gpu.device gpu_emu0 --transport.direct_kib 0 "$@"
}

stop_ring() {
  local i
  for i in 0 1; do expect_stop "$i" TERM; done
}

# sums PATH
sums() {
  expect "sums on the GPU, $1" "$python" "$programs/gpu_sums.py" --backend emu \
    --path "$1" $(sockets 2)
}

gpu_ring '' --gpu.staging mapped --gpu.kernel launch
expect_text "the path is reported at start" 'path of payloads: mapped .*kernels: launch' \
  "$(daemon_log 0)"
sums mapped
stop_ring

gpu_ring '' --gpu.staging copy --gpu.kernel persistent
sums "copy by CPU mapping"
stop_ring

gpu_ring 'cpu_map=0,reorder=4,delay_us=200' --gpu.staging copy
expect_text "why the copy engine is taken is reported" 'copy by copy engine .*no GDRCopy' \
  "$(daemon_log 0)"
sums "copy by copy engine"
stop_ring

gpu_ring 'cpu_map=0' --gpu.staging auto
sums mapped
expect_text "what auto could not have is a warning" \
  'falls back to mapped: gpudirect: port net_memif0: driver net_memif cannot .*: .*no GDRCopy' \
  "$(daemon_log 0)"
"$gradwire_cli" status --socket "$(daemon_socket 0)" >"$run_dir/status" 2>&1
expect_text "and the status says the path and why" 'path of payloads: mapped .*no GDRCopy' \
  "$run_dir/status"
stop_ring

gpu_ring '' --gpu.staging mapped --gpu.client_memory gpu
note "gradients are in GPU memory that the daemon made"
sums mapped
background holder "$python" -c '
import sys, time, gradwire
client = gradwire.Client(sys.argv[1])
memory = client.allocate(1000)
print("allocated", flush=True)
time.sleep(60)' "$(daemon_socket 0)"
eventually 20 grep -q allocated "$run_dir/holder.out" || fail "no memory was to be had"
"$python" "$programs/status.py" "$(daemon_socket 0)" >"$run_dir/status"
expect_text "the status says so" '"on_gpu": true' "$run_dir/status"
end_process "${background[holder]}"
stop_ring
for i in 0 1; do
  expect_text "daemon $i's GPU memory of clients is freed, the dead one's too" \
    'closed: 0 allocations and 0 registrations left' "$(daemon_log "$i")"
done

step "two lanes, whose persistent kernels take turns on the emulated GPU's one thread"
daemon_lanes=2 daemon_memory_mib=256
gpu_ring 'delay_us=20' --gpu.staging copy --gpu.kernel persistent
sums "copy by CPU mapping"
stop_ring
daemon_lanes=1 daemon_memory_mib=160

step "ops off the ring: three daemons with a GPU each, by each way"
# off_ring DEVARGS BACKENDS FLAG...: three daemons, those of backend emu with a GPU.
off_ring() {
  local eal=(-d "$gpu_emu" --vdev "gpu_emu0${1:+,$1}") backends=$2 i
  shift 2
  for i in 0 1 2; do
    if [[ $(cut -d, -f$((i + 1)) <<<"$backends") == emu ]]; then
      daemon_eal=("${eal[@]}")
      memif_rank_start "$i" 3 --gpu.device gpu_emu0 "$@"
    else
      daemon_eal=()
      memif_rank_start "$i" 3
    fi
  done
  for i in 0 1 2; do daemon_wait_ready "$i" || fail "daemon $i does not start"; done
  expect "direct and two-step ops of $backends $*" "$python" \
    "$programs/gpu_direct.py" --backends "$backends" $(sockets 3)
}
stop_three() {
  local i
  for i in 0 1 2; do expect_stop "$i" TERM; done
}
off_ring 'reorder=4,delay_us=50' emu,emu,emu --gpu.staging mapped
# shellcheck disable=SC2046
expect "every collective, off the ring and on it" "$python" \
  "$programs/collectives.py" --datatypes bf16 $(sockets 3)
stop_three
for i in 0 1 2; do
  expect_text "daemon $i's scratch memory is given back" \
    'closed: 0 allocations and 0 registrations left' "$(daemon_log "$i")"
done
off_ring '' emu,cpu,emu --gpu.staging copy --gpu.kernel persistent
# shellcheck disable=SC2046
expect "sends, receives and their like" "$python" "$programs/transfers.py" \
  --places 2,0,1 $(sockets 3)
stop_three
off_ring 'cpu_map=0' emu,emu,cpu --gpu.staging copy --gpu.client_memory gpu
# shellcheck disable=SC2046
expect "which gradients in GPU memory have not, by name" "$python" \
  "$programs/transfers.py" --refused "rank 0 .*gradient memory .* a GPU's" $(sockets 3)
stop_three

step "a client is killed while the GPU has its chunks, and another group sums"
gpu_ring 'delay_us=300' --gpu.staging mapped
kill_beside_bystanders 4
for i in 0 1; do
  eventually 10 "$python" "$programs/status.py" "$(daemon_socket "$i")" \
    --expect-no-clients || fail "daemon $i still has a client, a group or memory"
done
stop_ring
for i in 0 1; do
  expect_text "daemon $i's GPU is left with nothing allocated and nothing registered" \
    'closed: 0 allocations and 0 registrations left' "$(daemon_log "$i")"
done

step "a GPU that fails every 5th batch"
gpu_ring 'fail_every=5' --gpu.staging mapped
if "$python" "$programs/sums.py" --sizes 1000003 $(sockets 2) \
  >"$run_dir/failing.out" 2>&1; then
  fail "the sum succeeded on a GPU that fails"
fi
expect_text "the error says what failed" 'reduc' "$run_dir/failing.out"
stop_ring

step "a port whose driver passes pointers puts payloads into GPU memory"
daemon_eal=(-d "$gpu_emu" --vdev gpu_emu0,guard=1)
daemon_write_config 0 net_ring0=10.77.0.1/24,9000
daemon_start 0 --vdev net_ring0 -- --gpu.device gpu_emu0 --gpu.staging auto
daemon_wait_ready 0 || fail "no daemon with gpudirect"
expect_text "the path is reported" 'path of payloads: gpudirect .every port receives' \
  "$(daemon_log 0)"
expect_text "and for each port" 'net_ring0: .*payloads in GPU memory' "$(daemon_log 0)"
"$gradwire_cli" status --socket "$(daemon_socket 0)" >"$run_dir/status" 2>&1
expect_text "the status says it" 'path of payloads: gpudirect' "$run_dir/status"
expect_stop 0 TERM
expect_text "its mempool is given back before the GPU ends" \
  'closed: 0 allocations and 0 registrations left' "$(daemon_log 0)"

step "auto goes on where GPU memory has no room for payloads"
daemon_eal=(-d "$gpu_emu" --vdev gpu_emu0,memory_mib=8)
daemon_start 0 --vdev net_ring0 -- --gpu.device gpu_emu0 --gpu.staging auto
eventually 20 grep -q 'falls back to copy' "$(daemon_log 0)" || daemon_wait_ready 0
expect_text "with a warning that says so" 'falls back to .*gpudirect: .*could not be allocated' \
  "$(daemon_log 0)"
daemon_stop 0 TERM

step "a GPU that is not there, and a port that cannot give it payloads"
daemon_eal=(-d "$gpu_emu" --vdev gpu_emu0)
ports=()
vdevs=()
memif_end 0 0 0 0
daemon_write_config 0 "${ports[@]}"
daemon_start 0 "${vdevs[@]}" -- --gpu.device gpu_cuda0
eventually 20 daemon_gone 0 || fail "a daemon without its GPU runs"
expect_text "the error names it and what there is" 'gpu_cuda0.*gpu_emu0' "$(daemon_log 0)"
daemon_start 0 "${vdevs[@]}" -- --gpu.device gpu_emu0 --gpu.staging gpudirect
eventually 20 daemon_gone 0 || fail "a daemon runs with gpudirect on memif"
expect_text "the error says which port, and why" \
  'gpu.staging = gpudirect: port net_memif0: driver net_memif cannot .*: .*choose copy or mapped' \
  "$(daemon_log 0)"
