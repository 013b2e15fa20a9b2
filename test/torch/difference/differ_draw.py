# SPDX-License-Identifier: BSD-3-Clause
"""One random call: what it is made of, for differ.py. Every process draws the same from the call's
number, and makes the same call once on each backend; the tensors' values are each process's own."""
import datetime
import random
import time

import numpy
import torch
import torch.distributed as dist

from guarded import COMPLEX, LAYOUTS, OTHER, REDUCED, Guarded, values

SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR, BXOR = (
    getattr(dist.ReduceOp, name)
    for name in ("SUM", "AVG", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR"))
MODES = ["sync"] * 8 + ["wait", "wait", "limit", "future", "callback", "dropped", "asked"]


# Of one process alone, these make Gloo end the process that gets more than it expects.
_FATAL = {"another size", "another type", "a type that is not common", "splits of more"}


# If all make these, those who are not the root have lists as well, so that all are refused.
LISTS = {"a list of another length", "another size", "another type", "no tensor",
         "a list or a root"}


class Fatal(Exception):
    """The call would end processes on Gloo: there it is not made."""


class Draw:
    """A call, drawn anew for each backend that it is made on.

    group, ranks: the process group, and the processes' numbers in it
    wrong_at:     where its mistake is made: None, "all", or one rank
    plainly:      the same in the plainest way, as a reference: every tensor contiguous and of one
                  dimension, what is moved as bytes, and waited for at once
    limit_s:      after which a wait is a hang
    """

    def __init__(self, seed, number, group, ranks, me, limit_s, plainly=False):
        self.rng = random.Random("%d/%d" % (seed, number))
        self.values = numpy.random.Generator(numpy.random.PCG64([seed, number, me]))
        self.own = random.Random("%d/%d/%d" % (seed, number, me))
        self.group, self.ranks, self.limit_s, self.plainly = group, ranks, limit_s, plainly
        self.on_gloo = group is not None and group.name() == "gloo"
        self.rank, self.size = ranks.index(me), len(ranks)
        self.other = (self.rank + 1) % self.size
        self.tensors, self.notes, self.said = [], [], []
        self.mistake, self.posted, self.reduces, self.views = None, False, False, False
        self.by_root = False  # the mistake is in what only the root passes
        self.tags = set()  # what differences.py is told of the call
        self.results, self.mean = [], False
        kind = self.rng.random()
        self.wrong_at = None
        if kind < 0.01:  # half of these find a mistake to make
            self.wrong_at = self.rng.randrange(self.size)
        elif kind < 0.12:
            self.wrong_at = "all"
        self.mode = self.rng.choice(MODES)
        self.kind = self.rng.choice(["exact"] * 6 + ["bits"] * 3 + ["special"])
        self.plain = self.rng.random() < 0.5  # all tensors contiguous
        self.inference = self.rng.choice([None] * 20 + ["made", "called", "called", "both", "both"])
        self.grad = self.rng.random() < 0.03
        if plainly:
            self.mode, self.inference = "sync", None

    # ---- mistakes

    def wrong(self, name, chance=0.4):
        """Whether this process makes this mistake in this call, if it makes one at all."""
        if self.wrong_at is None or self.mistake is not None or self.rng.random() > chance:
            return False
        self.mistake = name
        if name in _FATAL and self.on_gloo and self.wrong_at != "all":
            raise Fatal(name)
        return self.wrong_at in ("all", self.rank)

    # ---- tensors

    def dims(self, largest=5):
        """A shape: small as a rule, empty at times, seldom large."""
        kind = self.rng.random()
        if kind < 0.01:
            return [self.rng.choice([1 << 17, 300_001]) // self.size]
        if kind < 0.05:
            return [self.rng.choice([1000, 4099, 10_000])]
        if kind < 0.1:
            return []
        dims = [self.rng.randint(1, largest) for _ in range(self.rng.choice([1, 1, 2, 2, 3, 4]))]
        if kind < 0.15:
            dims[self.rng.randrange(len(dims))] = 0
        return dims

    def dtype(self, reduced=False):
        self.reduces = reduced
        if self.wrong("a type that is not common", 0.2):
            self.tags.add("type")
            return self.rng.choice(OTHER)
        if self.rng.random() < 0.1:
            return self.rng.choice(COMPLEX)
        return self.rng.choice(REDUCED)

    def tensor(self, dims, dtype, dense=False, rows=False):
        """A guarded tensor, with its mistake if it has one. ``rows``: its rows count."""
        layout = "contiguous"
        if not self.plain and not dense and self.rng.random() < 0.6:
            layout = self.rng.choice(LAYOUTS)
            if self.rng.random() < 0.05:
                layout = self.own.choice(LAYOUTS)
        skew = self.rng.choice([0, 0, 0, 1, 3])
        # Of sends and receives these are not made by all: each end has tensors of its own.
        may = not self.tags & {"transfer", "all to all"} or self.wrong_at != "all"
        if may and self.wrong("another size", 0.15):
            dims = self.rng.choice([[*dims, 2], [*dims, 0], [torch.Size(dims).numel() + 1]])
        if may and self.wrong("another type", 0.15):
            dtype = self.rng.choice([d for d in REDUCED if d != dtype])
        if self.wrong("no tensor", 0.1):
            self.said.append("None")
            return None
        if self.wrong("a list for a tensor", 0.05):
            self.said.append("[1]")
            return [torch.ones(1)]
        floats = dtype.is_floating_point or dtype.is_complex
        kind = "exact" if self.reduces and floats and self.kind == "bits" else self.kind
        with torch.inference_mode(self.inference in ("both", "made")):
            made = Guarded(dims, dtype, layout, lambda n: values(self.values, n, dtype, kind), skew,
                           self.plainly)
        self.tensors.append(made)
        self.said.append(made.text())
        if not made.dense:
            self.views = True
        if may and self.wrong("a device without memory", 0.05):
            self.tags.add("meta")
            return torch.empty(dims, dtype=dtype, device="meta")
        if may and self.wrong("sparse", 0.03) and dims:
            self.tags.add("sparse")
            return torch.zeros(dims, dtype=dtype).to_sparse()
        if self.plainly:
            return self.plain_of(made.tensor, rows)
        if self.grad and floats and not self.inference:
            made.tensor.requires_grad_()
        return made.tensor

    def plain_of(self, tensor, rows):
        if not self.reduces:
            tensor = tensor.unsqueeze(-1).view(torch.uint8)
        return tensor if rows else tensor.view(-1)

    def result(self, tensor):
        """It is what the call writes to."""
        if isinstance(tensor, torch.Tensor):
            self.results.append(tensor)
        return tensor

    def many(self, dims, dtype, count=None, dense=False):
        """One for each process of the group, or ``count``."""
        made = [self.tensor(dims, dtype, dense)
                for _ in range(self.size if count is None else count)]
        if self.wrong("a list of another length"):
            made = self.rng.choice([made[:-1], [], made + made[:1]])
            self.said.append("of which %d" % len(made))
        if self.wrong("a tensor for a list", 0.1) and made:
            made = made[0]
        return made

    def lists_of_root(self, dims, dtype):
        """many(), which the root alone passes: so a mistake in it may be the root's alone."""
        before = self.mistake
        made = self.many(dims, dtype)
        self.by_root = self.mistake != before and self.mistake not in LISTS
        return made

    # ---- other arguments

    def say(self, name, value):
        self.said.append("%s=%s" % (name, value))
        return value

    def op(self, dtype):
        op = self.rng.choice([SUM, SUM, SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR, BXOR])
        self.redop = str(op).rsplit(".", maxsplit=1)[-1]
        self.tags.add(self.redop)
        if self.wrong("no reduction", 0.1):
            return self.say("op", "sum")
        if self.results:  # by mistake it may be another
            dtype = self.results[0].dtype
        if self.plainly and dtype is torch.bool:
            op = {SUM: MAX, BOR: MAX, PRODUCT: MIN, BAND: MIN}.get(op, op)
        elif self.plainly and op == AVG and not dtype.is_floating_point and not dtype.is_complex:
            op, self.mean = SUM, True
        return self.say("op", op)

    def finish(self):
        """What the reference does after Gloo's call: the mean of integers, cut off."""
        for tensor in self.results if self.mean else ():
            tensor.copy_(torch.div(tensor, self.size, rounding_mode="trunc"))

    def root(self, name):
        """Keyword arguments: of the whole job, or of the group."""
        number = self.rng.randrange(self.size)
        self.root_rank = number
        if self.wrong("a root that is not there", 0.3):
            bad = self.rng.choice([-1, self.size, 99])
            return {self.say(self.rng.choice([name, "group_" + name]), bad): bad}
        if self.wrong("two roots", 0.1):
            return {name: self.ranks[number], "group_" + name: number}
        if self.rng.random() < 0.5:
            return {"group_" + name: self.say("group_" + name, number)}
        return {name: self.say(name, self.ranks[number])}

    def how(self):
        """Keyword arguments of every collective."""
        if self.wrong("no group", 0.05):
            return {"group": self.say("group", "all"), "async_op": False}
        return {"group": self.group, "async_op": self.mode != "sync"}

    # ---- ends

    def note(self, what):
        self.notes.append(what)

    def ends(self, work):
        """Waits for what a call has returned, in the way that was drawn."""
        self.posted = True
        if self.mode == "sync":
            return self.note(work is None)
        mode = self.mode
        if mode == "callback" and "transfer" in self.tags:
            mode = "future"  # the others of the group make no call
        if isinstance(work, torch._C.Future):  # what the coalesced calls give instead
            return self.gave(work.wait())
        if mode == "dropped" and "transfer" not in self.tags:  # a barrier does not wait for those
            del work
            self.tags.add("dropped")
            return dist.barrier(group=self.group)
        if mode == "limit":
            self.note(work.wait(datetime.timedelta(seconds=self.limit_s)))
        elif mode == "future":
            self.gave(self.future(work).wait())
        elif mode == "callback":
            more = torch.full((3,), 1.0 + self.rank)
            group = self.group

            def call_again(finished):
                dist.all_reduce(more, group=group)
                return finished.value()

            self.gave(self.future(work).then(call_again).wait())
            self.note(more.tolist())
        elif mode == "asked" and not self.on_gloo:  # where sends never say that they have ended
            until = time.monotonic() + self.limit_s
            while not work.is_completed():
                if time.monotonic() > until:
                    raise RuntimeError("is_completed() is not true in time")
                time.sleep(0.0002)
            self.note(work.wait())
        else:
            self.note(work.wait())
        if not self.on_gloo and not work.is_completed():
            raise RuntimeError("is_completed() is not true after the end")
        return None

    def future(self, work):
        """Gloo's sends, receives and reduce-scatters have none: then one that is done."""
        try:
            return work.get_future()
        except RuntimeError as error:
            if not self.on_gloo or "getFuture not implemented" not in str(error):
                raise
        work.wait()
        made = torch.futures.Future()
        made.set_result(...)
        return made

    def gave(self, value):
        """What a future's value is: its tensors' shapes and types."""
        def shape(item):
            if isinstance(item, torch.Tensor):
                return str(item.dtype), tuple(item.shape)
            return [shape(part) for part in item] if isinstance(item, (list, tuple)) else item

        self.tags.add("future")
        self.note(shape(value))

    def text(self):
        return "%s, %s%s%s%s" % (
            ", ".join(self.said), self.mode,
            "" if self.inference is None else ", inference mode: " + self.inference,
            "" if self.mistake is None else ", mistake: %s (%s)" % (self.mistake, self.wrong_at),
            ", group of %s" % self.ranks)


def whole_dims(d, dims):
    """One after the other, or a stack."""
    if dims and d.rng.random() < 0.9:
        return [dims[0] * d.size, *dims[1:]]
    return [d.size, *dims]
