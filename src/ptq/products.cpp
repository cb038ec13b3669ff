#include "ptq/products.h"

#include "base/error.h"
#include "ir/builder.h"

namespace octet {
namespace {

constexpr GemmAttrs kLinear{.trans_b = true, .role = GemmRole::forward};

Graph typed_graph(std::string name) {
  Graph graph;
  graph.name = std::move(name);
  graph.phase = Phase::typed;
  return graph;
}

struct Factors {
  ValueId x, w;
};

Factors factors(Builder& b, const LinearShape& s, Dtype dtype, std::string_view prefix) {
  const auto name = [&](std::string_view what) { return fmt::format("{}{}", prefix, what); };
  return {b.input(InputKind::parameter, name("x"), {.dtype = dtype, .shape = {s.rows, s.n_in}}),
          b.input(InputKind::parameter, name("w"), {.dtype = dtype, .shape = {s.n_out, s.n_in}})};
}

// sqrt of the sum of squares: every back end has a kernel for the norm of gradients.
ValueId norm_of(Builder& b, ValueId y) {
  const Dtype types[] = {Dtype::f32, Dtype::f32, Dtype::boolean};
  return b.emit_typed(OpCode::global_norm, NoAttrs{}, {b.fill({}, 0), y}, types)[0];
}

Graph exact_graph(const LinearShape& shape) {
  Graph graph = typed_graph("exact");
  Builder b(graph);
  const Factors f = factors(b, shape, Dtype::f32, "");
  const ValueId y = b.gemm(f.x, f.w, kLinear);
  b.output("y", y);
  b.output("norm", norm_of(b, y));
  return graph;
}

Graph error_graph(const LinearShape& shape, Dtype dtype) {
  Graph graph = typed_graph("error");
  Builder b(graph);
  const ValueId y =
      b.input(InputKind::parameter, "y", {.dtype = Dtype::f32, .shape = {shape.rows, shape.n_out}});
  const Factors f = factors(b, shape, dtype, "q_");
  ValueId q_y = kNoValue;
  if (dtype == Dtype::f32) {
    q_y = b.gemm(f.x, f.w, kLinear);
  } else {
    const TensorType scalar{.dtype = Dtype::f32, .shape = {}};
    const ValueId scale = b.input(InputKind::parameter, "scale", scalar);
    const ValueId one = b.input(InputKind::parameter, "one", scalar);
    const Dtype f32 = Dtype::f32;
    q_y = b.emit_typed(OpCode::gemm, kLinear, {f.x, f.w, kNoValue, scale, one}, {&f32, 1})[0];
  }
  b.output("norm", norm_of(b, b.sub(y, q_y)));
  return graph;
}

Graph gram_graph(int64_t rows, int64_t n_in) {
  Graph graph = typed_graph("gram");
  Builder b(graph);
  const ValueId x =
      b.input(InputKind::parameter, "x", {.dtype = Dtype::f32, .shape = {rows, n_in}});
  b.output("sum", b.gemm(x, x, {.trans_a = true}));
  return graph;
}

double read_square(const SmallPlan& plan) {
  float norm = 0;
  plan.read("norm", std::as_writable_bytes(std::span(&norm, 1)));
  return static_cast<double>(norm) * static_cast<double>(norm);
}

}  // namespace

OutputError::OutputError(const LinearShape& shape, Dtype data, Backend& backend)
    : shape_(shape),
      exact_(exact_graph(shape), backend),
      error_(error_graph(shape, data), backend) {}

void OutputError::set_exact(std::span<const float> x, std::span<const float> w) {
  exact_.write("x", std::as_bytes(x));
  exact_.write("w", std::as_bytes(w));
  exact_.run();
  signal_ = read_square(exact_);
  std::vector<float> y(static_cast<size_t>(shape_.rows * shape_.n_out));
  exact_.read("y", std::as_writable_bytes(std::span(y)));
  error_.write("y", std::as_bytes(std::span(y)));
}

double OutputError::measure(float scale) {
  constexpr float kOne = 1;
  error_.write("scale", std::as_bytes(std::span(&scale, 1)));
  error_.write("one", std::as_bytes(std::span(&kOne, 1)));
  error_.run();
  return read_square(error_);
}

Gram::Gram(int64_t rows, int64_t n_in, Backend& backend)
    : n_in_(n_in),
      plan_(gram_graph(rows, n_in), backend),
      part_(static_cast<size_t>(n_in * n_in)),
      sum_(part_.size(), 0.0) {}

void Gram::add(std::span<const float> x) {
  plan_.write("x", std::as_bytes(x));
  plan_.run();
  plan_.read("sum", std::as_writable_bytes(std::span(part_)));
  for (size_t i = 0; i < part_.size(); ++i) sum_[i] += static_cast<double>(part_[i]);
}

}  // namespace octet
