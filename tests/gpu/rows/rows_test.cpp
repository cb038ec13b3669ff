// Norms, activations, rotary embedding and biases at sizes that the op cases do not have: rows of
// whole groups, which the fast kernels take, several blocks, ragged tiles. Against the CPU's fast
// kernels.
#include <limits>

#include "gpu/parity/gpu.h"
#include "property/fusion/run.h"

namespace octet::fusion {
namespace {

using namespace op_cases;  // NOLINT(google-build-using-namespace): the makers of cases

struct Size {
  int64_t rows, cols;
};

class SizedCases {
 public:
  SizedCases(Size size, Dtype wide) : size_(size), wide_(wide) {}

  void add(std::string name, OpCode op, Attrs attrs, std::vector<OperandCase> operands,
           std::vector<ResultType> results = {}) {
    name += fmt::format(" {} x {} {}", size_.rows, size_.cols, dtype_name(wide_));
    all_.push_back({.name = std::move(name),
                    .op = op,
                    .attrs = std::move(attrs),
                    .operands = std::move(operands),
                    .typed_only = true,
                    .results = std::move(results)});
  }
  OperandCase matrix() const { return tensor({size_.rows, size_.cols}); }
  OperandCase vector() const { return tensor({size_.cols}); }
  OperandCase per_row() const { return scales({size_.rows}); }
  // Codes in groups and their scales, or the plain matrix and no scales.
  OperandCase stored(int64_t group) const {
    if (group == 0) return matrix();
    return codes({size_.rows, size_.cols}, Dtype::e4m3, fmt::format("1x{}", group));
  }
  OperandCase group_scales(int64_t group) const {
    return group == 0 ? none() : scales_of(stored(group));
  }
  const std::vector<OpCase>& all() const { return all_; }

