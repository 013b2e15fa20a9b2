#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# aside.sh COMMAND...: runs it with what other work leaves of the processors. Run it in a session of
# its own (setsid): the kernel shares processors by sessions first (autogroup), and nice counts
# within one alone. Tests that it runs do not stand aside: Meson gives each a session, and they have
# a limit.
{ echo 19 >/proc/self/autogroup; } 2>/dev/null || true
exec nice -n 19 "$@"
