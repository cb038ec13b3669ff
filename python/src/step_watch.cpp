// What an optimizer's plan stands on, compared at every step: that parameters and states are the
// objects that they were, in the memory where they were, and where the gradients lie. A step of
// 1,000 parameters asks about 8,000 tensors: one call of Python for each would be a tenth of it.
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "python/src/arguments.h"

namespace octet::python {
namespace {

struct TensorLayout {
  std::span<const int64_t> sizes, strides;
};

// Reads tensors by functions that libtorch exports for C (torch/csrc/inductor/aoti_torch/c/shim.h),
// so that no header of PyTorch is needed. They take the address of a pointer to the implementation:
// that word of Python's object, `offset` bytes from its start.
class TensorReader {
 public:
  // functions: aoti_torch_get_ data_ptr, dtype, numel, dim, sizes and strides.
  TensorReader(const std::vector<uintptr_t>& functions, nb::handle type, Py_ssize_t offset)
      : type_(reinterpret_cast<PyTypeObject*>(type.ptr())), offset_(offset) {
    set(data_ptr_, functions.at(0));
    set(dtype_, functions.at(1));
    set(numel_, functions.at(2));
    set(dim_, functions.at(3));
    set(sizes_, functions.at(4));
    set(strides_, functions.at(5));
  }

  bool is_tensor(PyObject* object) const { return PyObject_TypeCheck(object, type_); }

  void* handle(PyObject* tensor) const { return reinterpret_cast<char*>(tensor) + offset_; }

  // As handle(), where the object says itself that its implementation is what the word points to.
  void* checked_handle(nb::handle object) const {
    if (!is_tensor(object.ptr())) throw nb::type_error("expected a tensor");
    void* const result = handle(object.ptr());
    if (nb::cast<uintptr_t>(object.attr("_cdata")) != *static_cast<uintptr_t*>(result))
      throw nb::value_error("expected a tensor as PyTorch lays them");
    return result;
  }

  // Each is false where a tensor has no such thing.
  bool address(void* handle, uintptr_t& result) const {
    void* data = nullptr;
    const bool has_data = data_ptr_(handle, &data) == 0;
    result = reinterpret_cast<uintptr_t>(data);
    return has_data;
  }
  bool dtype(void* handle, int32_t& result) const { return dtype_(handle, &result) == 0; }
  bool numel(void* handle, int64_t& result) const { return numel_(handle, &result) == 0; }
  bool layout(void* handle, TensorLayout& result) const {
    int64_t n = 0, *sizes = nullptr, *strides = nullptr;
    if (dim_(handle, &n) != 0 || sizes_(handle, &sizes) != 0 || strides_(handle, &strides) != 0)
      return false;
    result = {{sizes, static_cast<size_t>(n)}, {strides, static_cast<size_t>(n)}};
    return true;
  }

 private:
  template <typename Fn>
  static void set(Fn*& function, uintptr_t address) {
    function = reinterpret_cast<Fn*>(address);
  }

  PyTypeObject* type_;
  Py_ssize_t offset_;
  int32_t (*data_ptr_)(void*, void**) = nullptr;
  int32_t (*dtype_)(void*, int32_t*) = nullptr;
  int32_t (*numel_)(void*, int64_t*) = nullptr;
  int32_t (*dim_)(void*, int64_t*) = nullptr;
  int32_t (*sizes_)(void*, int64_t**) = nullptr;
  int32_t (*strides_)(void*, int64_t**) = nullptr;
};

// Objects in an order, by reference, none of them kept alive. Once one has died its address may be
// another one's: nothing is the same from then on.
class ObjectWatch {
 public:
  ObjectWatch() {
    static PyMethodDef on_death{"on_death", note_death, METH_O, nullptr};
    auto* const flag = new bool(false);
    const nb::capsule owner(flag, [](void* one) noexcept { delete static_cast<bool*>(one); });
    has_died_ = flag;
    on_death_ = nb::steal(PyCFunction_New(&on_death, owner.ptr()));
  }
  explicit ObjectWatch(nb::iterable objects) : ObjectWatch() {
    for (nb::handle object : objects) add(object.ptr());
  }

  void add(PyObject* object) {
    PyObject* const reference = PyWeakref_NewRef(object, on_death_.ptr());
    if (reference == nullptr) PyErr_Clear();  // some thing of the user's: it is kept
    references_.push_back(reference ? nb::steal(reference) : nb::borrow(object));
    objects_.push_back(object);
  }

  bool are_alive() const { return !*has_died_; }

  bool is_next(size_t& at, const PyObject* object) const {
    return at < objects_.size() && objects_[at++] == object;
  }

  bool holds(nb::list list) const {
    size_t at = 0;
    if (!are_alive() || list.size() != objects_.size()) return false;
    for (nb::handle object : list)
      if (!is_next(at, object.ptr())) return false;
    return true;
  }