 private:
  Size size_;
  Dtype wide_;
  std::vector<OpCase> all_;
};

std::vector<OperandCase> joined(std::vector<OperandCase> a, const std::vector<OperandCase>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void add_layers(SizedCases& cases, int64_t group) {
  const OperandCase x = cases.stored(group), s = cases.group_scales(group), w = cases.vector();
  const OperandCase dy = cases.matrix(), rstd = cases.per_row();
  const NormAttrs norm{.eps = 1e-5};
  cases.add("rms_norm", OpCode::rms_norm, norm, {x, w, s});
  cases.add("rms_norm plain", OpCode::rms_norm, norm, {x, none(), s});
  cases.add("layer_norm", OpCode::layer_norm, norm, {x, w, w, s});
  cases.add("layer_norm plain", OpCode::layer_norm, norm, {x, none(), none(), s});
  cases.add("rms_norm_grad", OpCode::rms_norm_grad, norm, {dy, x, rstd, w, s});
  cases.add("rms_norm_grad plain", OpCode::rms_norm_grad, norm, {dy, x, rstd, none(), s});
  cases.add("rms_norm_grad c", OpCode::rms_norm_grad, norm, {dy, x, rstd, w, s, dy});
  cases.add("layer_norm_grad", OpCode::layer_norm_grad, norm, {dy, x, rstd, rstd, w, s});
  cases.add("layer_norm_grad c", OpCode::layer_norm_grad, norm, {dy, x, rstd, rstd, w, s, dy});
  cases.add("layer_norm_grad plain", OpCode::layer_norm_grad, norm, {dy, x, rstd, rstd, none(), s});
  for (const bool amax : {false, true}) {
    const NormAttrs grad{.eps = 1e-5, .amax = amax};
    cases.add("rms_norm_grad both", OpCode::rms_norm_grad, grad, {dy, x, rstd, w, s, dy});
    const GatedActAttrs act{.amax = amax};
    cases.add("gated_act_grad", OpCode::gated_act_grad, act, {dy, x, x, s, s});
  }
  cases.add("gated_act", OpCode::gated_act, GatedActAttrs{}, {x, x, s, s});
  for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
    const GeluAttrs gelu{.kind = kind};
    cases.add("gelu", OpCode::gelu, gelu, {x, s});
    cases.add("gelu_grad", OpCode::gelu_grad, gelu, {dy, x, s});
  }
}

enum class Layout : uint8_t { rows, transposed, both };
enum class Scale : uint8_t { own, given, given_too, delayed, first_delayed };

// given_too: the norm's statistics are given as well, n of them.
std::vector<OperandCase> scale_operands(Scale scale, const SizedCases& cases, size_t n) {
  if (scale == Scale::own) return {};
  if (scale == Scale::given || (scale == Scale::given_too && n == 0)) return {scalar(0.02)};
  if (scale == Scale::given_too) {
    std::vector<OperandCase> operands = {scalar(0.02), none()};
    operands.insert(operands.end(), n, cases.per_row());
    return operands;
  }
  OperandCase history = scales({4});
  if (scale == Scale::first_delayed) {
    history.fill = Fill::constant;
    history.value = 0;
  }
  return {none(), history};
}

struct Quantized {
  QuantizeAttrs q;
  bool both = false;
  Scale scale = Scale::own;
  ResultType type = Dtype::e4m3;
  std::string name() const {
    return fmt::format(" {}{}{} scale {}", dtype_name(type.dtype),
                       type.layout.transposed ? " transposed" : "", both ? " both" : "",
                       static_cast<int>(scale));
  }
};

void add_quantized(SizedCases& cases, int64_t group, const Quantized& to) {
  const auto& [q, both, scale, type] = to;
  const auto behind = [&](size_t n_statistics) {
    return scale_operands(scale, cases, n_statistics);
  };
  const OperandCase x = cases.stored(group), s = cases.group_scales(group), w = cases.vector();
  const NormAttrs norm{.eps = 1e-5};
  cases.add("rms_norm" + to.name(), OpCode::rms_norm_quantize, NormQuantizeAttrs{norm, q, both},
            joined({x, w, s}, behind(1)), {type});
  cases.add("layer_norm" + to.name(), OpCode::layer_norm_quantize, NormQuantizeAttrs{norm, q, both},
            joined({x, w, w, s}, behind(2)), {type});
  cases.add("gated_act" + to.name(), OpCode::gated_act_quantize, GatedActQuantizeAttrs{{}, q, both},
            joined({x, x, s, s}, behind(0)), {type});
  cases.add("gelu" + to.name(), OpCode::gelu_quantize,
            GeluQuantizeAttrs{{.kind = GeluKind::tanh}, q, both}, joined({x, s}, behind(0)),
            {type});
}

void add_rest(SizedCases& cases, Size size) {
  cases.add("bias_add", OpCode::bias_add, NoAttrs{}, {cases.matrix(), cases.vector()});
  cases.add("column_sum", OpCode::column_sum, NoAttrs{}, {cases.matrix()});
  const int64_t head = size.cols % 128 == 0 ? 128 : 2;
  for (const bool inverse : {false, true}) {
    const RopeAttrs rope{
        .heads = size.cols / head, .head_dim = head, .inverse = inverse, .amax = inverse};
    cases.add("rope", OpCode::rope, rope,
              {cases.matrix(), integers({size.rows}, Fill::positions, size.rows)});
  }
}

// Codes: at most one in two hundred differs, by one step. The rest as f32 and bf16 round.
void expect_close(const OpCase& c, const Graph& graph, const Tensors& actual,
                  const Tensors& expected) {
  for (const GraphOutput& output : graph.outputs) {
    const auto& got = actual.at(output.name);
    const auto& want = expected.at(output.name);
    ASSERT_EQ(got.size(), want.size());
    const Dtype dtype = graph.type(output.value).dtype;
    double largest = 0;
    for (const double w : want) largest = std::max(largest, std::isfinite(w) ? std::abs(w) : 0);
    const double step = dtype == Dtype::bf16   ? 0x1p-7
                        : dtype == Dtype::fp16 ? 0x1p-10
                        : is_quantized(dtype)  ? 0.26
                                               : 1e-5;
    const double floor = is_quantized(dtype) ? 0x1p-9 : 4e-6 * (0.1 + largest);
    size_t n_other = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (same_value(got[i], want[i])) continue;
      ++n_other;
      ASSERT_LE(std::abs(got[i] - want[i]), floor + step * std::abs(want[i]))
          << c.name << ": " << output.name << "[" << i << "] " << dtype_name(dtype) << " is "
          << got[i] << ", expected " << want[i];
    }
    const size_t most = is_quantized(dtype) ? want.size() / 200 + 1 : want.size();
    EXPECT_LE(n_other, most) << c.name << " " << output.name;
  }
}

// FP16's amax has no fast kernel on the CPU.
void expect_parity(const SizedCases& cases, Dtype wide, Backend& gpu) {
  Backend& cpu = wide == Dtype::fp16 ? scalar_backend() : fast_backend();
  for (const OpCase& c : cases.all()) {
    const Graph graph = case_graph(c, wide);
    ASSERT_TRUE(gpu.catalogue->choose(graph, graph.nodes[0])) << c.name;
    const Tensors inputs = case_inputs(c, 5);
    const Tensors expected = run_plan(graph, inputs, cpu);
    expect_close(c, graph, run_plan(graph, inputs, gpu), expected);
  }
}

constexpr int64_t kMaxScalar = 20000;  // elements that the CPU's slow kernels are asked for
constexpr Size kSizes[] = {{1, 16},   {17, 768},  {300, 272}, {33, 4096},
                           {6, 8192}, {1100, 48}, {129, 130}};

TEST(rows, layers_equal_those_of_the_cpu) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Size size : kSizes) {
    for (const Dtype wide : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
      if (wide == Dtype::fp16 && size.rows * size.cols > kMaxScalar) continue;
      SizedCases cases(size, wide);
      add_layers(cases, 0);
      if (wide == Dtype::bf16) add_layers(cases, 16);
      add_rest(cases, size);
      expect_parity(cases, wide, *gpu);
    }
  }
}

