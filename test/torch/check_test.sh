#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# `python -m gradwire.check` in five lines: what this host has. Without a daemon it says so, and
# fails.
. "$(dirname "$0")/_torch.sh"

memif_ring_start 1
export GRADWIRE_SOCKET
GRADWIRE_SOCKET=$(daemon_socket 0)
expect "it ends well" "$torch_python" -m gradwire.check >"$run_dir/check.out"
sed 's/^/       /' "$run_dir/check.out"
(($(grep -cE '^(library|daemon|memory|all-reduce|torch): ' "$run_dir/check.out") == 5)) ||
  fail "there are not five lines"
expect_text "the sum is right" '^all-reduce: 1 MB with itself, right, [0-9]+ us$' \
  "$run_dir/check.out"
GRADWIRE_SOCKET=$run_dir/nobody.sock
step "without a daemon it fails"
! "$torch_python" -m gradwire.check >"$run_dir/nobody.out" || fail "it ended well without a daemon"
expect_text "and says which socket" '^daemon: FAILED: .*nobody.sock' "$run_dir/nobody.out"