 private:
  static PyObject* note_death(PyObject* flag, PyObject*) {
    *static_cast<bool*>(PyCapsule_GetPointer(flag, nullptr)) = true;
    Py_RETURN_NONE;
  }

  const bool* has_died_ = nullptr;  // on_death_'s
  nb::object on_death_;
  std::vector<nb::object> references_;
  std::vector<PyObject*> objects_;
};

// The states of an optimizer, {parameter: {key: value}}: the same tensors under the same keys.
// Other values of the user's may change.
class StateWatch {
 public:
  StateWatch(const TensorReader& reader, nb::dict states) : reader_(reader) {
    for (const auto [owner, values] : states) {
      owners_.add(owner.ptr());
      if (!PyDict_Check(values.ptr())) throw nb::type_error("expected states by parameter");
      const auto state = nb::borrow<nb::dict>(values);
      sizes_.push_back(static_cast<Py_ssize_t>(state.size()));
      for (const auto [key, value] : state) add(key, value);
    }
  }

  bool holds(nb::handle states) const {
    if (!owners_.are_alive() || !tensors_.are_alive() || !PyDict_Check(states.ptr())) return false;
    if (static_cast<size_t>(PyDict_Size(states.ptr())) != sizes_.size()) return false;
    Cursor at;
    Py_ssize_t position = 0;
    PyObject *owner = nullptr, *state = nullptr;
    while (PyDict_Next(states.ptr(), &position, &owner, &state)) {
      if (!owners_.is_next(at.owner, owner) || !PyDict_Check(state)) return false;
      if (PyDict_Size(state) != sizes_[at.owner - 1] || !holds_one(state, at)) return false;
    }
    return true;
  }

 private:
  struct Row {
    nb::object key;
    bool is_tensor = false;
  };
  struct Place {
    // Of the tensor's implementation: it stays, since PyTorch exchanges none (swap_tensors) of
    // objects that are referred to weakly.
    void* implementation = nullptr;
    uintptr_t address = 0;
    int64_t n = 0;
  };
  struct Cursor {
    size_t owner = 0, row = 0, tensor = 0;
  };

  void add(nb::handle key, nb::handle value) {
    rows_.push_back({nb::borrow(key), reader_.is_tensor(value.ptr())});
    if (!rows_.back().is_tensor) return;
    void* const handle = reader_.checked_handle(value);
    Place place{.implementation = *static_cast<void**>(handle)};
    if (!reader_.address(handle, place.address) || !reader_.numel(handle, place.n))
      throw nb::value_error("expected states with memory");
    tensors_.add(value.ptr());
    places_.push_back(place);
  }

  bool holds_one(PyObject* state, Cursor& at) const {
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *value = nullptr;
    while (PyDict_Next(state, &position, &key, &value)) {
      const Row& row = rows_[at.row++];
      if (!is_same_key(row.key.ptr(), key)) return false;
      if (!row.is_tensor) {
        if (reader_.is_tensor(value)) return false;
        continue;
      }
      const size_t i = at.tensor;
      if (!tensors_.is_next(at.tensor, value) || !is_there(places_[i])) return false;
    }
    return true;
  }

  static bool is_same_key(PyObject* one, PyObject* other) {
    return one == other ||
           (PyUnicode_Check(one) && PyUnicode_Check(other) && PyUnicode_Compare(one, other) == 0);
  }

  bool is_there(const Place& place) const {
    void* implementation = place.implementation;
    uintptr_t address = 0;
    int64_t n = 0;
    return reader_.address(&implementation, address) && address == place.address &&
           reader_.numel(&implementation, n) && n == place.n;
  }

  TensorReader reader_;
  ObjectWatch owners_, tensors_;
  std::vector<Py_ssize_t> sizes_;  // by owner
  std::vector<Row> rows_;
  std::vector<Place> places_;  // of tensors_
};

// Weights where they were, and gradients that lie as they do, wherever that is.
class WeightWatch {
 public:
  WeightWatch(const TensorReader& reader, nb::list weights, nb::list gradients)
      : reader_(reader),
        grad_(nb::steal(PyUnicode_InternFromString("grad"))),
        is_neg_(nb::steal(PyUnicode_InternFromString("is_neg"))) {
    for (size_t i = 0; i < weights.size(); ++i) {
      Row row;
      TensorLayout layout;
      void* const handle = reader_.checked_handle(weights[i]);
      void* const gradient = reader_.checked_handle(gradients[i]);
      if (!reader_.address(handle, row.address) || !reader_.dtype(handle, row.dtype) ||
          !reader_.layout(handle, layout) || !reader_.dtype(gradient, row.gradient_dtype))
        throw nb::value_error("expected weights with memory");
      row.n_dims = layout.sizes.size();
      for (size_t d = 0; d < row.n_dims; ++d) {
        row.is_empty |= layout.sizes[d] == 0;
        dims_.push_back({layout.sizes[d], layout.strides[d]});
      }
      rows_.push_back(row);
    }
  }

