# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What scripts/compare.sh runs: a function for each row, which has each rank started by `rank` and
# leaves rank 0's JSON in $result. Everything runs within $limit_s and is ended before the next.

limit_s=240
declare -A failures    # row and variant -> how often it failed
started=()             # processes of the row that runs

# end_started: what the row that runs has started, and nothing else.
end_started() {
  local pid
  for pid in "${started[@]}"; do end_process "$pid"; done
  started=()
}

busy_pids=()           # one for each core, with --beside busy
# start_busy: what computes without end, as a training process does; bounded as the row is.
start_busy() {
  local i
  for i in "${every_rank[@]}"; do
    timeout -k 5 $((limit_s + 60)) taskset -c "${core[i]}" "$python" -c 'while True: pass' &
    busy_pids+=($!)
  done
}
end_busy() {
  local pid
  for pid in "${busy_pids[@]}"; do end_process "$pid"; done
  busy_pids=()
}

# run_row ROW VARIANT REPETITION
run_row() {
  local row=$1 variant=$2 key=$1.$2 begin=$SECONDS
  # What failed once is tried once more, at once; what failed twice is not there.
  ((${failures[$key]:-0} < 2)) || return 0
  result=$run_dir/runs/$row.$variant.$3.json
  rm -rf "$run_dir/meet"
  mkdir "$run_dir/meet"
  # A host's rank 0 says what it found, and has no table to say then.
  local status=0 rank_result=$result
  [[ $link != hosts ]] || rank_result=/dev/stdout
  # In a shell that tests a function, errors do not end it: each row says itself what failed.
  local times_before times_after cores_before
  await_cores
  measure_wakes
  cores_before=$cores_ns
  read -ra times_before < <(cpu_times)
  [[ $variant != busy ]] || start_busy
  local watcher=
  if [[ -n $shaped ]]; then
    shaped_watch "${compare_ns[1]}" gwv1 "${result%.json}.received"
    watcher=$!
  fi
  "row_${row//-/_}" || status=$?
  [[ -z $watcher ]] || end_process "$watcher"
  end_started
  end_busy
  read -ra times_after < <(cpu_times)
  [[ $link == hosts ]] || awk -v all=$((times_after[0] - times_before[0])) \
    -v stolen=$((times_after[2] - times_before[2])) \
    'BEGIN { print (all > 0 ? stolen / all : 0) }' >>"$run_dir/runs/stolen.txt"
  [[ $link != hosts ]] || cp "$run_dir/rank-0.out" "$result"
  measure_cores
  printf '%s\n' "$cores_before" "$cores_ns" >"${result%.json}.cores"
  if ((status != 0)) || [[ ! -s $result ]]; then
    rm -f "$result"
    failures[$key]=$((${failures[$key]:-0} + 1))
    local reason
    reason=$(reason_of "$row")
    printf '%s\n' "$reason" >"$run_dir/runs/$row.$variant.unavailable"
    note "repetition $3 of $reps, $row ${variant/plain/}: failed: $reason"
    # At most once: see above.
    run_row "$@"
    return 0
  fi
  note "$(printf 'repetition %d of %d, %-13s %-5s %3d s' "$3" "$reps" "$row" "${variant/plain/}" \
    $((SECONDS - begin)))"
}

# reason_of ROW: what a C++ program died of, or else the last line that one of its ranks complained
# with.
reason_of() {
  local complaints reason
  complaints=$(cat "$run_dir"/rank-[0-9].err 2>/dev/null | grep -avE '^(EAL|TELEMETRY|-+$|$)')
  reason=$(grep -am 1 'what():' <<<"$complaints" || tail -n 1 <<<"$complaints")
  printf '%s' "${reason:-it ended without a word, or took longer than $limit_s s}" | cut -c1-160
}

# rank RANK COMMAND...: in the background, bounded. Keeps what it says in rank-RANK.out and .err.
rank() {
  local rank=$1
  shift
  (at "$rank" timeout -k 5 "$limit_s" "$@") >"$run_dir/rank-$rank.out" \
    2>"$run_dir/rank-$rank.err" </dev/null &
  started+=($!)
}