TEST(rows, quantizing_layers_equal_those_of_the_cpu) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Size size : kSizes) {
    for (const auto& [wide, group] :
         {std::pair(Dtype::bf16, 0), std::pair(Dtype::bf16, 16), std::pair(Dtype::fp16, 0)}) {
      SizedCases cases(size, wide);
      for (const Scale scale :
           {Scale::own, Scale::given, Scale::given_too, Scale::delayed, Scale::first_delayed}) {
        for (const Layout layout : {Layout::rows, Layout::transposed, Layout::both}) {
          const ResultType by_row = Dtype::e4m3;
          const bool transposed = layout == Layout::transposed;
          add_quantized(
              cases, group,
              {{}, layout == Layout::both, scale, transposed ? by_row.transposed(16) : by_row});
        }
      }
      for (const Dtype dtype : {Dtype::hif8, Dtype::e5m2}) {
        if (group != 0) continue;
        const QuantizeAttrs q{.target = 15};
        for (const Scale scale : {Scale::own, Scale::delayed})
          add_quantized(cases, 0, {q, true, scale, dtype});
        add_quantized(cases, 0, {q, false, Scale::own, dtype});
      }
      expect_parity(cases, wide, *gpu);
    }
  }
}

// More tiles than a GPU turns at once, whole ones and others.
TEST(rows, many_tiles_of_codes_equal_those_of_the_cpu) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Size size : {Size{4096, 2304}, Size{4100, 2320}}) {
    SizedCases cases(size, Dtype::bf16);
    const ResultType transposed = ResultType(Dtype::e4m3).transposed(16);
    for (const Scale scale : {Scale::own, Scale::given})
      add_quantized(cases, 16, {{}, false, scale, transposed});
    expect_parity(cases, Dtype::bf16, *gpu);
  }
}

// More rows than a GPU's blocks hold at once, more heads than a block turns at once, and heads of
// which threads of a block are left over.
TEST(rows, many_rows_of_pairs_are_turned_as_by_the_cpu) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const int64_t head : {128, 160, 400}) {
    const int64_t heads = 18;
    SizedCases cases({2200, heads * head}, Dtype::bf16);
    cases.add("rope", OpCode::rope, RopeAttrs{.heads = heads, .head_dim = head, .amax = true},
              {cases.matrix(), integers({2200}, Fill::positions, 2200)});
    expect_parity(cases, Dtype::bf16, *gpu);
  }
}

// Input that specials go into: the plain matrix, or the scales of a stored one. Codes have no Inf.
std::string input_with_specials(const Graph& graph, int64_t group) {
  for (const GraphInput& input : graph.inputs) {
    const TensorType& type = graph.type(input.value);
    if (group == 0 || (type.dtype == Dtype::bf16 && type.shape.size() == 2)) return input.name;
  }
  return {};
}

