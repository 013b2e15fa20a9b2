# SPDX-License-Identifier: BSD-3-Clause
"""What is wrong with the arguments of a call, found out before anything is posted.

The daemon reads and writes as many elements as a call says: so each tensor's size is compared with
what the call does with this very tensor, and no size, type or split is taken from one tensor for
another. What the processes have in common, the daemons compare.

Each check raises ValueError. ``call`` is a Call: which call it is, for the errors.
"""
import collections

# The name of a call, and the process group that it is of: its name, how many processes it has and
# which of them this one is.
Call = collections.namedtuple("Call", "name group size rank")


def refuse(call, text):
    raise ValueError("%s in process group %s: %s" % (call.name, call.group, text))


def shape(tensor):
    return "%s%s" % (str(tensor.dtype).replace("torch.", ""), list(tensor.shape))


def one(call, given, what="one tensor"):
    """The only element of a list."""
    if len(given) != 1:
        refuse(call, "it takes %s of each process, not %d" % (what, len(given)))
    return given[0]


def some(call, tensors):
    if not tensors:
        refuse(call, "it was given no tensor")


def none(call, given, what, root):
    """Only the root has these."""
    if given:
        refuse(call, "only the root, process %d, has %s, and this is process %d"
               % (root, what, call.rank))


def root(call, number, tensor=0):
    """``tensor``: which of the root's tensors; there is one."""
    if not 0 <= number < call.size:
        refuse(call, "the root is process %d: it must be 0 to %d" % (number, call.size - 1))
    if tensor != 0:
        refuse(call, "the root's tensor is number %d: each process has one, number 0" % tensor)


def peer(call, number, tag):
    if not 0 <= number < call.size:
        refuse(call, "the other process is %d: it must be 0 to %d" % (number, call.size - 1))
    if number == call.rank:
        refuse(call, "the other process is %d, which is this process itself" % number)
    if not 0 <= tag < 1 << 32:
        refuse(call, "the tag is %d: it must be 0 to %d" % (tag, (1 << 32) - 1))


def one_type(call, tensors):
    """Bits of one type are not taken for another's."""
    for tensor in tensors:
        if tensor.dtype != tensors[0].dtype:
            refuse(call, "%s and %s: all tensors of one call must have the same type"
                   % (shape(tensors[0]), shape(tensor)))


def pairs(call, outputs, inputs):
    if len(outputs) != len(inputs):
        refuse(call, "%d outputs for %d inputs: there must be one for each"
               % (len(outputs), len(inputs)))


def blocks(call, tensors, what):
    """One for each process."""
    if len(tensors) != call.size:
        refuse(call, "%d %s: there must be one for each of %d processes"
               % (len(tensors), what, call.size))


def same_size(call, tensors, what, own, whose):
    """Each is as large as ``own``, this process's part at the other end."""
    for number, tensor in enumerate(tensors):
        if tensor.numel() != own.numel():
            refuse(call, "%s %d is %s: it must have as many elements as %s, %s"
                   % (what, number, shape(tensor), whose, shape(own)))


def own_size(call, tensors, what, own, whose):
    """The block of this process is as large as ``own``. Other processes' blocks may differ."""
    tensor = tensors[call.rank]
    if tensor.numel() != own.numel():
        refuse(call, "%s %d, this process's own, is %s: it must have as many elements as %s, %s"
               % (what, call.rank, shape(tensor), whose, shape(own)))


def whole_and_part(call, whole, part, what):
    """``whole`` has a block like ``part`` for each process. ``what``: their names."""
    one_type(call, [whole, part])
    if whole.numel() != part.numel() * call.size:
        refuse(call, "the %s is %s and the %s %s: the %s must have %d times the %s's elements"
               % (what[0], shape(whole), what[1], shape(part), what[0], call.size, what[1]))


def splits(call, what, tensor, given):
    """[size] how many elements each process sends or gets. Rows are cut by the first dimension;
    how wide they are is each tensor's own. ``given``: rows for each process; empty: equal ones."""
    rows = tensor.shape[0] if tensor.dim() else 1
    width = tensor.shape[1:].numel()
    if not given:
        if rows % call.size:
            refuse(call, "the %s %s cannot be cut into %d equal parts along its first dimension: "
                   "pass its split sizes" % (what, shape(tensor), call.size))
        return [rows // call.size * width] * call.size
    if len(given) != call.size or min(given) < 0 or sum(given) != rows:
        refuse(call, "the split sizes of the %s %s are %s: there must be %d, none below 0, and "
               "their sum must be its first dimension"
               % (what, shape(tensor), list(given), call.size))
    return [size * width for size in given]


def own_block(call, sent, received):
    """Elements for each process: what this one sends itself it gets."""
    if sent[call.rank] != received[call.rank]:
        refuse(call, "process %d sends itself %d elements and gets %d of its own: these must be "
               "the same" % (call.rank, sent[call.rank], received[call.rank]))


def met(sets):
    """Which of some sets of tensors have memory that another of them may have too, by number. Views
    that lie between each other's elements count."""
    spans = []
    for number, tensors in enumerate(sets):
        for tensor in tensors:
            if tensor.numel():
                begin = tensor.data_ptr()
                extent = sum((size - 1) * stride
                             for size, stride in zip(tensor.shape, tensor.stride()))
                spans.append((begin, begin + (extent + 1) * tensor.element_size(), number))
    found = set()
    reach, owner = 0, None
    for begin, end, number in sorted(spans):
        if begin < reach and number != owner:
            found |= {number, owner}
        if end > reach:
            reach, owner = end, number
    return found
