# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Current PyTorch in a virtual environment of its own: Debian's is older than the backend needs.
# Needs setup.sh.

# torch_venv FOLDER: makes it, unless it is there. It takes minutes and some 5 GB.
torch_venv() {
  [[ ! -x $1/bin/python ]] || ! "$1/bin/python" -c 'import torch, numpy' 2>/dev/null || return 0
  step "installing current PyTorch into $1: minutes"
  python3 -m venv "$1" || die "python3 -m venv failed: install python3-venv"
  "$1/bin/pip" install --quiet torch numpy expecttest ||
    die "pip could not install torch: is there a network?"
  # Two of the examples need them; their story leaves out what is not there.
  "$1/bin/pip" install --quiet accelerate lightning ||
    note "pip could not install Accelerate and Lightning: their examples do not run"
}
