#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# gradwire key makes key files that only their owner can read, shows their ids, and says by name
# what is wrong with a file. It never shows a key, and leaves what is there alone.
. "$(dirname "$0")/../_init.sh"

gradwire=${GRADWIRE_CLI:-$build_folder/app/gradwire/gradwire}
[[ -x $gradwire ]] || skip "there is no gradwire at $gradwire: build first"
cd "$run_dir"

# refused STATUS TEXT ARGUMENT...: gradwire key ends so, and says so.
refused() {
  local wanted=$1 text=$2 status=0
  shift 2
  "$gradwire" key "$@" >refused.out 2>&1 || status=$?
  [[ $status == "$wanted" ]] || fail "gradwire key $*: status $status, not $wanted"
  expect_text "gradwire key $* is refused" "$text" refused.out
}

lacks() { ! grep -qF "$1" "$2"; }

expect "a key is made" "$gradwire" key make cluster.key
expect "its mode lets its owner in alone" test "$(stat -c %a:%s cluster.key)" = 600:32
id=$("$gradwire" key show cluster.key)
[[ $id =~ ^[0-9a-f]{16}$ ]] || fail "the id is '$id'"
"$gradwire" key check cluster.key >said.out
expect_text "the file is good" "^cluster.key: key $id, good$" said.out
"$gradwire" key make other.key >>said.out
other=$("$gradwire" key show other.key)
expect "another key has another id" test "$other" != "$id"
expect_text "make says which key it made" "^other.key: key $other$" said.out
for file in cluster.key other.key; do
  start=$(od -An -v -tx1 -N6 "$file" | tr -d ' \n')
  expect "nothing that was said has a key" lacks "$start" said.out
done

refused 1 'cluster.key: is there already' make cluster.key
expect "it is as it was" test "$("$gradwire" key show cluster.key)" = "$id"
refused 1 'No such file or directory' show none.key
refused 1 'Is a directory|not a regular file' check .

# A known file has the id of doc/security.md.
(
  umask 077
  printf "$(printf '\\x%02x' $(seq 0 31))" >known.key
)
expect "the page's key has the page's id" \
  grep -qF "\`$("$gradwire" key show known.key)\`" "$repo_root/doc/security.md"

head -c 31 cluster.key >short.key
chmod 600 short.key
refused 1 'has 31 bytes, must have 32' check short.key
od -An -v -tx1 -N16 cluster.key | tr -d ' \n' >hex.key
chmod 600 hex.key
refused 1 'is text' check hex.key
chmod 644 cluster.key
refused 1 'has mode 0644, must be 0600 or 0400' check cluster.key
chmod 600 cluster.key
chown 12345 cluster.key
refused 1 'belongs to user 12345' show cluster.key

refused 2 'FILE is required' make
refused 2 'subcommand is required' # no verb
