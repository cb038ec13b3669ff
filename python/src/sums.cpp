// octet.prove: sums of products as a card's tensor cores make them (math/tensor_sums.h).
#include <nanobind/stl/string.h>

#include <memory>
#include <vector>

#include "backends/cpu/gemm/tensor_gemm.h"
#include "base/error.h"
#include "formats/names.h"
#include "math/tensor_sums.h"
#include "python/src/arguments.h"

namespace octet::python {
namespace {

Dtype factor_dtype(const std::string& name) {
  return name == "f32" ? Dtype::f32 : format_from_name(name);
}

// y [m, n] = a [m, k] b [n, k]^T in chains of `chain` products, 0: one chain over all of k.
struct SumsCall {
  int capability = 90;
  std::string a, b;
  int64_t m = 0, n = 0, k = 0, chain = 0;

  const TensorSums* find() const {
    return find_tensor_sums(capability, factor_dtype(a), factor_dtype(b));
  }
  TensorSums rule() const {
    const TensorSums* row = find();
    if (row == nullptr)
      throw Error(ErrorCode::invalid_argument,
                  "[sums] expected a pair of types with a rule for capability {}, got {} and {}",
                  capability, a, b);
    TensorSums result = *row;
    result.chain = static_cast<int>(chain);
    return result;
  }
};

// a, b: codes of their types.
void sums_into(const SumsCall& call, nb::handle a, nb::handle b, nb::handle y) {
  const TensorSums rule = call.rule();
  const Dtype types[] = {factor_dtype(call.a), factor_dtype(call.b)};
  const BufferView from_a(a, Access::read), from_b(b, Access::read), to(y, Access::write);
  const std::span<float> sums = to.writable_words<float>();
  const auto bytes = [](Dtype type, int64_t n) { return static_cast<size_t>(bytes_of(type, n)); };
  if (from_a.bytes().size() != bytes(types[0], call.m * call.k) ||
      from_b.bytes().size() != bytes(types[1], call.n * call.k) ||
      sums.size_bytes() != bytes(Dtype::f32, call.m * call.n))
    throw Error(
        ErrorCode::bad_data,
        "[sums] expected {} [{}, {}], {} [{}, {}] and f32 [{}, {}], got {}, {} and {} bytes",
        call.a, call.m, call.k, call.b, call.n, call.k, call.m, call.n, from_a.bytes().size(),
        from_b.bytes().size(), sums.size_bytes());
  const nb::gil_scoped_release unlocked;
  const SumMode mode = rule.chain > 0 ? SumMode::promoted : SumMode::one_chain;
  ThreadPool pool;
  const cpu::TensorSumGemm gemm({.gemm = {.rule = &rule, .mode = mode, .factors = types[0]},
                                 .m = call.m,
                                 .n = call.n,
                                 .k = call.k,
                                 .a = {types[0], {call.m, call.k}},
                                 .b = {types[1], {call.n, call.k}},
                                 .trans_b = true},
                                pool.n_threads());
  constexpr size_t kAlignment = 64;
  std::vector<std::byte> memory(gemm.scratch_bytes() + kAlignment);
  void* scratch = memory.data();
  size_t size = memory.size();
  std::align(kAlignment, gemm.scratch_bytes(), scratch, size);
  gemm.launch({.a = from_a.bytes().data(),
               .b = from_b.bytes().data(),
               .y = {sums.data(), Dtype::f32},
               .scratch = scratch},
              pool);
}

// Products that promoted sums add before f32; 0 where there is no such mode, none without a rule.
nb::object promoted_chain(const SumsCall& call) {
  const TensorSums* row = call.find();
  return row == nullptr ? nb::object(nb::none()) : nb::object(nb::int_(row->chain));
}

}  // namespace

void bind_sums(nb::module_& module) {
  nb::class_<SumsCall>(module, "SumsCall")
      .def(nb::init<int, std::string, std::string, int64_t, int64_t, int64_t, int64_t>());
  module.def("tensor_sums", sums_into);
  module.def("promoted_chain", promoted_chain);
}

}  // namespace octet::python
