#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The guest's first process: what a booted system has, then one story, then off. The story prints to
# the second serial port, which the host reads.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ln -s /proc/self/fd /dev/fd
mkdir -p /dev/hugepages /dev/shm /run
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
for word in $(cat /proc/cmdline); do
  case $word in
    gradwire.story=*) story=${word#*=} ;;
    gradwire.init=*) exec "${word#*=}" </dev/console >/dev/console 2>&1 ;;
  esac
done
echo 1 >/proc/sys/kernel/printk
ip link set lo up
for module in virtio_pci virtio_net e1000e; do modprobe "$module"; done
sleep 1
stty -F /dev/ttyS1 raw 2>/dev/null
# A session of its own, so that no terminal is in the way.
setsid bash "/opt/gradwire/vm/$story.sh" </dev/null >/dev/ttyS1 2>&1
sync
sleep 1
echo o >/proc/sysrq-trigger
sleep 60
