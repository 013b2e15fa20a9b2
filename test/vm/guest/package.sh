# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The Debian package under systemd: installed, started on a NIC by vfio as a user without
# privileges, restarted by the watchdog when it hangs, upgraded, removed.
. /opt/gradwire/vm/story.sh
unset LD_LIBRARY_PATH

old=$(ls /opt/gradwire/gradwire_*-1_amd64.deb)
new=$(ls /opt/gradwire/gradwire_*-2_amd64.deb)
nic=0000:00:11.0
unit() { systemctl show -p "$1" --value gradwired.service; }
eventually() {
  local tries=$1
  shift
  while ((tries-- > 0)); do
    "$@" && return 0
    sleep 1
  done
  return 1
}
active() { [[ $(unit ActiveState) == active ]]; }
restarted() { (($(unit NRestarts) > 0)) && active; }

say "systemd $(systemctl --version | head -n 1)"
find / -xdev \( -path /proc -o -path /sys -o -path /opt -o -path /tmp -o -path /run \) -prune -o \
  -iname '*gradwire*' -print >"$work/before"
modprobe e1000e
eventually 30 test -e "/sys/bus/pci/devices/$nic/net" || fail "no interface"
"$setup_host" --hugepages 200 --memlock unlimited --bind $nic >"$work/setup.out" 2>&1 ||
  fail "setup-host.sh: $(cat "$work/setup.out")"

dpkg -i "$old" >"$work/install.out" 2>&1 || fail "dpkg -i: $(cat "$work/install.out")"
[[ $(unit UnitFileState) == enabled ]] || fail "the service is not enabled"
[[ $(unit ActiveState) == inactive ]] || fail "it is $(unit ActiveState) without a configuration"
say "installed: enabled, and waiting for a configuration"

cat >/etc/gradwire/gradwired.toml <<TEXT
[[port]]
device = "$nic"
ip = "10.9.2.1/24"
[lanes]
count = 1
TEXT
echo 'GRADWIRED_EAL="--lcores 0@0,1@1 -a '$nic' -m 160 --no-telemetry"' >/etc/default/gradwired
systemctl start gradwired.service || fail "it does not start: $(journalctl -u gradwired -n 30)"
active || fail "it is $(unit ActiveState)"
pid=$(unit MainPID)
user=$(stat -c %U "/proc/$pid")
capabilities=$(awk '/^CapEff/ {print $2}' "/proc/$pid/status")
[[ $user == gradwire && $capabilities == 0000000000000000 ]] ||
  fail "it runs as $user with capabilities $capabilities"
/usr/bin/gradwire status >"$work/status.out" 2>&1 || fail "no status: $(cat "$work/status.out")"
say "started by systemd (Type=$(unit Type)) as $user, capabilities $capabilities"
systemctl status --no-pager -n 0 gradwired.service | grep -E '(Active|Status):'

kill -STOP "$pid"
eventually 60 restarted ||
  fail "the watchdog has not restarted it: $(journalctl -u gradwired -n 30)"
[[ $(unit MainPID) != "$pid" ]] || fail "it is the same process"
say "a daemon that hangs is killed by the watchdog, and started again"

began=$SECONDS
systemctl stop gradwired.service
(($? == 0 && SECONDS - began < 20)) && [[ $(unit Result) == success ]] ||
  fail "stopping took $((SECONDS - began)) s: $(unit Result), $(journalctl -u gradwired -n 30)"
systemctl start gradwired.service || fail "it does not start again: $(unit Result)"
say "stopped and started again in $((SECONDS - began)) s"

pid=$(unit MainPID)
dpkg -i "$new" >"$work/upgrade.out" 2>&1 || fail "upgrade: $(cat "$work/upgrade.out")"
eventually 30 active || fail "it is $(unit ActiveState) after the upgrade"
[[ $(unit MainPID) != "$pid" ]] || fail "the upgrade has not restarted it"
grep -q "$nic" /etc/default/gradwired || fail "the upgrade overwrote /etc/default/gradwired"
say "upgraded: $(dpkg-query -W -f '${Version}' gradwire), restarted, configuration kept"

dpkg -r gradwire >"$work/remove.out" 2>&1 || fail "remove: $(cat "$work/remove.out")"
[[ ! -e /usr/bin/gradwired && ! -d /proc/$(unit MainPID)/fd ]] || fail "something of it still runs"
pgrep gradwired >/dev/null && fail "gradwired runs after its removal"
[[ -e /etc/default/gradwired ]] || fail "removal took the configuration"
dpkg -P gradwire >"$work/purge.out" 2>&1 || fail "purge: $(cat "$work/purge.out")"
rm -f /etc/gradwire/gradwired.toml
rmdir /etc/gradwire 2>/dev/null
"$setup_host" --undo >"$work/undo.out" 2>&1 || fail "--undo: $(cat "$work/undo.out")"
find / -xdev \( -path /proc -o -path /sys -o -path /opt -o -path /tmp -o -path /run \) -prune -o \
  -iname '*gradwire*' -print >"$work/after"
diff "$work/before" "$work/after" || fail "files are left"
say "removed and purged: nothing is left"
printf 'table: the package under systemd\n'
printf '| installed | as | watchdog | upgrade | purge |\n| --- | --- | --- | --- | --- |\n'
printf '| starts | %s, no capability | restarts what hangs | restarts | leaves nothing |\n' "$user"
echo 'story: done'