# finish: waits for what was started. The first that fails ends the others.
finish() {
  local pids=("${started[@]}") ended status=0
  while ((${#pids[@]} > 0)); do
    wait -n -p ended "${pids[@]}" || status=$?
    ((status == 0)) || return "$status"
    local left=() pid
    for pid in "${pids[@]}"; do [[ $pid == "$ended" ]] || left+=("$pid"); done
    pids=("${left[@]}")
    started=("${left[@]}")
  done
}

# perf RANK [EAL_ARGUMENT... --] OPTION...: gradwire-perf for the sizes of this run.
perf_options() {
  local list
  list=$(IFS=, && printf '%s' "${row_plans[*]}")
  local meeting=$run_dir/meet
  # Hosts share no folder.
  [[ $link != hosts ]] || meeting=tcp://${tcp_address[0]}:$((20000 + $$ % 10000))
  printf '%s\n' --rank "$1" --nranks "$nranks" --rendezvous "$meeting" --sizes "$list" --warmup 5 \
    --timeout 60 --collective "$collective"
  (($1 != 0)) || printf '%s\n' --json "${rank_result/#\/dev\/stdout/-}"
}

# row_tcp [OPTION...]
row_tcp() {
  local i options row_plans=("${plans[@]}") pieces=("$@")
  # What each link is fastest with: doc/performance.md.
  [[ $link != veth ]] || pieces+=(--tcp-chunk 128K --tcp-lag 2 --tcp-exchange 128K)
  [[ -z $beside ]] && ((!shared)) || pieces+=(--tcp-wait sleep)
  for i in "${every_rank[@]}"; do
    mapfile -t options < <(perf_options $i)
    rank $i "$gradwire_perf" --transport tcp --tcp-address "${tcp_address[i]}" "${pieces[@]}" \
      "${options[@]}"
  done
  finish
}

row_tls() { row_tcp --tls; }

row_tcp_uring() { row_tcp --tcp-io uring-multishot; }

# RoCEv2 by the NIC that has the host's address.
row_rdma() {
  local i options row_plans=("${plans[@]}")
  for i in "${every_rank[@]}"; do
    mapfile -t options < <(perf_options $i)
    rank $i "$gradwire_perf" --transport rdma --rdma-address "${tcp_address[i]}" "${options[@]}"
  done
  finish
}

# make_key: the file of rows that seal packets, if one is to run.
security_key=
make_key() {
  [[ " ${run_rows[*]} " =~ -(authenticate|encrypt)\  && $link != hosts ]] || return 0
  [[ -x $gradwire_cli ]] || die "$build has no $gradwire_cli, which makes keys: build first."
  security_key=$run_dir/compare.key
  "$gradwire_cli" key make "$security_key" >/dev/null || die "no key could be made."
}

# with_ports TRANSPORT PAYLOAD_BYTES PLAN...: the thread that reduces drives ports of its own.
with_ports() {
  local transport=$1 payload=$2 i options devices port tries row_plans own_cores=(--busy)
  [[ -z $security ]] || own_cores+=(--security "$security" --key-file "$security_key")
  shift 2
  [[ -z $beside ]] && ((!shared)) || own_cores=("${own_cores[@]:1}")
  [[ -z $shaped ]] || own_cores+=(--port-rate "$(shaped_port_rate "$shaped")")
  row_plans=("$@")
  rm -f "$run_dir/link0.sock"
  for i in "${every_rank[@]}"; do
    mapfile -t options < <(perf_options $i)
    mapfile -t devices < <(lane_devices $i)
    port=$(lane_port $i "$mtu")
    rank $i "$gradwire_perf" --lcores "0@${core[i]}" --file-prefix "gwc$$-$i" --no-telemetry \
      --huge-unlink -m 128 "${devices[@]}" -- --transport "$transport" \
      --port "${port%%,*}" --payload "$payload" "${own_cores[@]}" "${options[@]}"
    # A memif's client end needs a server that listens.
    for ((tries = 0; tries < 200 && i == 0; tries++)); do
      [[ $link == memif && ! -S $run_dir/link0.sock && -n $(process_state "${started[0]}") ]] ||
        break
      sleep 0.05
    done
  done
  local status=0
  finish || status=$?
  rm -rf "/run/dpdk/gwc$$"-*
  return "$status"
}

# Payloads of 8 KiB where the MTU has room for them and their headers, else what it carries.
# The cores are its own, as those of all that spins here, but for --beside and ranks that share.
row_gradwire() { with_ports gradwire "$((mtu >= 8400 ? 8192 : 0))" "${plans[@]}"; }

security=              # of the row that runs; empty: packets go in clear
row_gradwire_authenticate() { local security=authenticate && row_gradwire; }
row_gradwire_encrypt() { local security=encrypt && row_gradwire; }

# The driver alone, with the same payloads.
row_bare() { with_ports bare "$((mtu >= 8400 ? 8192 : 0))" "${plans[@]}"; }

# Payloads of 1,408 bytes: those of an MTU of 1500.
row_gradwire_1408() {
  local plan some=()
  for plan in "${plans[@]}"; do
    ((${plan%:*} < 1 << 20)) || some+=("$plan")
  done
  with_ports gradwire 1408 "${some[@]:-${plans[@]}}"
}

row_daemon_authenticate() { local security=authenticate && row_daemon; }
row_daemon_encrypt() { local security=encrypt && row_daemon; }

row_daemon() {
  local i options row_plans=("${plans[@]}") status=0 sealed=()
  [[ -z $security ]] || sealed=(--security "$security")
  for i in "${every_rank[@]}"; do : >"$run_dir/rank-$i.err"; done
  if [[ $link == hosts ]]; then
    for i in "${every_rank[@]}"; do
      mapfile -t options < <(perf_options $i)
      rank $i "$gradwire_perf" --transport daemon "${sealed[@]}" "${options[@]}"
    done
    finish
    return
  fi
  compare_daemons_start || status=$?
  for ((i = 0; i < nranks && status == 0; i++)); do
    mapfile -t options < <(perf_options $i)
    rank $i "$gradwire_perf" --transport daemon --socket "$(daemon_socket $i)" "${sealed[@]}" \
      "${options[@]}"
  done
  ((status != 0)) || finish || status=$?
  end_started
  for i in "${every_rank[@]}"; do
    [[ -z ${daemon_pids[i]:-} ]] || daemon_end $i "${daemon_pids[i]}"
  done
  daemon_pids=()
  return "$status"
}

# A daemon for each rank, one lane each; ended by the row that started them, and by on_exit.
compare_daemons_start() {
  local i devices sealed=()
  [[ -z $security ]] || sealed=(--security.key_file "$security_key" --security.mode "$security")
  rm -f "$run_dir/link0.sock"
  for i in "${every_rank[@]}"; do
    daemon_write_config $i "$(lane_port $i "$mtu")"
    mapfile -t devices < <(lane_devices $i | grep -v '^--no-pci$')
    daemon_lcores[i]="0@${daemon_core[i]},1@${daemon_core[i]}"
    daemon_start $i "${devices[@]}" -- --lanes.polling "$daemon_polling" "${sealed[@]}"
    if ! daemon_wait_ready $i 2>"$run_dir/rank-$i.err"; then
      printf 'daemon %d is not ready: %s\n' $i \
        "$(grep -aE 'error|EAL: .*(fail|Cannot)' "$(daemon_log $i)" | tail -n 1)" \
        >"$run_dir/rank-$i.err"
      return 1
    fi
  done
}

row_gloo() {
  local i port row_plans=("${plans[@]}")
  port=$(free_tcp_port at 0)
  for i in "${every_rank[@]}"; do
    rank $i env OMP_NUM_THREADS=1 ${gloo_device[i]:+GLOO_SOCKET_IFNAME=${gloo_device[i]}} \
      "$python" "$repo_root/scripts/compare/gloo_collective.py" \
      --collective "$collective" --rank $i --nranks "$nranks" \
      --master "${tcp_address[0]}:$port" --json "$rank_result" "${row_plans[@]}"
  done
  finish
}

# build_mpi_program: $mpi_program, or nothing where it cannot be built.
build_mpi_program() {
  mpi_program=$build/compare-mpi_collective
  local source=$repo_root/scripts/compare/mpi_collective.cc
  if [[ -x $mpi_program && $mpi_program -nt $source ]]; then
    to_hosts "$mpi_program"
    return 0
  fi
  mpicxx -O2 -std=c++20 -o "$mpi_program" "$source" >"$run_dir/mpicxx.log" 2>&1 || {
    mpi_program=
    note "Open MPI is unavailable: $(tail -n 1 "$run_dir/mpicxx.log")"
    return 0
  }
  to_hosts "$mpi_program"
}

# mpi ARGUMENT...: all ranks by one mpirun.
mpi() {
  local i where=() extra=() places=(localhost:2 localhost:2)
  : >"$run_dir/rank-1.err"
  if [[ -z $mpi_program ]]; then
    echo "its program could not be built: is libopenmpi-dev installed?" >"$run_dir/rank-0.err"
    return 1
  fi
  if [[ $link != memif ]]; then
    places=("${tcp_address[@]}")
    extra=(--mca oob_tcp_if_include "$tcp_network")
    [[ $link != hosts ]] || extra+=(--mca plm_rsh_agent "$ssh")
  fi
  if [[ $link == veth ]]; then
    # The other namespaces as other hosts: what would go by ssh to 10.79.1.(rank + 1) enters the
    # rank's namespace, under a name of its own.
    printf '#!/bin/bash\ni=$((${1##*.} - 1))\nshift\n%s "hostname gwc$i; $*"\n' \
      "exec ip netns exec ${compare_ns[0]%-*}-\$i unshare --uts sh -c" >"$run_dir/agent"
    chmod +x "$run_dir/agent"
    extra+=(--mca plm_rsh_agent "$run_dir/agent")
  fi
  for i in "${every_rank[@]}"; do
    where+=(-np 1 --host "${places[i]}" taskset -c "${core[i]}" "$mpi_program" "$collective" 5
      "$rank_result"
      "${plans[@]}" :)
  done
  unset 'where[-1]'
  local launcher=()
  [[ $link != veth ]] || launcher=(ip netns exec "${compare_ns[0]}")
  # Spinning ranks: nothing else may want their cores, or they yield them. ob1 and the named
  # transports alone, lest a faster network of the machine takes part.
  "${launcher[@]}" timeout -k 5 "$limit_s" mpirun --allow-run-as-root --bind-to none \
    --mca pml ob1 --mca mpi_yield_when_idle "$shared" "${extra[@]}" "$@" "${where[@]}" \
    >"$run_dir/rank-0.out" 2>"$run_dir/rank-0.err" </dev/null &
  started+=($!)
  finish
}

row_mpi_tcp() { mpi --mca btl tcp,self --mca btl_tcp_if_include "$tcp_network"; }
row_mpi_tcp_ring() {
  mpi --mca btl tcp,self --mca btl_tcp_if_include "$tcp_network" \
    --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4
}
row_mpi_shm() { mpi --mca btl vader,self; }

# write_meta FILE: what the report says about this run.
write_meta() {
  local polling=$daemon_polling daemon_shares=yes changed
  # A tree that was copied to a host has no git.
  changed=$({ git -C "$repo_root" status --porcelain --untracked-files=no 2>/dev/null || true; } |
    wc -l)
  [[ $daemon_polling == adaptive ]] || daemon_shares=no
  "$python" - "$1" <<PYTHON
import json, os, sys
json.dump({
    "link": "$link", "collective": "$collective", "mtu": $mtu,
    "reps": $reps, "rate_gbit": ${rate:-None}, "nranks": $nranks,
    "shaped_gbit": ${shaped:-None}, "blast_gbit": ${blast:-None},
    "shared": $shared == 1,
    "cores": "${core[*]}", "daemon_cores": "${daemon_core[*]}",
    "daemon_shares": "$daemon_shares" == "yes",
    "daemon_polling": "$polling", "beside": "$beside", "quick": $quick == 1,
    "commit": "$(git -C "$repo_root" rev-parse --short HEAD 2>/dev/null || echo unknown)",
    "changed": "$changed" != "0",
    "versions": {
        "kernel": os.uname().release,
        "Open MPI": "$(mpirun --version 2>/dev/null | awk 'NR == 1 {print $NF}')",
        "DPDK": "$(pkg-config --modversion libdpdk 2>/dev/null)",
        "torch": "$(dpkg-query -W -f '${Version}' python3-torch 2>/dev/null)",
    },
    "rows": "${run_rows[*]}".split(),
}, open(sys.argv[1], "w"), indent=1)
PYTHON
}
