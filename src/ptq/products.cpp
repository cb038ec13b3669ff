#include "ptq/products.h"

#include <algorithm>

#include "base/error.h"
#include "base/integer.h"
#include "ir/builder.h"

namespace octet {
namespace {

constexpr GemmAttrs kLinear{.trans_b = true, .role = GemmRole::forward};
constexpr GemmAttrs kOverRows{.trans_a = true};

Graph typed_graph(std::string name) {
  Graph graph;
  graph.name = std::move(name);
  graph.phase = Phase::typed;
  return graph;
}

ValueId matrix(Builder& b, std::string name, int64_t rows, int64_t cols) {
  return b.input(InputKind::parameter, std::move(name),
                 {.dtype = Dtype::f32, .shape = {rows, cols}});
}

// sqrt of the sum of squares: every back end has a kernel for the norm of gradients.
void output_norm(Builder& b, std::string name, ValueId y) {
  b.output(std::move(name), b.emit_typed(OpCode::global_norm, NoAttrs{}, {b.fill({}, 0), y},
                                         {Dtype::f32, Dtype::f32})[0]);
}

Graph error_graph(const LinearShape& s) {
  Graph graph = typed_graph("error");
  Builder b(graph);
  const ValueId x = matrix(b, "x", s.rows, s.n_in), q_x = matrix(b, "q_x", s.rows, s.n_in);
  const ValueId w = matrix(b, "w", s.n_out, s.n_in), q_w = matrix(b, "q_w", s.n_out, s.n_in);
  const ValueId y = b.gemm(x, w, kLinear);
  output_norm(b, "signal", y);
  output_norm(b, "error", b.sub(y, b.gemm(q_x, q_w, kLinear)));
  return graph;
}

Graph rows_graph(const LinearShape& s) {
  Graph graph = typed_graph("rows");
  Builder b(graph);
  const ValueId x = matrix(b, "x", s.rows, s.n_in), q_x = matrix(b, "q_x", s.rows, s.n_in);
  const ValueId r = b.gemm(b.sub(x, q_x), matrix(b, "w", s.n_out, s.n_in), kLinear);
  output_norm(b, "residual", r);
  b.output("cross", b.gemm(r, q_x, kOverRows));
  b.output("gram", b.gemm(q_x, q_x, kOverRows));
  return graph;
}

Graph pair_graph(const LinearShape& s) {
  Graph graph = typed_graph("pair");
  Builder b(graph);
  b.output("product",
           b.gemm(matrix(b, "d", s.n_out, s.n_in), matrix(b, "gram", s.n_in, s.n_in), {}));
  return graph;
}

Graph gram_graph(int64_t rows, int64_t n_in) {
  Graph graph = typed_graph("gram");
  Builder b(graph);
  const ValueId x = matrix(b, "x", rows, n_in);
  b.output("sum", b.gemm(x, x, kOverRows));
  return graph;
}

double read_square(const SmallPlan& plan, std::string_view name) {
  float norm = 0;
  plan.read(name, std::as_writable_bytes(std::span(&norm, 1)));
  return static_cast<double>(norm) * static_cast<double>(norm);
}

void write(SmallPlan& plan, std::string_view name, std::span<const float> values) {
  plan.write(name, std::as_bytes(values));
}

// Rows that a smaller batch lacks are zeros, which add nothing to any sum.
void write_rows(SmallPlan& plan, std::string_view name, std::span<const float> x,
                const LinearShape& shape) {
  const auto n = static_cast<size_t>(shape.rows * shape.n_in);
  if (x.size() == n) return write(plan, name, x);
  std::vector<float> padded(x.begin(), x.end());
  padded.resize(n, 0.0f);
  write(plan, name, padded);
}

void add_output(const SmallPlan& plan, std::string_view name, std::vector<float>& part,
                std::vector<double>& sum) {
  part.resize(sum.size());
  plan.read(name, std::as_writable_bytes(std::span(part)));
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(part[i]);
}

}  // namespace

OutputError::OutputError(const LinearShape& shape, std::span<const float> w,
                         std::span<const float> q_w, Backend& backend)
    : shape_(shape), plan_(error_graph(shape), backend) {
  write(plan_, "w", w);
  write(plan_, "q_w", q_w);
}

void OutputError::add(std::span<const float> x, std::span<const float> q_x) {
  write_rows(plan_, "x", x, shape_);
  write_rows(plan_, "q_x", q_x, shape_);
  plan_.run();
  signal_ += read_square(plan_, "signal");
  error_ += read_square(plan_, "error");
}

PairErrors::PairErrors(const LinearShape& shape, std::span<const float> w, Backend& backend)
    : shape_(shape),
      pool_(*backend.pool),
      rows_(rows_graph(shape), backend),
      pair_(pair_graph(shape), backend) {
  write(rows_, "w", w);
  clear();
}

void PairErrors::clear() {
  residual_ = 0;
  cross_.assign(static_cast<size_t>(shape_.n_out * shape_.n_in), 0.0);
  gram_.assign(static_cast<size_t>(shape_.n_in * shape_.n_in), 0.0);
}

void PairErrors::add(std::span<const float> x, std::span<const float> q_x) {
  write_rows(rows_, "x", x, shape_);
  write_rows(rows_, "q_x", q_x, shape_);
  rows_.run();
  residual_ += read_square(rows_, "residual");
  add_output(rows_, "cross", part_, cross_);
  add_output(rows_, "gram", part_, gram_);
  is_gram_written_ = false;
}

double PairErrors::error(std::span<const float> d) {
  if (!is_gram_written_) {
    part_.assign(gram_.begin(), gram_.end());
    write(pair_, "gram", part_);
    is_gram_written_ = true;
  }
  write(pair_, "d", d);
  pair_.run();
  part_.resize(d.size());
  pair_.read("product", std::as_writable_bytes(std::span(part_)));
  const auto n_in = static_cast<size_t>(shape_.n_in);
  std::vector<double> by_output(static_cast<size_t>(shape_.n_out), 0.0);
  pool_.run(shape_.n_out, [&](int64_t row, int) {
    double sum = 0;
    for (size_t i = static_cast<size_t>(row) * n_in, end = i + n_in; i < end; ++i)
      sum += static_cast<double>(d[i]) * (2 * cross_[i] + static_cast<double>(part_[i]));
    by_output[static_cast<size_t>(row)] = sum;
  });
  double total = residual_;
  for (const double sum : by_output) total += sum;
  return total;
}

Gram::Gram(int64_t rows, int64_t n_in, Backend& backend)
    : rows_(rows),
      n_in_(n_in),
      plan_(gram_graph(rows, n_in), backend),
      sum_(static_cast<size_t>(n_in * n_in), 0.0) {}

void Gram::add(std::span<const float> x) {
  write_rows(plan_, "x", x, {.rows = rows_, .n_in = n_in_});
  plan_.run();
  add_output(plan_, "sum", part_, sum_);
}

}  // namespace octet
