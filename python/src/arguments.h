// What Python hands over: buffers that are read and written where they lie, and work without the
// interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>

namespace octet::python {

namespace nb = nanobind;

enum class Access : uint8_t { read, write };

// A contiguous buffer of Python's buffer protocol, held as long as this object lives. Raises
// BufferError where the object gives none. Made and destroyed under the interpreter's lock.
class BufferView {
 public:
  BufferView(nb::handle object, Access access) {
    const int flags = access == Access::write ? PyBUF_CONTIG : PyBUF_CONTIG_RO;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }
  std::span<std::byte> writable() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }
  // As words, which NumPy aligns.
  template <typename T>
  std::span<const T> words() const {
    return {static_cast<const T*>(view_.buf), static_cast<size_t>(view_.len) / sizeof(T)};
  }
  template <typename T>
  std::span<T> writable_words() const {
    return {static_cast<T*>(view_.buf), static_cast<size_t>(view_.len) / sizeof(T)};
  }

 private:
  Py_buffer view_{};
};

// Each adds its part of the package to the module.
void bind_formats(nb::module_& module);
void bind_plan(nb::module_& module);
void bind_model(nb::module_& module);
void bind_step_watch(nb::module_& module);
void bind_graph(nb::module_& module);
void bind_block(nb::module_& module);
void bind_sums(nb::module_& module);

}  // namespace octet::python
