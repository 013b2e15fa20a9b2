# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Building with Meson and Ninja.

# clang_name: how this release calls the clang that the tree is built with: Debian 12's, if it is
# there, else the release's own.
clang_name() {
  local name
  for name in clang-14 clang; do
    ! command -v "$name" >/dev/null || { echo "$name" && return; }
  done
  die "there is neither clang-14 nor clang: apt-get install clang"
}

# build_tree FOLDER COMPILER MESON_OPTION...: sets FOLDER up if it is not, and builds everything, or
# the targets that the array build_targets names, or what the tests of the suites need that
# build_suites names, with commas between them; with build_all=1 everything besides, which need not
# have all that a test needs. COMPILER is gcc or clang.
build_targets=()
build_suites=
build_all=0
build_tree() {
  local folder=$1 compiler=$2
  shift 2
  local cc cxx launcher=''
  case $compiler in
    gcc) cc=gcc cxx=g++ ;;
    clang) cc=$(clang_name) && cxx=${cc/clang/clang++} ;;
    *) die "unknown compiler '$compiler': gcc or clang." ;;
  esac
  command -v ccache >/dev/null && launcher='ccache '
  local log=$folder/scripts-build.log
  mkdir -p "$folder"
  # A user's compiler, which may be another, warns without failing.
  set -- "$@" -Dwerror=true
  # Enough debug information for lines in a back trace. Full debug information would take a quarter
  # of the build's time.
  set -- "$@" -Dcpp_args=-g1
  # Compiles many sources at once, so that headers are read once, which takes a third of the time.
  # clang's builds compile each source alone, which shows that each includes what it uses.
  [[ $compiler != gcc ]] || set -- "$@" -Dunity=on -Dunity_size=24
  if [[ -f $folder/build.ninja ]]; then
    step "build: $folder is set up ($compiler $*)"
    # A folder that is older than an option learns of it when it is set up again.
    meson configure "$folder" "$@" >"$log" 2>&1 ||
      { meson setup --reconfigure "$folder" && meson configure "$folder" "$@"; } >"$log" 2>&1 ||
      build_failed "$log" "meson configure"
  else
    step "build: setting up $folder ($compiler $*)"
    # The tests' programs are up to 100 MB, for which the GNU linker takes four times as long.
    ! command -v ld.lld >/dev/null || local -x CC_LD=lld CXX_LD=lld
    CC="$launcher$cc" CXX="$launcher$cxx" with_progress 20 "$log" "meson setup" \
      meson setup "$folder" "$repo_root" "$@" || build_failed "$log" "meson setup"
  fi
  local command=(meson compile -C "$folder" "${build_targets[@]}")
  if [[ -n $build_suites ]]; then
    local files
    files=$("$python" "$repo_root/scripts/lib/suite_targets.py" "$folder" "$build_suites") ||
      die "$folder: the tests of $build_suites cannot be listed."
    mapfile -t files <<<"$files"
    ((!build_all)) || files+=(all)
    command=(ninja -C "$folder" "${files[@]}")
  fi
  local what=${build_suites:-${build_targets[*]}}
  ((!build_all)) || what=
  step "build: compiling ${what:-everything} in $folder"
  with_progress 20 "$log" "building" "${command[@]}" || build_failed "$log" "the build"
  # What each CUDA kernel needs of a multiprocessor, if this build has them.
  local resources=$folder/lib/reduce/cuda/kernels.resources
  [[ ! -f $resources ]] || sed 's/^/       /' "$resources"
  note "$(tail -n 1 "$log" | cut -c1-90)"
}

build_failed() {
  tail -n 40 "$1" >&2
  die "$2 failed; its whole output is in $1."
}

# suite_exists FOLDER SUITE: whether the build has a test of that suite.
suite_exists() {
  [[ -n $(meson test -C "$1" --no-rebuild --suite "$2" --list 2>/dev/null) ]]
}