  bool holds(nb::list weights) const {
    return for_all(weights, [&](const Row& row, std::span<const Dim> dims, PyObject* weight) {
      return is_weight(row, dims, weight);
    });
  }

  // Writes where the gradients of these parameters are, an array of u64. False where a parameter
  // or its gradient is not as it was when the plan was made, or a gradient is a negative view,
  // whose memory has other signs.
  bool read(nb::list params, nb::handle addresses) const {
    const BufferView buffer(addresses, Access::write);
    uint64_t* out = buffer.writable_words<uint64_t>().data();
    return for_all(params, [&](const Row& row, std::span<const Dim> dims, PyObject* param) {
      if (!is_weight(row, dims, param)) return false;
      const nb::object gradient = nb::steal(PyObject_GetAttr(param, grad_.ptr()));
      if (!gradient.is_valid()) throw nb::python_error();
      return is_gradient(row, dims, gradient.ptr(), *out++) && !is_negative(gradient.ptr());
    });
  }

  // The same for gradients that a caller has.
  bool read_given(nb::list gradients, nb::handle addresses) const {
    const BufferView buffer(addresses, Access::write);
    uint64_t* out = buffer.writable_words<uint64_t>().data();
    return for_all(gradients, [&](const Row& row, std::span<const Dim> dims, PyObject* gradient) {
      return is_gradient(row, dims, gradient, *out++);
    });
  }

 private:
  struct Dim {
    int64_t size = 0, stride = 0;
  };
  struct Row {
    uintptr_t address = 0;
    size_t n_dims = 0;
    int32_t dtype = 0, gradient_dtype = 0;
    bool is_empty = false;
  };

  template <typename Fn>
  bool for_all(nb::list tensors, Fn&& is_as_before) const {
    if (tensors.size() != rows_.size()) return false;
    const Dim* dims = dims_.data();
    for (size_t i = 0; i < rows_.size(); dims += rows_[i++].n_dims) {
      PyObject* const tensor = PyList_GetItem(tensors.ptr(), static_cast<Py_ssize_t>(i));
      if (!is_as_before(rows_[i], {dims, rows_[i].n_dims}, tensor)) return false;
    }
    return true;
  }

  bool is_negative(PyObject* gradient) const {
    const nb::object answer =
        nb::steal(PyObject_CallMethodObjArgs(gradient, is_neg_.ptr(), nullptr));
    if (!answer.is_valid()) throw nb::python_error();
    return answer.ptr() == Py_True;
  }

  bool is_weight(const Row& row, std::span<const Dim> dims, PyObject* weight) const {
    uintptr_t address = 0;
    return lies(weight, dims, row.dtype, address) && address == row.address;
  }

  bool is_gradient(const Row& row, std::span<const Dim> dims, PyObject* gradient,
                   uintptr_t& address) const {
    return lies(gradient, dims, row.gradient_dtype, address) && (address != 0 || row.is_empty);
  }

  bool lies(PyObject* tensor, std::span<const Dim> dims, int32_t dtype, uintptr_t& address) const {
    if (!reader_.is_tensor(tensor)) return false;
    void* const handle = reader_.handle(tensor);
    TensorLayout layout;
    int32_t own = 0;
    if (!reader_.layout(handle, layout) || layout.sizes.size() != dims.size()) return false;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (layout.sizes[d] != dims[d].size) return false;
      if (layout.strides[d] != dims[d].stride && dims[d].size > 1) return false;
    }
    return reader_.dtype(handle, own) && own == dtype && reader_.address(handle, address);
  }

  TensorReader reader_;
  nb::object grad_, is_neg_;  // names of attributes
  std::vector<Row> rows_;
  std::vector<Dim> dims_;
};

}  // namespace

void bind_step_watch(nb::module_& module) {
  nb::class_<TensorReader>(module, "TensorReader")
      .def(nb::init<const std::vector<uintptr_t>&, nb::handle, Py_ssize_t>());
  nb::class_<ObjectWatch>(module, "ObjectWatch")
      .def(nb::init<nb::iterable>())
      .def("holds", &ObjectWatch::holds);
  nb::class_<StateWatch>(module, "StateWatch")
      .def(nb::init<const TensorReader&, nb::dict>())
      .def("holds", &StateWatch::holds);
  nb::class_<WeightWatch>(module, "WeightWatch")
      .def(nb::init<const TensorReader&, nb::list, nb::list>())
      .def("holds", &WeightWatch::holds)
      .def("read", &WeightWatch::read)
      .def("read_given", &WeightWatch::read_given);
}

}  // namespace octet::python
