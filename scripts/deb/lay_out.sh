#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# lay_out.sh SOURCE STAGE: puts beside what Meson installed the unit, the user, the scripts and the
# documents, where Debian wants them; and strips programs.
set -euo pipefail
source=$1 stage=$2
put() { install -D -m "$1" "$source/$2" "$stage/$3"; }

put 644 config/systemd/gradwired.service usr/lib/systemd/system/gradwired.service
put 644 config/systemd/gradwire.sysusers usr/lib/sysusers.d/gradwire.conf
put 644 config/systemd/gradwire.tmpfiles usr/lib/tmpfiles.d/gradwire.conf
put 644 config/systemd/60-gradwire-vfio.rules usr/lib/udev/rules.d/60-gradwire-vfio.rules
put 644 config/systemd/gradwired.default etc/default/gradwired
put 644 config/two-hosts-0.toml etc/gradwire/gradwired.toml.example
put 644 config/systemd/mlx5.conf usr/share/doc/gradwire/mlx5.conf
put 644 config/systemd/kernel-ports.conf usr/share/doc/gradwire/kernel-ports.conf
put 644 LICENSE usr/share/doc/gradwire/copyright
for page in "$source"/doc/*.md; do
  put 644 "doc/$(basename "$page")" "usr/share/doc/gradwire/$(basename "$page")"
done
put 755 scripts/setup-host.sh usr/share/gradwire/scripts/setup-host.sh
put 644 scripts/lib/log.sh usr/share/gradwire/scripts/lib/log.sh
for part in "$source"/scripts/host/*.sh; do
  put 644 "scripts/host/$(basename "$part")" "usr/share/gradwire/scripts/host/$(basename "$part")"
done
mkdir -p "$stage/usr/sbin"
ln -s ../share/gradwire/scripts/setup-host.sh "$stage/usr/sbin/gradwire-setup-host"
# The simulator is for developers, static archives for nobody.
rm -f "$stage"/usr/bin/gradwire-sim "$stage"/usr/lib/x86_64-linux-gnu/*.a
for file in "$stage"/usr/bin/* "$stage"/usr/lib/x86_64-linux-gnu/*.so*; do
  [[ -L $file || ! -f $file ]] || strip --strip-unneeded "$file"
done
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
