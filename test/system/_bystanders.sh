# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# For stories in which one client dies and another group of the same two daemons goes on.

# kill_beside_bystanders SECONDS [OPTION...]: a group of bystanders sums for so long, by options of
# until_error.py; meanwhile rank 1 of another group is killed, its rank 0 gets an error that names
# it, and the bystanders get none.
kill_beside_bystanders() {
  local rank name seconds=$1
  shift
  background bystanders "$python" "$programs/until_error.py" "$@" \
    --seconds "$seconds" --out "$run_dir/errors" $(sockets 2)
  mkdir "$run_dir/meet"
  for rank in 0 1; do
    background "victim$rank" "$python" "$programs/until_error.py" "$@" \
      --out "$run_dir/errors$rank" --rank "$rank" --meet "$run_dir/meet" $(sockets 2)
  done
  for name in bystanders victim0 victim1; do
    eventually 30 grep -q running "$run_dir/$name.out" || fail "$name: no sum got through"
  done
  kill -KILL "${background[victim1]}"
  expect_ended "the other rank's client gets an error" victim0
  expect_text "which names rank 1" 'rank 1' "$run_dir/errors0"
  expect_ended "the bystanders finish" bystanders
  [[ ! -s $run_dir/errors ]] || fail "the bystanders got an error"
}
