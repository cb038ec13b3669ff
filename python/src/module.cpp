// octet._native: what the package's Python files stand on. They hold the documentation; here values
// are converted and functions called.
#include <exception>

#include "base/error.h"
#include "python/src/arguments.h"

namespace octet::python {
namespace {

const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::bad_data:
      return "bad_data";
    case ErrorCode::io:
      return "io";
    case ErrorCode::numerics:
      return "numerics";
    case ErrorCode::device:
      return "device";
    case ErrorCode::internal:
      return "internal";
    case ErrorCode::rank_lost:
      return "rank_lost";
  }
  return "internal";
}

// octet.Error with the same line and code.
void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object type = nb::module_::import_("octet._error").attr("Error");
    const nb::object value = type(error.what(), code_name(error.code()));
    PyErr_SetObject(value.type().ptr(), value.ptr());
  }
}

}  // namespace
}  // namespace octet::python

NB_MODULE(_native, module) {
  nanobind::set_leak_warnings(false);  // what callers still hold at the end is theirs
  nanobind::register_exception_translator(octet::python::translate);
  octet::python::bind_formats(module);
  octet::python::bind_plan(module);
  octet::python::bind_model(module);
  octet::python::bind_step_watch(module);
  octet::python::bind_graph(module);
  octet::python::bind_block(module);
  octet::python::bind_sums(module);
}