// NaN, Inf and zeros in a result that is quantized: the flag, the scale of what is finite, codes.
TEST(rows, nonfinite_values_set_the_flag_and_zeros_have_scale_one) {
  OCTET_GPU_OR_SKIP(gpu);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [size, group] :
       {std::pair<Size, int64_t>{{33, 272}, 0}, {{5, 37}, 0}, {{33, 272}, 16}, {{9, 4112}, 16}}) {
    for (const bool both : {false, true}) {
      SizedCases cases(size, Dtype::bf16);
      const QuantizeAttrs q;
      add_quantized(cases, group, {q, both, Scale::own});
      for (const OpCase& c : cases.all()) {
        const Graph graph = case_graph(c, Dtype::bf16);
        for (const double special : {nan, inf, -inf, 0.0}) {
          Tensors inputs = case_inputs(c, 7);
          std::vector<double>& x = inputs.at(input_with_specials(graph, group));
          if (special == 0) std::fill(x.begin(), x.end(), 0.0);
          x[x.size() / 2] = x[x.size() - 1] = special;
          const Tensors actual = run_plan(graph, inputs, *gpu);
          EXPECT_EQ(actual.at("out2")[0], std::isfinite(special) ? 0 : 1) << c.name;
          expect_close(c, graph, actual, run_plan(graph, inputs, fast_backend()));
        }
      }
    }
  }
}

// The amax of codes in groups goes by their scales, which do not tell that a code is NaN.
TEST(rows, a_code_that_is_nan_sets_the_flag) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Size size : {Size{9, 272}, Size{33, 4112}}) {
    for (const bool both : {false, true}) {
      for (const Scale scale : {Scale::own, Scale::delayed}) {
        SizedCases cases(size, Dtype::bf16);
        const QuantizeAttrs q;
        add_quantized(cases, 16, {q, both, scale});
        for (const OpCase& c : cases.all()) {
          const Graph graph = case_graph(c, Dtype::bf16);
          Tensors inputs = case_inputs(c, 9);
          inputs.at("in0")[static_cast<size_t>(size.cols) + 5] =
              std::numeric_limits<double>::quiet_NaN();
          const Tensors actual = run_plan(graph, inputs, *gpu);
          EXPECT_EQ(actual.at("out2")[0], 1) << c.name;
          expect_close(c, graph, actual, run_plan(graph, inputs, fast_backend()));
        }
      }
    }
  }
}

// Layers on codes, of rows of several lengths, whose result's scale is of its own maximum.
std::vector<OpCase> with_own_scale(std::initializer_list<OpCode> layers) {
  std::vector<OpCase> found;
  for (const Size size : {Size{70, 256}, Size{300, 2064}, Size{40, 8192}}) {
    SizedCases cases(size, Dtype::bf16);
    add_quantized(cases, 16, {QuantizeAttrs{}, false, Scale::own});
    for (const OpCase& c : cases.all()) {
      if (std::ranges::find(layers, c.op) != layers.end()) found.push_back(c);
    }
  }
  return found;
}

// Groups of very different sizes: where one operand is large the other need not be.
TEST(rows, the_largest_activation_is_found_among_uneven_groups) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const OpCase& c : with_own_scale({OpCode::gated_act_quantize, OpCode::gelu_quantize})) {
    const Graph graph = case_graph(c, Dtype::bf16);
    for (const bool tiny : {false, true}) {
      Tensors inputs = case_inputs(c, 3);
      size_t step = 7;
      for (const GraphInput& input : graph.inputs) {
        if (graph.type(input.value).dtype != Dtype::bf16) continue;
        std::vector<double>& scales = inputs.at(input.name);
        for (size_t i = 0; i < scales.size(); ++i)
          scales[i] *= std::ldexp(1.0, static_cast<int>(i * step % 23) - (tiny ? 40 : 20));
        step = 11;
      }
      expect_close(c, graph, run_plan(graph, inputs, *gpu),
                   run_plan(graph, inputs, fast_backend()));
    }
  }
}

// Weights of very different sizes: the largest result need not be where the largest operand is.
TEST(rows, the_largest_result_is_found_under_uneven_weights) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const OpCase& c : with_own_scale({OpCode::rms_norm_quantize, OpCode::layer_norm_quantize})) {
    const Graph graph = case_graph(c, Dtype::bf16);
    Tensors inputs = case_inputs(c, 3);
    std::vector<double>& weight = inputs.at("in1");
    for (size_t i = 0; i < weight.size(); ++i)
      weight[i] *= std::ldexp(1.0, static_cast<int>(i * 7 % 23) - 16);
    expect_close(c, graph, run_plan(graph, inputs, *gpu), run_plan(graph, inputs, fast_backend()));
  }
}

}  // namespace
}  // namespace octet::fusion
