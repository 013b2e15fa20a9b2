// SPDX-License-Identifier: BSD-3-Clause
// The C++ extension of the PyTorch backend (doc/pytorch.md, "The C++ extension"), as Python sees
// it. `python -m gradwire.torch.build` compiles it on the user's machine, against the torch that is
// there. It is optional: gradwire/torch/extension.py loads it if it is there.
#include <Python.h>
#include <torch/version.h>

#include "buckets.h"
#include "recorder.h"

namespace {

PyModuleDef g_definition = {
    PyModuleDef_HEAD_INIT,
    "_gradwire_torch",
    "What the backend gradwire has in C++.",
    -1,
    gradwire_torch::g_bucket_methods,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__gradwire_torch() {
  PyObject* module = PyModule_Create(&g_definition);
  if (module == nullptr) return nullptr;
  // The torch whose headers were there: another one has other classes behind the same names.
  if (PyModule_AddFunctions(module, gradwire_torch::g_recorder_methods) != 0 ||
      PyModule_AddStringConstant(module, "torch_version", TORCH_VERSION) != 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
