// Each fused op equals its decomposition bit for bit on the fast kernels, over ragged sizes, with
// poisoned results, and with NaN and Inf among the values.
#include <fmt/format.h>

#include <random>
#include <span>

#include "run.h"

namespace octet::fusion {
namespace {

constexpr int64_t kRows[] = {1, 17, 130};
constexpr int64_t kCols[] = {16, 40, 352};

enum class Values : uint8_t { normal, zeros_too, with_nan, with_inf };
constexpr Values kAllValues[] = {Values::normal, Values::zeros_too, Values::with_nan,
                                 Values::with_inf};
constexpr Values kFewValues[] = {Values::normal, Values::with_nan};

std::vector<double> values_of(const TensorType& type, Values kind, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> scale(0.25, 2);
  std::vector<double> values(static_cast<size_t>(type.n_elems()));
  const bool codes = is_quantized(type.dtype);
  for (double& x : values) x = codes ? 20 * normal(random) : normal(random);
  if (type.dtype == Dtype::i32) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
    return values;
  }
  if (values.empty() || type.shape.size() < 2) {
    for (double& x : values) x = scale(random);  // weights, statistics, scales
    return values;
  }
  if (kind == Values::zeros_too) {
    for (size_t i = 0; i < values.size(); ++i) values[i] *= i / 16 % 3 == 0 ? 0 : 1;
  }
  const size_t at = values.size() * 2 / 3;
  if (kind == Values::with_nan) values[at] = std::nan("");
  if (kind == Values::with_inf && !codes) values[at] = -INFINITY;
  return values;
}

struct Fused {
  std::string name;
  OpCode op;
  Attrs attrs;
  std::vector<TensorType> operands;  // an empty type with dtype real: absent
  std::vector<ResultType> results;
};

TensorType absent() {
  return {.dtype = Dtype::real, .shape = {}};
}

Graph graph_of(const Fused& f) {
  Graph graph;
  graph.name = f.name;
  graph.phase = Phase::typed;
  Builder b(graph);
  std::vector<ValueId> operands;
  for (size_t i = 0; i < f.operands.size(); ++i) {
    const bool none = f.operands[i].dtype == Dtype::real;
    operands.push_back(none ? kNoValue
                            : b.input(InputKind::batch, op_cases::input_name(i), f.operands[i]));
  }
  std::vector<ResultType> types = op_cases::said_types(f.op, Dtype::f32, f.results);
  std::copy(f.results.begin(), f.results.end(), types.begin());
  const auto results = b.emit_typed(f.op, f.attrs, operands, types);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != kNoValue) b.output(op_cases::output_name(i), results[i]);
  }
  return graph;
}

struct Size {
  int64_t rows, cols;
  Shape shape() const { return {rows, cols}; }
};

// A matrix that is plain (group 0) or codes, and its scales.
std::pair<TensorType, TensorType> stored(Size size, int64_t group, Dtype plain) {
  if (group == 0) return {{plain, size.shape()}, absent()};
  const TensorType x{.dtype = Dtype::e4m3,
                     .shape = size.shape(),
                     .granularity = {Granularity::Kind::group, group, Dtype::bf16}};
  return {x, scale_type(x)};
}

struct Case {
  Size size;
  Dtype dtype;
  int64_t group;
};

enum class StoredLayout : uint8_t { rows, transposed, both };
// Scale of a quantizer in a layer: by the amax of now, a scale that is given (with the statistics
// of a norm too), or a history of maxima.
enum class ScaleFrom : uint8_t { own, given, given_too, history };

struct Quantizing {
  ResultType type;
  QuantizeAttrs q;
  bool both;
  ScaleFrom from;
  // Behind the layer's operands.
  void append(std::vector<TensorType>& operands, int n_statistics) const {
    const int64_t rows = operands[0].shape[0];
    const bool given = from == ScaleFrom::given || from == ScaleFrom::given_too;
    operands.push_back(given ? TensorType{Dtype::f32, {}} : absent());
    if (from == ScaleFrom::history) operands.push_back({Dtype::f32, {5}});
    if (from != ScaleFrom::given_too || n_statistics == 0) return;
    operands.push_back(absent());
    operands.insert(operands.end(), static_cast<size_t>(n_statistics), {Dtype::f32, {rows}});
  }
};

