# SPDX-License-Identifier: BSD-3-Clause
"""Where gradwire and Gloo differ, and are meant to: the short list of differ.py. doc/pytorch.md
says each, under "Beside Gloo" or where it tells of the call. What Gloo refuses, or does in another
way, is compared with a reference that Gloo takes: see "plainly" in differ_draw.py."""
import re

import torch

from guarded import OTHER, nan_or_same

# Gloo's wait for a process that was refused there: no difference of its own.
ALONE = "waits for a process that Gloo has refused"
# Gloo waits in vain, ends a process, or takes one's bytes for another's; gradwire ends the group.
BY_RANK = "calls that differ by rank"
_ALONE = re.compile("[Tt]imed out|timeout caused|Connection (reset|closed)|Broken pipe")

# What Gloo says where gradwire does the call, with the values of Gloo's for the same made plainly.
_GLOO_REFUSES = {
    "types that Gloo does not know are moved": "Invalid scalar type",
    "views are sent, and received into": "[Tt]ensors? (must|has to) be contiguous",
    "expanded tensors are written to":
        "more than one element of the written-to tensor|input tensor and the written-to tensor",
    "blocks of several sizes, and stacks": "invalid (tensor size|size of output tensor) at index|"
    "Check failed: output|first of no dimensions|match the (broadcast|size)",
    "tensors of inference mode are written to outside": "Inplace update to inference tensor",
    "leaves that require a gradient are written to":
        "a view of a leaf Variable|is a view and is being modified inplace",
    "integers are averaged": "result type Float can't be cast",
}
_GRADWIRE_REFUSES = {
    "a receive names its source": "recv from any source",
    "sparse tensors are all-reduced alone": "of a sparse tensor",
    "a call has one tensor of each process": "it takes one tensor of each process",
}


def explains(kind, gloo, ours, plain, found, views):
    """The name of the entry that explains this call's outcomes, or None. kind: how they differ;
    plain: the Outcome of the reference, or None; found: what differs between that and ours; views:
    whether any process's tensors are not contiguous."""
    draw = ours.draw
    left = "clobbers" in draw.tags and draw.tensors[0].untouched()
    done = plain is not None and plain.error is None
    nan = done and bool(draw.tags & {"MIN", "MAX"}) and all(
        nan_or_same(made.with_values(right.tensor.detach()), made.raw, made.tensor.dtype)
        for right, made in zip(plain.draw.tensors, draw.tensors))
    alike = done and (found is None or left or kind == "Gloo refuses" and nan)
    if kind == "Gloo refuses":
        said = str(gloo.error)
        if "any source" in draw.tags:
            return "a receive names its source"
        if _ALONE.search(said):
            return ALONE if plain is None or alike else None
        if '"div_cpu" not implemented for' in said:
            return "complex numbers of 32 bits are averaged"
        if "must all have the same type" in said and draw.mistake == "another type":
            return "coalesced calls have tensors of several types"
        for name, text in _GLOO_REFUSES.items():
            if alike and re.search(text, said):
                return name
    types = {made.tensor.dtype for made in draw.tensors}
    if torch.int16 in types and draw.reduces and (
        kind == "Gloo refuses" and "Invalid scalar type" in str(gloo.error) or kind == "memory"
    ):
        return "int16 is reduced"  # kinds.py compares with numpy
    if kind == "gradwire refuses":
        # Of a dropped work nobody hears Gloo's error.
        bits = draw.tags & {"BAND", "BOR", "BXOR"} and any(t.is_floating_point for t in types)
        order = draw.tags & {"MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR"} and any(
            t.is_complex for t in types)
        if types & set(OTHER) or torch.bool in types and "AVG" in draw.tags or bits or order:
            if "gradwire does not reduce" in str(ours.error):
                return "types that are not reduced"
        if draw.mistake is not None and re.match(r"\w+ in process group \d+: ", str(ours.error)):
            return "what does not fit is refused at once"
        for name, text in _GRADWIRE_REFUSES.items():
            if re.search(text, str(ours.error)):
                return name
    # Torch passes a complex number as two of another type, so that this is another size, too.
    is_complex = any(made.tensor.dtype.is_complex for made in draw.tensors)
    size = draw.mistake == "another size" or draw.mistake == "another type" and is_complex
    if kind == "hang" and size and gloo.error is not None:
        return "blocks have sizes of their own: one's mistake is another's wait"
    if kind == "memory" and left:
        return "reduce leaves the others' input as it was"
    if kind == "answers" and alike and "future" in draw.tags:
        return "a future's value is the outputs as they were given"
    if kind == "memory" and alike:
        if views:
            return "of a view its elements are taken, wherever they lie"
        if draw.reduces and any(made.tensor.dtype is torch.bool for made in draw.tensors):
            return "a sum of truth values is one, too"
        if "dropped" in draw.tags:
            return "a call that nobody waits for has ended before a barrier"
    if kind == "memory" and nan:
        return "NaN is the least and the greatest"
    return None
