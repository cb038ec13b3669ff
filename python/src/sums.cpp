// octet.prove: sums of products as a card's tensor cores make them (math/tensor_sums.h).
#include <nanobind/stl/string.h>

#include <vector>

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

std::vector<SumFactor> factors(std::span<const float> values, const std::string& type,
                               const TensorSums& rule) {
  const int lowest = lowest_exponent(factor_dtype(type));
  std::vector<SumFactor> result;
  result.reserve(values.size());
  for (const float x : values) result.push_back(sum_factor(x, lowest, rule.fraction_of_factors));
  return result;
}

void sums_into(const SumsCall& call, nb::handle a, nb::handle b, nb::handle y) {
  const TensorSums rule = call.rule();
  const BufferView from_a(a, Access::read), from_b(b, Access::read), to(y, Access::write);
  const std::span<float> sums = to.writable_words<float>();
  const auto size = [](int64_t rows, int64_t cols) { return static_cast<size_t>(rows * cols); };
  if (from_a.words<float>().size() != size(call.m, call.k) ||
      from_b.words<float>().size() != size(call.n, call.k) || sums.size() != size(call.m, call.n))
    throw Error(ErrorCode::bad_data,
                "[sums] expected f32 [{}, {}], [{}, {}] and [{}, {}], got {}, {} and {} values",
                call.m, call.k, call.n, call.k, call.m, call.n, from_a.words<float>().size(),
                from_b.words<float>().size(), sums.size());
  const nb::gil_scoped_release unlocked;
  const auto rows = factors(from_a.words<float>(), call.a, rule);
  const auto cols = factors(from_b.words<float>(), call.b, rule);
  const SumMode mode = rule.chain > 0 ? SumMode::promoted : SumMode::one_chain;
  for (int64_t i = 0; i < call.m; ++i)
    for (int64_t j = 0; j < call.n; ++j)
      sums[size(i, call.n) + static_cast<size_t>(j)] =
          sum_of_products(rule, mode, rows.data() + i * call.k, cols.data() + j * call.k, call.k);
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
