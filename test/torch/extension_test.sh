#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# `python -m gradwire.torch.build`: what is missing is named, what it builds is used by the next
# process, and nothing else that lies there is.
. "$(dirname "$0")/_torch.sh"

memif_ring_start 1
export GRADWIRE_SOCKET XDG_CACHE_HOME=$run_dir/cache
GRADWIRE_SOCKET=$(daemon_socket 0)
files=$repo_root/test/torch/extension/files.py

"$torch_python" "$files" missing >"$run_dir/missing.out" 2>&1 ||
  { cat "$run_dir/missing.out" && fail "what is missing"; }
# What lies in its place now is no library, and is replaced.
if grep -E '^MISSING: (compiler|torch|Python)' "$run_dir/missing.out"; then
  skip "it cannot be built here"
fi
step "what is missing is named"
expect "it is built" "$torch_python" -m gradwire.torch.build >"$run_dir/build.out"
extension=$(sed -n 's/^built in [0-9]* s: //p' "$run_dir/build.out")
[[ $extension == "$XDG_CACHE_HOME"/gradwire/torch-* && -f $extension ]] || fail "it lies elsewhere"
(($(find "$XDG_CACHE_HOME/gradwire" -type f | wc -l) == 1)) || fail "the build left files"
expect "the next process uses it, and no other file" "$torch_python" "$files" there \
  "$(free_tcp_port)"
