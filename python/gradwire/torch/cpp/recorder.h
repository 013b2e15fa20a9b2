// SPDX-License-Identifier: BSD-3-Clause
// Torch's Flight Recorder, as far as torch lets a backend in Python have it: torch records an entry
// of each op when it is called, and would learn of its end by a hook that no class in Python can
// offer. So the times are written to the entry here, as torch's own hook would.
//
// Any thread, with the GIL. Takes the recorder's lock, under which nobody waits for the GIL.
#pragma once

#include <Python.h>

namespace gradwire_torch {

/** recorded(), started() and completed(), as Python has them; empty before torch 2.15. */
extern PyMethodDef g_recorder_methods[4];

}  // namespace gradwire_torch
