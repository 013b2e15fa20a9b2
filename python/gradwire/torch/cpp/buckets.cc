// SPDX-License-Identifier: BSD-3-Clause
#include "buckets.h"

#include <atomic>
#include <cstdint>
#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace gradwire_torch {
namespace {

// What a tensor's storage keeps of its memory.
struct Loan {
  void* address;
  Loan* next;
};

// What tensors gave back and Python has not collected yet.
std::atomic<Loan*> g_returned{nullptr};

void give_back(void* context) {
  auto* loan = static_cast<Loan*>(context);
  loan->next = g_returned.load(std::memory_order_relaxed);
  while (!g_returned.compare_exchange_weak(loan->next, loan, std::memory_order_release,
                                           std::memory_order_relaxed)) {
  }
}

// Between begin() and end() of this thread: what lends memory, and from how many bytes on.
thread_local PyObject* t_lend = nullptr;
thread_local size_t t_least_bytes = 0;

// Takes the GIL. The address of so many bytes, or null if there are none.
void* borrow(size_t bytes) {
  const PyGILState_STATE state = PyGILState_Ensure();
  // What lends makes tensors of its own, and those are not to come here.
  PyObject* lend = t_lend;
  t_lend = nullptr;
  void* address = nullptr;
  PyObject* answer = PyObject_CallFunction(lend, "K", static_cast<unsigned long long>(bytes));
  if (answer != nullptr && answer != Py_None) address = PyLong_AsVoidPtr(answer);
  if (PyErr_Occurred() != nullptr) PyErr_WriteUnraisable(lend);
  Py_XDECREF(answer);
  t_lend = lend;
  PyGILState_Release(state);
  return address;
}

class Buckets final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (t_lend != nullptr && bytes >= t_least_bytes) {
      if (void* address = borrow(bytes)) {
        return {address, new Loan{address, nullptr}, &give_back, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return plain()->allocate(bytes);
  }

  // Raw memory has one deleter for all. So there is none here while this thread borrows.
  c10::DeleterFnPtr raw_deleter() const override {
    return t_lend != nullptr ? nullptr : plain()->raw_deleter();
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  // From now on, until as many leave(), torch's allocator is this one. In threads that do not
  // borrow it hands on to the one that was there.
  void enter() {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (entered_++ != 0) return;
    c10::Allocator* before = c10::GetAllocator(c10::DeviceType::CPU);
    if (before == this) return;
    plain_.store(before, std::memory_order_release);
    // The lowest priority that is enough: whoever sets another one later finds it as it was.
    priority_ = 0;
    c10::SetAllocator(c10::DeviceType::CPU, this, priority_);
    while (c10::GetAllocator(c10::DeviceType::CPU) != this && priority_ < UINT8_MAX) {
      c10::SetAllocator(c10::DeviceType::CPU, this, ++priority_);
    }
  }

  void leave() {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (--entered_ != 0 || c10::GetAllocator(c10::DeviceType::CPU) != this) return;
    c10::SetAllocator(c10::DeviceType::CPU, plain(), priority_);
  }

 private:
  c10::Allocator* plain() const { return plain_.load(std::memory_order_acquire); }

  std::mutex mutex_;
  int entered_ = 0;
  uint8_t priority_ = 0;
  // Kept after leave(): a tensor that was made meanwhile asks this one again if it is resized.
  std::atomic<c10::Allocator*> plain_{nullptr};
};

// Never destroyed: tensors may outlive everything.
Buckets& buckets() {
  static auto* const instance = new Buckets;
  return *instance;
}

PyObject* begin(PyObject* /*module*/, PyObject* arguments) {
  PyObject* lend = nullptr;
  Py_ssize_t least_bytes = 0;
  if (PyArg_ParseTuple(arguments, "On", &lend, &least_bytes) == 0) return nullptr;
  if (t_lend != nullptr || least_bytes < 0) {
    PyErr_SetString(PyExc_RuntimeError, "this thread borrows already, or less than nothing");
    return nullptr;
  }
  Py_INCREF(lend);
  t_lend = lend;
  t_least_bytes = static_cast<size_t>(least_bytes);
  buckets().enter();
  Py_RETURN_NONE;
}

PyObject* end(PyObject* /*module*/, PyObject* /*unused*/) {
  if (t_lend == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "this thread does not borrow");
    return nullptr;
  }
  buckets().leave();
  Py_CLEAR(t_lend);
  Py_RETURN_NONE;
}

PyObject* returned(PyObject* /*module*/, PyObject* /*unused*/) {
  if (g_returned.load(std::memory_order_relaxed) == nullptr) Py_RETURN_NONE;
  PyObject* addresses = PyList_New(0);
  if (addresses == nullptr) return nullptr;
  Loan* loan = g_returned.exchange(nullptr, std::memory_order_acquire);
  while (loan != nullptr) {
    PyObject* address = PyLong_FromVoidPtr(loan->address);
    // Without memory for a number its loan is lost.
    if (address == nullptr || PyList_Append(addresses, address) != 0) PyErr_Clear();
    Py_XDECREF(address);
    const Loan* told = loan;
    loan = loan->next;
    delete told;
  }
  return addresses;
}

}  // namespace

PyMethodDef g_bucket_methods[4] = {
    {"begin", begin, METH_VARARGS,
     "begin(lend, least_bytes): what this thread allocates for tensors on the CPU, from so many "
     "bytes on, is asked of lend(bytes), which gives an address or None."},
    {"end", end, METH_NOARGS, "end(): it is torch's again."},
    {"returned", returned, METH_NOARGS,
     "returned(): addresses that tensors gave back since the last call; None if there are none."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace gradwire_torch