void add_quantizing_layers(std::vector<Fused>& all, const Case& c, const Quantizing& k) {
  const auto [x, scales] = stored(c.size, c.group, c.dtype);
  const bool bare = k.from == ScaleFrom::given;
  const TensorType weight = bare ? absent() : TensorType{c.dtype, {c.size.cols}};
  const NormAttrs norm{.eps = 1e-5};
  const auto put = [&](OpCode op, Attrs attrs, std::vector<TensorType> operands) {
    k.append(operands, op == OpCode::rms_norm_quantize     ? 1
                       : op == OpCode::layer_norm_quantize ? 2
                                                           : 0);
    all.push_back(
        {std::string(op_def(op).name), op, std::move(attrs), std::move(operands), {k.type}});
  };
  put(OpCode::rms_norm_quantize, NormQuantizeAttrs{norm, k.q, k.both}, {x, weight, scales});
  put(OpCode::layer_norm_quantize, NormQuantizeAttrs{norm, k.q, k.both},
      {x, weight, weight, scales});
  put(OpCode::gated_act_quantize, GatedActQuantizeAttrs{{}, k.q, k.both}, {x, x, scales, scales});
  for (const GeluKind kind : {GeluKind::tanh, GeluKind::erf}) {
    put(OpCode::gelu_quantize, GeluQuantizeAttrs{{.kind = kind}, k.q, k.both}, {x, scales});
  }
}

void add_quantizing(std::vector<Fused>& all, const Case& c) {
  const std::pair<Dtype, double> formats[] = {
      {Dtype::e4m3, 448}, {Dtype::e5m2, 57344}, {Dtype::hif8, 15}};
  for (const auto& [format, target] : formats) {
    for (const StoredLayout layout :
         {StoredLayout::rows, StoredLayout::transposed, StoredLayout::both}) {
      for (const ScaleFrom from :
           {ScaleFrom::own, ScaleFrom::given, ScaleFrom::given_too, ScaleFrom::history}) {
        const bool transposed = layout == StoredLayout::transposed;
        const ResultType by_row = format, type = transposed ? by_row.transposed(16) : by_row;
        add_quantizing_layers(all, c,
                              {type, {.target = target}, layout == StoredLayout::both, from});
      }
    }
  }
}

// Ops on stored operands, whose decompositions dequantize first. Their results are f32.
void add_stored(std::vector<Fused>& all, const Case& c) {
  const auto [x, scales] = stored(c.size, c.group, c.dtype);
  const TensorType dy{c.dtype, c.size.shape()}, w{c.dtype, {c.size.cols}};
  const TensorType rows{Dtype::f32, {c.size.rows}};
  const NormAttrs norm{.eps = 1e-5};
  const GatedActAttrs act;
  const GeluAttrs gelu{.kind = GeluKind::tanh};
  all.push_back({"rms_norm", OpCode::rms_norm, norm, {x, w, scales}, {}});
  all.push_back({"rms_norm_grad", OpCode::rms_norm_grad, norm, {dy, x, rows, w, scales}, {}});
  all.push_back(
      {"rms_norm_grad_no_w", OpCode::rms_norm_grad, norm, {dy, x, rows, absent(), scales}, {}});
  all.push_back({"rms_norm_grad_c", OpCode::rms_norm_grad, norm, {dy, x, rows, w, scales, dy}, {}});
  all.push_back({"layer_norm", OpCode::layer_norm, norm, {x, w, w, scales}, {}});
  all.push_back(
      {"layer_norm_grad", OpCode::layer_norm_grad, norm, {dy, x, rows, rows, w, scales}, {}});
  all.push_back(
      {"layer_norm_grad_c", OpCode::layer_norm_grad, norm, {dy, x, rows, rows, w, scales, dy}, {}});
  all.push_back({"gated_act", OpCode::gated_act, act, {x, x, scales, scales}, {}});
  all.push_back({"gated_act_grad", OpCode::gated_act_grad, act, {dy, x, x, scales, scales}, {}});
  all.push_back({"gelu", OpCode::gelu, gelu, {x, scales}, {}});
  all.push_back({"gelu_grad", OpCode::gelu_grad, gelu, {dy, x, scales}, {}});
}

