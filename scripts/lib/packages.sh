# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Installs what is missing of the sets of scripts/packages.debian, and nothing else.

packages_file=$repo_root/scripts/packages.debian

need_root() {
  ((EUID == 0)) || die "this script must run as root, and you are $(id -un)." \
    "It installs packages, reserves hugepages and starts daemons that use them." \
    "Run it as: sudo $0"
}

# need_debian: the packages have Debian's names. Which release it is shows by the packages that it
# has; README says which ones were tried.
need_debian() {
  local system
  system=$(. /etc/os-release 2>/dev/null && printf '%s' "${PRETTY_NAME:-}") || true
  command -v apt-get dpkg-query apt-cache | awk 'END {exit NR != 3}' ||
    die "this script installs packages by apt-get, which '${system:-this system}' does not have." \
      "Install what scripts/packages.debian names and build with Meson by hand."
  case $(. /etc/os-release && printf '%s %s' "${ID:-}" "${VERSION_ID:-}") in
    'debian 12' | 'debian 13') ;;
    *) note "warning: '$system' is neither Debian 12 nor 13: doc/releases.md has what is known" ;;
  esac
}

# debian_codename: of the release that this machine runs.
debian_codename() { (. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}"); }

# dpdk_abi: the number in the names of DPDK's library packages, as in librte-eal23; nothing if no
# such package is installed.
dpdk_abi() {
  { dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'librte-eal[0-9]*' 2>/dev/null || true; } |
    sed -n 's/^installed librte-eal//p' | sort -n | tail -n 1
}

# packages_of SET...: the names in these sets, a name a line.
packages_of() {
  local set
  for set in "$@"; do
    grep -q "^# \[$set\]" "$packages_file" || die "scripts/packages.debian has no set '$set'."
    awk -v want="[$set]" '
      $1 == "#" && $2 ~ /^\[.*\]$/ { inside = ($2 == want); next }
      inside { sub(/#.*/, ""); if ($1 != "") print $1 }' "$packages_file"
  done
}

package_installed() {
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# package_known NAME: the lists that were fetched last name a version to install.
package_known() {
  apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'
}

# packages_missing SET...: what of the sets is not installed.
packages_missing() {
  local name
  for name in $(packages_of "$@"); do
    package_installed "$name" || printf '%s\n' "$name"
  done
}

# apt_run LOGFILE WHAT ARGS...: apt-get without questions, with progress.
apt_run() {
  local logfile=$1 what=$2
  shift 2
  with_progress 10 "$logfile" "$what" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -y -q \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 \
    -o Dpkg::Options::=--force-confold "$@"
}

# Packages that come with a service, although gradwire needs only the program.
packages_with_service=(prometheus dpdk)

# services_hold: no package that is installed starts a service, until services_release. A policy
# that the machine has already stays as it is.
services_policy=/usr/sbin/policy-rc.d
services_held=0
services_hold() {
  [[ ! -e $services_policy ]] || return 0
  services_held=1
  on_exit services_release
  printf '#!/bin/sh\n# Of gradwire'"'"'s scripts, while they install packages.\nexit 101\n' \
    >"$services_policy"
  chmod 755 "$services_policy"
}
services_release() {
  ((services_held)) || return 0
  services_held=0
  rm -f "$services_policy"
}

# services_disable NAME...: those of the packages that bring a service do not start at boot either.
services_disable() {
  local name service
  for name in "$@"; do
    for service in "${packages_with_service[@]}"; do
      [[ $name != "$service" ]] || update-rc.d "$service" disable >/dev/null 2>&1 || true
    done
  done
}

# packages_refresh LOGFILE: the lists of what there is, when they are needed.
packages_refresh() {
  step "fetching the package lists (apt-get update)"
  apt_run "$1" "package lists" update ||
    die "apt-get update failed: $(grep -m1 '^E:' "$1" || tail -n 1 "$1")" \
      "Check the network and /etc/apt/sources.list."
}

# install_packages SET...
install_packages() {
  local missing installing logfile name
  mapfile -t missing < <(packages_missing "$@")
  if ((${#missing[@]} == 0)); then
    step "packages ($*): all there"
    return
  fi
  logfile=$(mktemp "${TMPDIR:-/tmp}/gradwire-apt-XXXXXX")
  on_exit rm -f "$logfile"
  # A machine that never fetched the lists; lists that are too old show when fetching fails.
  local refreshed=0
  for name in "${missing[@]}"; do
    if ! package_known "$name"; then
      packages_refresh "$logfile"
      refreshed=1
      break
    fi
  done
  step "installing ${#missing[@]} packages: ${missing[*]}"
  installing=("${missing[@]}")
  services_hold
  if ! apt_run "$logfile" "installing" install --no-install-recommends "${missing[@]}"; then
    if ((!refreshed)) && grep -qE 'Failed to fetch|Unable to (fetch|locate)' "$logfile"; then
      packages_refresh "$logfile"
      apt_run "$logfile" "installing" install --no-install-recommends "${missing[@]}" || true
    fi
  fi
  services_release
  services_disable "${installing[@]}"
  mapfile -t missing < <(packages_missing "$@")
  if ((${#missing[@]} > 0)); then
    die "these packages do not install: ${missing[*]}" \
      "apt-get says: $(grep -m1 -E '^E:|dpkg: error' "$logfile" || tail -n 1 "$logfile")" \
      "Try by hand: apt-get install ${missing[*]}"
  fi
}
