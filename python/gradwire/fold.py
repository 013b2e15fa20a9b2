# SPDX-License-Identifier: BSD-3-Clause
"""python -m gradwire.fold: a rank without members. The daemon of this host sums all-reduces for a
group that has no process here, until the group's processes have left: those in two steps, and its
share of larger ones that go by tiles, as those in a wire format do.

    python -m gradwire.fold --store /shared/run-17 --rank 8 --nranks 9 [--folding-ranks 1]

The group's processes call rendezvous.form_group(client, DirectoryStore("/shared/run-17"), rank,
nranks=9, folding_ranks=1), or Client.join() with folding_ranks=1. DDP's hook does so by
GRADWIRE_FOLDING_RANKS and GRADWIRE_FOLDING_STORE (GradwireState), gradwire-perf by --folding-ranks.
Ranks without members are the last ones.

    GRADWIRE_SOCKET   the daemon; /run/gradwire/gradwired.sock if it is not set

Exit status: 0 if the group's processes left, 1 with the reason if it was not formed or aborted. If
this process ends before, the group aborts, and names its rank."""
import argparse
import sys

from . import Client, GradwireError, rendezvous


def serve(client, store, rank, nranks, **options):
    """Joins as form_group() does, and returns when the group's processes have left."""
    options.setdefault("folding_ranks", 1)
    with rendezvous.form_group(client, store, rank, nranks, **options) as group:
        print("rank %d of %d sums for the others" % (rank, nranks), flush=True)
        group.serve()
    print("the group's processes have left", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="gradwire.fold", description=__doc__.split("\n\n", 1)[0].split(": ", 1)[1]
    )
    parser.add_argument("--store", required=True, help="a directory that all processes see")
    parser.add_argument("--prefix", default="gradwire",
                        help="of the group's keys: gradwire-perf; gradwire-ddp of DDP's hook")
    parser.add_argument("--rank", type=int, required=True, help="this host's, one of the last")
    parser.add_argument("--nranks", type=int, required=True, help="with those without members")
    parser.add_argument("--folding-ranks", type=int, default=1, help="those without members")
    parser.add_argument("--members", type=int, default=1, help="processes of each other rank")
    parser.add_argument("--epoch", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds, to form the group")
    parser.add_argument("--socket", help="of the daemon")
    given = parser.parse_args(arguments)
    if not given.nranks - given.folding_ranks <= given.rank < given.nranks:
        parser.error(
            "rank %d is none of the last %d of %d ranks, which have no members"
            % (given.rank, given.folding_ranks, given.nranks)
        )
    try:
        with Client(given.socket) as client:
            serve(
                client,
                rendezvous.DirectoryStore(given.store),
                given.rank,
                given.nranks,
                members=given.members,
                epoch=given.epoch,
                timeout=given.timeout,
                folding_ranks=given.folding_ranks,
                prefix=given.prefix,
            )
    except GradwireError as error:
        print("gradwire.fold: %s" % error, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