void add_rest(std::vector<Fused>& all, const Case& c) {
  const TensorType x{c.dtype, c.size.shape()};
  const TensorType w{c.dtype, {c.size.cols}}, rows{Dtype::f32, {c.size.rows}};
  all.push_back(
      {"rms_norm_grad_c", OpCode::rms_norm_grad, NormAttrs{}, {x, x, rows, w, absent(), x}, {}});
  all.push_back({"layer_norm_grad_c",
                 OpCode::layer_norm_grad,
                 NormAttrs{},
                 {x, x, rows, rows, absent(), absent(), x},
                 {}});
  if (c.group > 0) {
    const ResultType groups(stored(c.size, c.group, c.dtype).first);
    all.push_back(
        {"add_quantize", OpCode::add_quantize, QuantizeAttrs{}, {x, x}, {c.dtype, groups}});
  }
  for (const int64_t pad : {1, 16}) {
    const QuantizeAttrs q{.target = 57344};
    const ResultType by_row = Dtype::e5m2, transposed = by_row.transposed(pad), f32 = Dtype::f32;
    const std::vector<ResultType> e5m2{by_row, f32, f32, f32, transposed};
    const TensorType scalar{Dtype::f32, {}}, history{Dtype::f32, {5}};
    all.push_back({"quantize_both", OpCode::quantize_both, q, {x, scalar}, {by_row, transposed}});
    for (const bool both : {false, true}) {
      const AmaxQuantizeAttrs own{q, both, true}, known{q, both, false};
      all.push_back({"amax_quantize", OpCode::amax_quantize, own, {x}, e5m2});
      all.push_back(
          {"amax_quantize_delayed", OpCode::amax_quantize, own, {x, history, scalar}, e5m2});
      all.push_back(
          {"amax_quantize_known", OpCode::amax_quantize, known, {x, absent(), scalar}, e5m2});
    }
  }
}

// Gradients and rope with the amax of what they store.
void add_amax_results(std::vector<Fused>& all, const Case& c) {
  const auto [x, scales] = stored(c.size, c.group, c.dtype);
  const TensorType dy{c.dtype, c.size.shape()}, positions{Dtype::i32, {c.size.rows}};
  const GatedActAttrs act{.amax = true};
  const GeluAttrs gelu{.kind = GeluKind::erf, .amax = true};
  const auto put = [&](OpCode op, Attrs attrs, std::vector<TensorType> operands) {
    std::vector<ResultType> types(op_def(op).amax_results, c.dtype);
    all.push_back({std::string(op_def(op).name), op, std::move(attrs), std::move(operands),
                   std::move(types)});
  };
  put(OpCode::gated_act_grad, act, {dy, x, x, scales, scales});
  put(OpCode::gelu_grad, gelu, {dy, x, scales});
  const TensorType w{c.dtype, {c.size.cols}}, rows{Dtype::f32, {c.size.rows}};
  const NormAttrs norm{.eps = 1e-5, .amax = true};
  put(OpCode::rms_norm_grad, norm, {dy, x, rows, absent(), scales, dy});
  put(OpCode::rms_norm_grad, norm, {dy, x, rows, w, scales});
  put(OpCode::layer_norm_grad, norm, {dy, x, rows, rows, w, scales});
  if (c.group > 0) return;
  put(OpCode::rope, RopeAttrs{.heads = c.size.cols / 8, .head_dim = 8, .amax = true},
      {dy, positions});
}

void expect_equal_parts(const Fused& f, Values kind, uint64_t seed) {
  const Graph whole = graph_of(f), parts = decomposed_once(whole);
  std::mt19937_64 random(seed);
  Tensors inputs;
  for (const GraphInput& input : whole.inputs) {
    inputs[input.name] = values_of(whole.type(input.value), kind, random);
  }
  expect_same(run_plan(whole, inputs, fast_backend()), run_plan(parts, inputs, fast_backend()),
              fmt::format("{} kind {}", print(whole), static_cast<int>(kind)));
}

class fusion : public testing::TestWithParam<int64_t> {};

