#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The bench's own lanes, without a daemon: two processes over memif, right at awkward sizes, on
# every datatype, with one lane and with two, with payloads of several sizes.
. "$(dirname "$0")/../_init.sh"

[[ -x $gradwire_perf ]] || skip "there is no bench at $gradwire_perf: build first"
need_root
free_hugepages=$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)
((free_hugepages >= 300)) || skip "$free_hugepages hugepages are free, 300 are needed"

pids=()
end_ranks() {
  local pid
  for pid in "${pids[@]}"; do end_process "$pid"; done
}
on_exit end_ranks

# pair LANES OPTION...: two ranks at once, with as many links as $rails, by $transport; fails if one
# does.
rails=1
transport=gradwire
pair_epoch=0
pair() {
  local lanes=$1 rank rail role lane lcores tries status=0 vdevs ports
  shift
  pair_epoch=$((pair_epoch + 1))
  local cpus
  cpus=$(allowed_cpus)
  local link="socket=$run_dir/pair.sock,socket-abstract=no,bsize=9216,rsize=7"
  lcores="0@($cpus)"
  for ((lane = 1; lane < lanes; lane++)); do lcores+=",$lane@($cpus)"; done
  for rank in 0 1; do
    role=server
    ((rank == 0)) || role=client
    vdevs=() ports=()
    for ((rail = 0; rail < rails; rail++)); do
      vdevs+=(--vdev "net_memif$rail,role=$role,id=$rail,$link")
      ports+=(--port "net_memif$rail=10.9.$rail.$((rank + 1))/24")
    done
    [[ $transport != gradwire ]] || ports+=(--lanes "$lanes")
    "$gradwire_perf" --lcores "$lcores" --no-pci --no-telemetry --log-level=error -m 64 \
      --file-prefix "gwp$$-$rank" \
      "${vdevs[@]}" \
      -- --transport "$transport" --rank "$rank" --nranks 2 --rendezvous "$run_dir/meet" \
      --epoch "$pair_epoch" "${ports[@]}" \
      --timeout "$((30 * timeout_multiplier))" "$@" \
      >"$run_dir/pair-$rank.out" 2>"$run_dir/pair-$rank.err" &
    pids+=($!)
    # The memif client has to find its server.
    for ((tries = 0; rank == 0 && tries < 400; tries++)); do
      [[ ! -S $run_dir/pair.sock ]] || break
      sleep 0.05
    done
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  pids=()
  rm -f "$run_dir/pair.sock"
  ((status == 0)) || tail -n 5 "$run_dir"/pair-*.err
  return "$status"
}

awkward=0,4,60,64,68,8188,8192,8196,65540,262140,4000004
expect "one lane, 8 KiB payloads" pair 1 --payload 8192 --sizes "$awkward" -n 3 -w 1
expect_text "the whole table is there" '^ *4000004 .* 0 ' "$run_dir/pair-0.out"
expect "one lane, 1,408 B payloads, a window of 8" \
  pair 1 --payload 1408 --window 8 --transit 8 --sizes "$awkward" -n 3 -w 1
expect "two lanes" pair 2 --sizes "$awkward" -n 3 -w 1
rails=2
expect "two lanes, a link for each" pair 2 --sizes "$awkward" -n 3 -w 1
rails=1
expect "results past the cache, in place" pair 1 --sizes 16M -n 2 -w 1 --in-place
for what in "fp32 avg" "fp64 avg" "fp16 avg" "bf16 sum" "int8 max" "int32 prod" "int64 min" \
  "uint8 max"; do
  read -r datatype redop <<<"$what"
  expect "$datatype $redop" \
    pair 1 --sizes 8,1000,200008 -n 1 -w 0 -d "$datatype" -o "$redop"
done

transport=bare
expect "the driver alone" pair 1 --payload 8192 --sizes "$awkward,16M" -n 3 -w 1
expect "the driver alone, 1,408 B payloads, in place, avg" \
  pair 1 --payload 1408 --window 8 --sizes "$awkward" -n 3 -w 1 --in-place -o avg

step "an unknown device is named, with those that there are"
if "$gradwire_perf" --lcores "0@($(allowed_cpus))" --no-pci --no-telemetry --log-level=error -m 64 \
  --file-prefix "gwp$$-x" -- --transport gradwire --nranks 2 --rank 0 --rendezvous "$run_dir/meet" \
  --port net_memif7=10.9.0.1/24 --sizes 64 >"$run_dir/x.out" 2>&1; then
  fail "a port that is not there was taken"
fi
expect_text "it says so" 'net_memif7' "$run_dir/x.out"
