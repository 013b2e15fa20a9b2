// SPDX-License-Identifier: BSD-3-Clause
#include "recorder.h"

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15)

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

namespace gradwire_torch {
namespace {

using Recorder = c10d::FlightRecorder<c10::Event>;

// For all groups of this process. The functions of the class are not exported; its members are the
// same for all who have torch's headers of this version.
Recorder& recorder() {
  static Recorder* const found = c10d::getFlightRecorder("gradwire");
  return *found;
}

// An entry has a number from 0 on, which starts anew with each reset of the recorder.
struct Name {
  unsigned long long id;
  unsigned long long epoch;
};

// Under the recorder's lock. Null if the entry was overwritten since.
Recorder::Entry* entry_of(Recorder& all, const Name& name) {
  const auto begin = all.reset_epoch_start_idx_.find(name.epoch);
  if (begin == all.reset_epoch_start_idx_.end()) return nullptr;
  const size_t index = (begin->second + name.id) % all.max_entries_;
  if (index >= all.entries_.size()) return nullptr;
  Recorder::Entry& entry = all.entries_[index];
  return entry.id_ == name.id && entry.reset_epoch_ == name.epoch ? &entry : nullptr;
}

PyObject* recorded(PyObject* /*module*/, PyObject* /*unused*/) {
  static Name last_told{~0ULL, ~0ULL};  // under the recorder's lock
  Recorder& all = recorder();
  if (!all.enabled_) Py_RETURN_NONE;
  Name name{};
  {
    const std::lock_guard<std::mutex> guard(all.mutex_);
    if (all.entries_.empty()) Py_RETURN_NONE;
    const Recorder::Entry& entry =
        all.entries_[all.next_ == 0 ? all.entries_.size() - 1 : all.next_ - 1];
    name = {entry.id_, entry.reset_epoch_};
    // Torch calls the backend within the thread that has recorded the op, and marks the entry as
    // retired behind that. Another entry is of a call that did not come through torch's dispatcher.
    if (entry.retired_ || entry.thread_id_ != std::this_thread::get_id() ||
        (name.id == last_told.id && name.epoch == last_told.epoch)) {
      Py_RETURN_NONE;
    }
    last_told = name;
  }
  return Py_BuildValue("KK", name.id, name.epoch);
}

PyObject* mark(PyObject* arguments, bool completed) {
  Name name{};
  if (PyArg_ParseTuple(arguments, "(KK)", &name.id, &name.epoch) == 0) return nullptr;
  Recorder& all = recorder();
  const std::lock_guard<std::mutex> guard(all.mutex_);
  Recorder::Entry* entry = entry_of(all, name);
  if (entry == nullptr) Py_RETURN_NONE;
  const c10::time_t now = c10::getTime();
  if (!entry->time_discovered_started_.has_value()) entry->time_discovered_started_ = now;
  if (completed && !entry->time_discovered_completed_.has_value()) {
    entry->time_discovered_completed_ = now;
    entry->duration_ = static_cast<float>(now - *entry->time_discovered_started_) / 1e6F;
    entry->retired_ = true;
  }
  Py_RETURN_NONE;
}

PyObject* started(PyObject* /*module*/, PyObject* arguments) { return mark(arguments, false); }

PyObject* completed(PyObject* /*module*/, PyObject* arguments) { return mark(arguments, true); }

}  // namespace

PyMethodDef g_recorder_methods[4] = {
    {"recorded", recorded, METH_NOARGS,
     "recorded(): within a call of the backend's, the name of torch's entry of it; None if it has "
     "none."},
    {"started", started, METH_VARARGS, "started(name): the daemon has the op."},
    {"completed", completed, METH_VARARGS, "completed(name): it has ended well."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace gradwire_torch

#else

namespace gradwire_torch {

PyMethodDef g_recorder_methods[4] = {};

}  // namespace gradwire_torch

#endif
