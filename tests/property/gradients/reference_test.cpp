// Promises of the reference kernels at corners: the cases that gradients and decompositions cannot
// tell apart.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "formats/bits.h"
#include "formats/periodic_scale.h"
#include "ir/builder.h"
#include "ir/ops/rope.h"
#include "math/adamw.h"
#include "op_cases/op_cases.h"

namespace octet::gradients_reference_test {
namespace {

using op_cases::OpCase;
using reference::Tensors;

const OpCase& find_case(const std::string& name) {
  for (const OpCase& c : op_cases::op_cases()) {
    if (c.name == name) return c;
  }
  throw Error(ErrorCode::internal, "no case {}", name);
}

// One result of one op; Logical, unless an operand has a storage dtype.
std::vector<double> run(OpCode op, const Attrs& attrs,
                        const std::vector<std::pair<TensorType, std::vector<double>>>& operands,
                        size_t result = 0, const std::vector<ResultType>& types = {}) {
  Graph graph;
  Builder b(graph);
  Tensors inputs;
  std::vector<ValueId> ids;
  for (const auto& [type, values] : operands) {
    const std::string name = op_cases::input_name(ids.size());
    ids.push_back(b.input(InputKind::batch, name, type));
    inputs[name] = values;
  }
  b.output("y", b.emit_typed(op, attrs, ids, types)[result]);
  return reference::interpret(graph, inputs)["y"];
}

TensorType real(Shape shape) {
  return {.dtype = Dtype::real, .shape = std::move(shape)};
}
TensorType i32(Shape shape) {
  return {.dtype = Dtype::i32, .shape = std::move(shape)};
}

using Numbers = std::vector<double>;

TEST(Reference, argmax_takes_the_first_of_equals) {
  EXPECT_EQ(run(OpCode::argmax, AxisAttrs{.axis = 1}, {{real({2, 3}), {1, 5, 5, 7, 7, -1}}}),
            (Numbers{1, 0}));
}

TEST(Reference, what_is_composed_of_primitives_has_their_meaning) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto axes = [](Shape a) { return AxesAttrs{.axes = std::move(a)}; };
  EXPECT_EQ(run(OpCode::argmin, AxisAttrs{.axis = 1}, {{real({2, 3}), {1, -5, -5, 7, 7, 8}}}),
            (Numbers{1, 0}));
  EXPECT_EQ(run(OpCode::reduce_min, axes({1}), {{real({2, 3}), {1, -5, 4, 7, 7, kInf}}}),
            (Numbers{-5, 7}));
  EXPECT_EQ(run(OpCode::reduce_prod, axes({1}), {{real({2, 3}), {2, -5, 3, 7, 0, 8}}}),
            (Numbers{-30, 0}));
  EXPECT_EQ(run(OpCode::reduce_prod, axes({0}), {{real({0, 2}), {}}}), (Numbers{1, 1}));
  EXPECT_EQ(run(OpCode::reverse, axes({0, 1}), {{real({2, 3}), {1, 2, 3, 4, 5, 6}}}),
            (Numbers{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(run(OpCode::reverse, axes({1}), {{i32({2, 3}), {1, 2, 3, 4, 5, 6}}}),
            (Numbers{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(run(OpCode::is_finite, NoAttrs{}, {{real({4}), {1, kInf, -kInf, std::nan("")}}}),
            (Numbers{1, 0, 0, 0}));
  EXPECT_EQ(run(OpCode::integer_pow, PowerAttrs{.n = 5}, {{real({3}), {2, -1, 0}}}),
            (Numbers{32, -1, 0}));
  EXPECT_EQ(run(OpCode::integer_pow, PowerAttrs{.n = -2}, {{real({2}), {2, -4}}}),
            (Numbers{0.25, 0.0625}));
  const WindowAttrs window{.window = {2}, .stride = {2}, .low = {1}, .high = {0}};
  const auto windows = [&](WindowReduction reduction) {
    WindowAttrs attrs = window;
    attrs.reduction = reduction;
    return run(OpCode::reduce_window, attrs, {{real({5}), {-1, -2, -3, -5, -4}}});
  };
  EXPECT_EQ(windows(WindowReduction::sum), (Numbers{-1, -5, -9}));
  EXPECT_EQ(windows(WindowReduction::max), (Numbers{-1, -2, -4}));
  EXPECT_EQ(windows(WindowReduction::min), (Numbers{-1, -3, -5}));
}

TEST(Reference, comparisons_with_a_nan) {
  const Numbers a = {1, 2, 2, std::nan("")}, b = {2, 2, 1, 1};
  const auto of = [&](OpCode op) { return run(op, NoAttrs{}, {{real({4}), a}, {real({4}), b}}); };
  EXPECT_EQ(of(OpCode::not_equal), (Numbers{1, 0, 1, 1}));
  EXPECT_EQ(of(OpCode::less_equal), (Numbers{1, 1, 0, 0}));
  EXPECT_EQ(of(OpCode::greater), (Numbers{0, 0, 1, 0}));
  EXPECT_EQ(of(OpCode::greater_equal), (Numbers{0, 1, 1, 0}));
}

TEST(Reference, an_index_outside_reads_zeros_and_adds_nothing) {
  EXPECT_EQ(run(OpCode::gather, NoAttrs{}, {{real({2, 2}), {1, 2, 3, 4}}, {i32({3}), {-1, 1, 2}}}),
            (Numbers{0, 0, 3, 4, 0, 0}));
  EXPECT_EQ(run(OpCode::scatter_add, ScatterAddAttrs{.rows = 2},
                {{real({3, 1}), {1, 2, 4}}, {i32({3}), {-1, 1, 2}}}),
            (Numbers{0, 2}));
}

TEST(Reference, an_ignored_label_has_no_loss_and_no_gradient) {
  const std::pair logits(real({2, 2}), Numbers{1, 2, 3, 4});
  const std::pair labels(i32({2}), Numbers{-1, 0});
  const std::pair inv_n(real({}), Numbers{1});
  const double lse = std::log(std::exp(3.0) + std::exp(4.0));
  const auto nll = run(OpCode::cross_entropy, CrossEntropyAttrs{}, {logits, labels, inv_n}, 2);
  EXPECT_EQ(nll[0], 0);
  EXPECT_NEAR(nll[1], lse - 3, 1e-12);
  const std::pair all_lse(real({2}), Numbers{2.5, lse});
  const auto grad =
      run(OpCode::cross_entropy_grad, CrossEntropyAttrs{}, {inv_n, logits, labels, all_lse, inv_n});
  EXPECT_EQ(grad[0], 0);
  EXPECT_EQ(grad[1], 0);
  EXPECT_NEAR(grad[2], std::exp(3 - lse) - 1, 1e-12);
}

// An infinite logit counts where it stands alone: a class that is masked, and a row without label.
TEST(Reference, a_masked_class_has_no_part_in_other_losses) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::pair logits(real({2, 3}), Numbers{1, -inf, 3, inf, -inf, std::nan("")});
  const std::pair labels(i32({2}), Numbers{0, 3});
  const std::pair one(real({}), Numbers{1});
  const double lse = std::log(std::exp(1.0) + std::exp(3.0));
  const auto nll = run(OpCode::cross_entropy, CrossEntropyAttrs{}, {logits, labels, one}, 2);
  EXPECT_NEAR(nll[0], lse - 1, 1e-12);
  EXPECT_EQ(nll[1], 0);
  EXPECT_EQ(run(OpCode::cross_entropy, CrossEntropyAttrs{}, {logits, labels, one})[0], nll[0]);
  const std::pair all_lse(real({2}), Numbers{lse, inf});
  const auto grad =
      run(OpCode::cross_entropy_grad, CrossEntropyAttrs{}, {one, logits, labels, all_lse, one});
  EXPECT_NEAR(grad[0], std::exp(1 - lse) - 1, 1e-12);
  EXPECT_EQ(grad[1], 0);
  EXPECT_NEAR(grad[2], std::exp(3 - lse), 1e-12);
  EXPECT_EQ((Numbers{grad.begin() + 3, grad.end()}), (Numbers{0, 0, 0}));
}

TEST(Reference, a_cast_in_rounds_to_its_dtype_and_back) {
  const Numbers x{0.1, -1.0625, 447, 4e4, -3e-9};
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::e4m3, Dtype::e5m2}) {
    Numbers rounded = x;
    for (double& e : rounded) e = reference::round_to(dtype, e);
    EXPECT_EQ(run(OpCode::cast_in, CastInAttrs{.dtype = dtype}, {{real({5}), x}}), rounded)
        << dtype_name(dtype);
    const CastInAttrs backward{.dtype = dtype, .direction = Direction::backward};
    EXPECT_EQ(run(OpCode::cast_in, backward, {{real({5}), x}}), x) << dtype_name(dtype);
  }
}

// The scale as the formats say it, over 232 octaves and around each power of two.
TEST(Reference, a_periodic_scale_is_that_of_the_formats) {
  const std::pair before(real({}), Numbers{0.375});
  for (const double target : {15.0, 448.0, 32768.0}) {
    for (int octave = -120; octave < 112; octave += 3) {
      for (const double factor : {0.0, 1.0, 1 - 0x1p-24, 1 + 0x1p-23, 1.4142135, 1.4142136, 1.7}) {
        const double amax = reference::round_to(Dtype::f32, std::ldexp(target * factor, octave));
        const auto scale = run(OpCode::periodic_scale, AmaxScaleAttrs{.target = target},
                               {{real({}), {amax}}, before});
        EXPECT_EQ(scale[0], octet::periodic_scale(0.375f, static_cast<float>(amax),
                                                  static_cast<float>(target)))
            << amax << " to " << target;
      }
    }
  }
}

TEST(Reference, a_skipped_update_changes_nothing) {
  for (const char* name : {"adamw_step_skipped", "adamw_step_remainder_skipped"}) {
    const OpCase& c = find_case(name);
    Tensors inputs = case_inputs(c, 5);
    const Graph graph = case_graph(c, Dtype::f32);
    for (double& x : inputs["in0"]) x = reference::round_to(graph.type(0).dtype, x);
    for (const char* float_input : {"in2", "in3"}) {
      for (double& x : inputs[float_input]) x = reference::round_to(Dtype::f32, x);
    }
    inputs["in1"][0] = std::numeric_limits<double>::quiet_NaN();
    const Tensors outputs = reference::interpret(graph, inputs);
    EXPECT_EQ(outputs.at("out0"), inputs["in0"]) << name;
    EXPECT_EQ(outputs.at("out1"), inputs["in2"]) << name;
    EXPECT_EQ(outputs.at("out2"), inputs["in3"]) << name;
    if (c.operands.size() > 9) {
      EXPECT_EQ(outputs.at("out3"), inputs["in9"]) << name;
    }
  }
}

// The bf16 weight and its remainder walk exactly as an f32 master does.
TEST(Reference, a_remainder_is_an_f32_master) {
  const OpCase& c = find_case("adamw_step_remainder");
  const Tensors inputs = case_inputs(c, 7);
  const Tensors split = reference::interpret(case_graph(c), inputs);
  OpCase whole = c;
  whole.operands.pop_back();
  whole.operands[0] = op_cases::typed({37}, Dtype::f32, op_cases::Fill::normal);
  Tensors master = inputs;
  master.erase("in9");
  for (size_t i = 0; i < 37; ++i) {
    const auto w = static_cast<float>(reference::round_to(Dtype::bf16, inputs.at("in0")[i]));
    const auto lo = static_cast<int16_t>(inputs.at("in9")[i]);
    master["in0"][i] = join_master({static_cast<uint16_t>(bits_of(w) >> 16), lo});
  }
  const Tensors expected = reference::interpret(case_graph(whole), master);
  for (size_t i = 0; i < 37; ++i) {
    const auto hi = static_cast<float>(split.at("out0")[i]);
    const auto lo = static_cast<int16_t>(split.at("out3")[i]);
    EXPECT_EQ(join_master({static_cast<uint16_t>(bits_of(hi) >> 16), lo}),
              static_cast<float>(expected.at("out0")[i]))
        << i;
  }
}

TEST(Reference, a_master_splits_and_joins_exactly) {
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFu; bits += 65521 * 3) {
    const float x = float_of(static_cast<uint32_t>(bits));
    const MasterBits parts = split_master(x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(float_of(static_cast<uint32_t>(parts.hi) << 16)));
    } else {
      EXPECT_EQ(bits_of(join_master(parts)), bits) << bits;
    }
  }
  EXPECT_EQ(split_master(float_of(0x3F808000u)).hi, 0x3F81);  // half goes up
}

TEST(Reference, rounds_once_to_every_dtype) {
  struct Row {
    Dtype dtype;
    double x, rounded;
  };
  const double inf = std::numeric_limits<double>::infinity();
  const Row rows[] = {
      {Dtype::real, 0.1, 0.1},
      {Dtype::f32, 0.1, 0.1f},
      {Dtype::bf16, 1 + 0x1p-8, 1},                     // a tie goes to the even code
      {Dtype::bf16, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-7},  // f32 first would make it a tie
      {Dtype::bf16, -(1 + 0x1p-8 + 0x1p-40), -(1 + 0x1p-7)},
      {Dtype::bf16, 1e39, inf},
      {Dtype::fp16, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-10},
      {Dtype::fp16, 70000, inf},
      {Dtype::e4m3, 1000, 448},
      {Dtype::e5m2, 1e6, inf},
      {Dtype::i32, -7, -7},
      {Dtype::i16, 40000, 32767},
      {Dtype::u8, -3, 0},
      {Dtype::boolean, 2, 1},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(reference::round_to(row.dtype, row.x), row.rounded)
        << dtype_name(row.dtype) << " " << row.x;
    if (row.dtype == Dtype::real) continue;
    std::vector<std::byte> storage(static_cast<size_t>(dtype_bytes(row.dtype)));
    reference::store(row.dtype, std::span(&row.x, 1), storage.data());
    double back = 0;
    reference::load(row.dtype, storage.data(), std::span(&back, 1));
    EXPECT_EQ(back, row.rounded) << dtype_name(row.dtype) << " " << row.x;
  }
}

// f for Llama 3.1's published numbers, made with Hugging Face's formula in f64.
TEST(Reference, llama3_rope_scales_low_frequencies_only) {
  const RopeAttrs attrs{.heads = 1,
                        .head_dim = 128,
                        .theta = 500000,
                        .scaling = RopeScaling::llama3,
                        .factor = 8,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .original_max_position = 8192};
  const std::vector<double> f = rope_frequencies(attrs);
  ASSERT_EQ(f.size(), 64u);
  EXPECT_DOUBLE_EQ(f[0], 1);
  EXPECT_NEAR(f[20], 0.016560440080994446, 1e-15);
  EXPECT_NEAR(f[30], 0.0013718935677611381, 1e-15);
  EXPECT_NEAR(f[32], 0.00052484616099295468, 1e-15);
  EXPECT_NEAR(f[63], 3.0689259889145111e-07, 1e-18);
}

TEST(Reference, the_history_of_a_delayed_scale_is_a_line) {
  const AmaxScaleAttrs q;
  const TensorType f32{.dtype = Dtype::f32, .shape = {}};
  const TensorType line{.dtype = Dtype::f32, .shape = {3}};
  const auto step = [&](double amax, const Numbers& history, size_t result) {
    return run(OpCode::delayed_scale, q, {{f32, {amax}}, {line, history}}, result);
  };
  EXPECT_EQ(step(7, {1, 2, 3}, 1), (Numbers{2, 3, 7}));
  EXPECT_NEAR(step(7, {1, 4, 3}, 0)[0], 4.0 / 448, 1e-9);
  EXPECT_NEAR(step(7, {0, 0, 0}, 0)[0], 7.0 / 448, 1e-9);  // the first step uses current scaling
}

TEST(Reference, transposed_codes_are_padded_with_zeros) {
  const ResultType type = ResultType(Dtype::e4m3).transposed(4);
  const Numbers x{1, 2, 3, 4, 1e9, -6};
  EXPECT_EQ(
      run(OpCode::quantize, QuantizeAttrs{}, {{real({3, 2}), x}, {real({}), {0.5}}}, 0, {type}),
      (Numbers{2, 6, 448, 0, 4, 8, -12, 0}));
}

TEST(Reference, amax_skips_what_is_not_finite_and_says_so) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::pair x(real({3}), Numbers{1, -5, inf});
  EXPECT_EQ(run(OpCode::amax, NoAttrs{}, {x}, 0), (Numbers{5}));
  EXPECT_EQ(run(OpCode::amax, NoAttrs{}, {x}, 1), (Numbers{1}));
}

TEST(Reference, interpret_names_a_missing_or_wrong_input) {
  Graph graph;
  Builder b(graph);
  b.output("y", b.neg(b.input(InputKind::batch, "x", real({2}))));
  EXPECT_THROW(reference::interpret(graph, {}), Error);
  EXPECT_THROW(reference::interpret(graph, {{"x", {1}}}), Error);
  EXPECT_EQ(reference::interpret(graph, {{"x", {1, -2}}})["y"], (Numbers{-1, 2}));
}

}  // namespace
}  // namespace octet::gradients_reference_test
