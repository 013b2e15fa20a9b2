#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# `python -m gradwire.torch.build`: what is missing is named, what it builds is used by the next
# process, and nothing else that lies there is. DDP's buckets then lie in gradient memory, and give
# Gloo's bits; so they do without the extension. Torch's Flight Recorder knows when ops end.
. "$(dirname "$0")/_torch.sh"

# Little gradient memory: a part of the test takes all that a client may have.
memif_ring_start 2 "${torch_daemon_flags[@]}" --limits.client_memory_mib 192
export GRADWIRE_SOCKET XDG_CACHE_HOME=$run_dir/cache
GRADWIRE_SOCKET=$(daemon_socket 0)
files=$repo_root/test/torch/extension/files.py

"$torch_python" "$files" missing >"$run_dir/missing.out" 2>&1 ||
  { cat "$run_dir/missing.out" && fail "what is missing"; }
if grep -E '^MISSING: (compiler|torch|Python)' "$run_dir/missing.out"; then
  skip "it cannot be built here"
fi
step "what is missing is named"
# What lies in its place now is no library, and is replaced.
expect "it is built" "$torch_python" -m gradwire.torch.build >"$run_dir/build.out"
extension=$(sed -n 's/^built in [0-9]* s: //p' "$run_dir/build.out")
[[ $extension == "$XDG_CACHE_HOME"/gradwire/torch-* && -f $extension ]] || fail "it lies elsewhere"
(($(find "$XDG_CACHE_HOME/gradwire" -type f | wc -l) == 1)) || fail "the build left files"
expect "the next process uses it, and no other file" "$torch_python" "$files" there \
  "$(free_tcp_port)"
unset GRADWIRE_SOCKET
buckets=$repo_root/test/torch/extension/buckets.py
mkdir "$run_dir/weights"
job "DDP on Gloo" 1 1 -- "$buckets" gloo "$run_dir/weights" plain
job "DDP with the extension" 1 1 -- "$buckets" gradwire "$run_dir/weights" lent
recorded=$repo_root/test/torch/extension/recorded.py
job "Flight Recorder with it" 1 1 -- "$recorded" with
export GRADWIRE_TORCH_EXTENSION=off
job "Flight Recorder without it" 1 1 -- "$recorded" without
job "DDP without it" 1 1 -- "$buckets" gradwire "$run_dir/weights" plain