TEST_P(fusion, fused_ops_equal_their_decompositions) {
  // One count of rows has every kind: they meet the ends of vectors, which columns make.
  std::span<const Values> kinds(kAllValues);
  if (GetParam() != 17) kinds = kFewValues;
  uint64_t seed = 1;
  for (const int64_t cols : kCols) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      for (const int64_t group : {0, 16, 24}) {
        std::vector<Fused> all;
        const Case c{{GetParam(), cols}, dtype, group};
        add_quantizing(all, c);
        if (group > 0) add_stored(all, c);
        add_amax_results(all, c);
        add_rest(all, c);
        for (const Fused& f : all) {
          for (const Values kind : kinds) expect_equal_parts(f, kind, ++seed);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(rows, fusion, testing::ValuesIn(kRows));

// Depthwise convolutions and their gradients of pictures, whose steps have the order of the sums;
// the gradient of a weight has another one than a sum over all windows.
TEST(depthwise, convolutions_equal_their_decompositions) {
  const UnfoldAttrs about_each{.picture = {5, 7},
                               .window = {3, 3},
                               .stride = {1, 1},
                               .dilation = {1, 1},
                               .low = {1, 1},
                               .high = {1, 1}};
  UnfoldAttrs halved = about_each, apart = about_each;
  halved.stride = {2, 2}, halved.low = {0, 0};
  apart.dilation = apart.low = apart.high = {2, 2};
  uint64_t seed = 1;
  for (const UnfoldAttrs& a : {about_each, halved, apart}) {
    for (const int64_t channels : {3, 16, 41}) {
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        const int64_t n_pictures = channels == 16 ? 3 : 1;
        const TensorType x{dtype, {n_pictures * 35, channels}}, w{dtype, {channels, 9}},
            dy{dtype, {n_pictures * a.n_windows(0) * a.n_windows(1), channels}};
        const Fused all[] = {
            {"forward", OpCode::depthwise, ConvolutionAttrs{a, GemmRole::forward}, {x, w}, {}},
            {"dgrad", OpCode::depthwise, ConvolutionAttrs{a, GemmRole::dgrad}, {dy, w}, {}}};
        for (const Fused& f : all)
          for (const Values kind : kAllValues) expect_equal_parts(f, kind, ++seed);
      }
    }
  }
}

Tensors inputs_of(const Graph& graph, Values kind) {
  std::mt19937_64 random(5);
  Tensors inputs;
  for (const GraphInput& input : graph.inputs)
    inputs[input.name] = values_of(graph.type(input.value), kind, random);
  return inputs;
}

// The flag is set by what is not finite, and only then.
TEST(flags, nan_and_inf_are_flagged) {
  for (const Values kind : kAllValues) {
    std::vector<Fused> all;
    add_quantizing(all, {{17, 40}, Dtype::bf16, 0});
    for (const Fused& f : all) {
      const Graph graph = graph_of(f);
      if (graph.find_output("out2") == nullptr) continue;  // its scale is given
      const Tensors inputs = inputs_of(graph, kind);
      // GELU of -Inf in its tanh form is 0 times -Inf, a NaN, and in its erf form as well.
      const bool bad = kind == Values::with_nan || kind == Values::with_inf;
      const Tensors out = run_plan(graph, inputs, fast_backend());
      EXPECT_EQ(out.at("out2")[0], bad ? 1 : 0) << f.name << " " << static_cast<int>(kind);
      EXPECT_TRUE(std::isfinite(out.at("out1")[0]) && out.at("out1")[0] > 0) << f.name;
    }
  }
}

TEST(flags, an_emitted_amax_flags_nan_and_inf) {
  for (const Values kind : kAllValues) {
    std::vector<Fused> all;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) add_amax_results(all, {{17, 40}, dtype, 0});
    for (const Fused& f : all) {
      const Graph graph = graph_of(f);
      const Tensors inputs = inputs_of(graph, kind);
      const bool bad = kind == Values::with_nan || kind == Values::with_inf;
      const Tensors out = run_plan(graph, inputs, fast_backend());
      const size_t at = op_def(graph.nodes.back().op).own_results();
      EXPECT_EQ(out.at(op_cases::output_name(at + 1))[0], bad ? 1 : 0) << f.name;
      const double amax = out.at(op_cases::output_name(at))[0];
      EXPECT_TRUE(std::isfinite(amax) && amax > 0) << f.name;
    }
  }
}

}  // namespace
}  // namespace octet::fusion
