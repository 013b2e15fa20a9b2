#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# `pip install` of the package's folder into a bare environment: what a user does. The library in
# it needs libc alone, and the check finds the daemon, the memory and a right sum.
. "$(dirname "$0")/_torch.sh"

# A copy: a build of meson-python's leaves nothing in the sources, and reads ../lib.
mkdir "$run_dir/src"
cp -r "$repo_root/python" "$repo_root/lib" "$repo_root/meson.build" "$run_dir/src/"
find "$run_dir/src" -name __pycache__ -prune -exec rm -r {} +
python3 -m venv "$run_dir/venv" || skip "python3 -m venv makes no environment here"
step "pip install ./python"
if ! timeout $((420 * timeout_multiplier)) "$run_dir/venv/bin/pip" install "$run_dir/src/python" \
  >"$run_dir/pip.out" 2>&1; then
  grep -qE 'No matching distribution|Temporary failure|Connection' "$run_dir/pip.out" &&
    skip "pip gets no packages: there is no network"
  tail -n 40 "$run_dir/pip.out"
  fail "pip install"
fi
library=$(find "$run_dir/venv" -name 'libgradwire.so*' -path '*gradwire/*' | head -n 1)
[[ -n $library ]] || fail "the wheel holds no library"
needed=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
step "the library needs: $needed"
for each in $needed; do
  [[ $each =~ ^(libc|libm|libpthread|ld-linux-x86-64)\.so ]] || fail "the library needs $each"
done
expect "it and NCCL's plug-in run in images with glibc 2.35" "$python" \
  "$repo_root/test/nccl/symbols_test.py" "$(dirname "$library")/libnccl-net-gradwire.so" "$library"
# Torch alone is the other environment's: the package is the wheel's.
memif_ring_start 1
unset GRADWIRE_LIBRARY
torch_packages=$("$torch_python" -c 'import os, torch
print(os.path.dirname(os.path.dirname(torch.__file__)))')
GRADWIRE_SOCKET=$(daemon_socket 0) PYTHONPATH= \
  expect "the check ends well" "$run_dir/venv/bin/python" -m gradwire.check >"$run_dir/check.out"
expect_text "it sums" '^all-reduce: 1 MB with itself, right, [0-9]+ us$' "$run_dir/check.out"
cat >"$run_dir/found.py" <<'PY'
import torch.distributed as dist
dist.init_process_group("gradwire", init_method="tcp://127.0.0.1:%s" % __import__("sys").argv[1],
                        rank=0, world_size=1)
import gradwire
print(dist.get_backend(), gradwire.__file__)
dist.destroy_process_group()
PY
GRADWIRE_SOCKET=$(daemon_socket 0) PYTHONPATH=$torch_packages \
  expect "torch finds the backend by the wheel's entry point" "$run_dir/venv/bin/python" \
  "$run_dir/found.py" "$(free_tcp_port)" >"$run_dir/found.out"
expect_text "which is the wheel's" "^gradwire $run_dir/venv/" "$run_dir/found.out"
