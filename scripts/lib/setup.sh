# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What every script sources first: strict mode, the tree's root, and the functions of this folder.

set -euo pipefail
repo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Debian's own Python and Meson: another python3 ahead in PATH has no torch.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
python=/usr/bin/python3

. "$repo_root/scripts/lib/log.sh"
. "$repo_root/scripts/lib/cleanup.sh"
. "$repo_root/scripts/lib/packages.sh"
. "$repo_root/scripts/lib/dpdk_headers.sh"
. "$repo_root/scripts/lib/hugepages.sh"
. "$repo_root/scripts/lib/build.sh"
