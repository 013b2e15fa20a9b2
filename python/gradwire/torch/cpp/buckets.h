// SPDX-License-Identifier: BSD-3-Clause
// An allocator for torch's tensors on the CPU that takes gradient memory, for as long and in the
// threads that ask for it: DDP's buckets are made so, and are all-reduced where they lie.
//
// Who has the memory is Python's Pool (gradwire/torch/memory.py); this asks it, with the GIL. What
// a tensor gives back, which it may do in any thread, in a signal's or while Python ends, only goes
// on a list here, which takes no lock and no GIL. Python collects it.
#pragma once

#include <Python.h>

namespace gradwire_torch {

/** begin(), end() and returned(), as Python has them. */
extern PyMethodDef g_bucket_methods[4];

}  // namespace gradwire_torch
