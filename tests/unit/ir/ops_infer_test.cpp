// Results and refusals of the shape rules, as a table of operands and attributes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op_def.h"

namespace octet::ir_ops_infer_test {
namespace {

TensorType real(Shape shape) {
  return {.dtype = Dtype::real, .shape = std::move(shape)};
}
TensorType i32(Shape shape) {
  return {.dtype = Dtype::i32, .shape = std::move(shape)};
}
TensorType flag(Shape shape) {
  return {.dtype = Dtype::boolean, .shape = std::move(shape)};
}
const TensorType kAbsent = absent_type();

struct Refused {
  OpCode op;
  Attrs attrs;
  std::vector<TensorType> operands;
  std::string message;
  std::vector<ResultType> said = {};  // of the results
};

std::vector<Refused> refused_primitives() {
  const auto axes = [](Shape a) { return AxesAttrs{.axes = std::move(a)}; };
  const auto sum = [](int64_t ranks_a_host) {
    return CollectiveAttrs{.ranks = 6, .reduction = {}, .shape = {}, .ranks_a_host = ranks_a_host};
  };
  return {
      {OpCode::reduce_scatter, sum(4), {real({9})}, "0 or a divisor of 6 ranks between them and 1"},
      {OpCode::reduce_scatter, sum(1), {real({9})}, "[reduce_scatter] ranks_a_host must be 0 or"},
      {OpCode::all_reduce, sum(6), {real({9})}, "[all_reduce] ranks_a_host must be 0 or"},
      {OpCode::neg, NoAttrs{}, {i32({2})}, "[neg] x must be a float, got i32[2]"},
      {OpCode::add, NoAttrs{}, {real({2}), real({3})}, "[add] b must be [2], got [3]"},
      {OpCode::mul, NoAttrs{}, {real({2}), i32({2})}, "[mul] b must be a float"},
      {OpCode::less, NoAttrs{}, {real({2}), i32({2})}, "[less] operands must be floats or of one"},
      {OpCode::equal, NoAttrs{}, {i32({2}), i32({1})}, "[equal] b must be [2], got [1]"},
      {OpCode::select, NoAttrs{}, {real({2}), real({2}), real({2})}, "condition must be bool"},
      {OpCode::select, NoAttrs{}, {flag({1}), real({2}), real({2})}, "condition must be [2]"},
      {OpCode::fill, FillAttrs{.shape = {-1}}, {}, "[fill] shape must have no negative"},
      {OpCode::iota, IotaAttrs{.shape = {2}, .axis = 1}, {}, "[iota] axis must be"},
      {OpCode::broadcast, BroadcastAttrs{{2, 3}, {0}}, {real({3})}, "x must be [2], got [3]"},
      {OpCode::broadcast, BroadcastAttrs{{2, 3}, {1, 0}}, {real({3, 2})}, "axes must rise"},
      {OpCode::broadcast, BroadcastAttrs{{2, 3}, {}}, {real({3})}, "x must have 0 axes"},
      {OpCode::reshape, ReshapeAttrs{{5}}, {real({2, 3})}, "expected a shape of 6 elements"},
      {OpCode::transpose, TransposeAttrs{{0, 0}}, {real({2, 3})}, "perm must be different axes"},
      {OpCode::slice, SliceAttrs{{0}, {4}, {1}}, {real({3})}, "limit <= 3"},
      {OpCode::slice, SliceAttrs{{0}, {3}, {0}}, {real({3})}, "stride >= 1"},
      {OpCode::slice, SliceAttrs{{0}, {3}, {1}}, {real({3, 3})}, "for 2 axes"},
      {OpCode::pad, PadAttrs{{-1}, {0}, {0}}, {real({3})}, "no negative padding"},
      {OpCode::concatenate, AxisAttrs{0}, {real({2, 3}), real({2, 4})}, "operand must be [2,3]"},
      {OpCode::concatenate, AxisAttrs{0}, {real({2}), i32({2})}, "of one dtype"},
      {OpCode::concatenate, AxisAttrs{1}, {real({2})}, "axis must be different axes below 1"},
      {OpCode::reduce_sum, axes({2}), {real({2, 3})}, "[reduce_sum] axes must be"},
      {OpCode::reduce_max, axes({1}), {real({2, 0})}, "[reduce_max] axis 1 is empty"},
      {OpCode::argmax, AxisAttrs{0}, {real({0})}, "[argmax] axis 0 is empty"},
      {OpCode::argmin, AxisAttrs{0}, {real({0})}, "[argmin] axis 0 is empty"},
      {OpCode::reduce_min, axes({1}), {real({2, 0})}, "[reduce_min] axis 1 is empty"},
      {OpCode::reverse, axes({2}), {real({2, 3})}, "[reverse] axes must be"},
      {OpCode::integer_pow, PowerAttrs{int64_t{1} << 40}, {real({2})}, "[integer_pow] n must be"},
      {OpCode::is_finite, NoAttrs{}, {i32({2})}, "[is_finite] x must be a float"},
      {OpCode::reduce_window,
       WindowAttrs{.window = {2}, .stride = {1}, .low = {0}, .high = {}},
       {real({2})},
       "for 1 axes"},
      {OpCode::reduce_window,
       WindowAttrs{.window = {2}, .stride = {0}, .low = {0}, .high = {0}},
       {real({2})},
       "window and stride from 1"},
      {OpCode::reduce_window,
       WindowAttrs{.window = {4}, .stride = {1}, .low = {0}, .high = {1}},
       {real({2})},
       "must hold a window of 4"},
      {OpCode::dot, DotAttrs{{}, {}, {1}, {0}}, {real({2, 3}), real({4, 5})}, "got 3 and 4"},
      {OpCode::dot, DotAttrs{{0}, {}, {1}, {0}}, {real({2, 3}), real({3, 5})}, "as many batch"},
      {OpCode::gather, NoAttrs{}, {real({2}), real({2})}, "[gather] index must be i32"},
      {OpCode::gather, NoAttrs{}, {real({}), i32({2})}, "table must have an axis of rows"},
      {OpCode::scatter_add, ScatterAddAttrs{2}, {real({3, 4}), i32({2})}, "must be [2,4]"},
      {OpCode::scatter_add, ScatterAddAttrs{2}, {real({}), i32({2})}, "must be [2], got []"},
      {OpCode::scatter_add, ScatterAddAttrs{-2}, {real({2}), i32({2})}, "rows must be at least 0"},
  };
}

std::vector<Refused> refused_layers() {
  const AttentionAttrs heads{
      .batch = 2, .q_len = 3, .kv_len = 3, .heads = 4, .kv_heads = 2, .head_dim = 5};
  AttentionAttrs odd = heads;
  odd.kv_heads = 3;
  AttentionAttrs fewer_keys = heads, full = heads, biased = heads;
  fewer_keys.kv_len = 2, full.mask = AttentionMask::full, biased.bias_gradient = true;
  const RopeAttrs rope{.heads = 2, .head_dim = 4};
  const TensorType q = real({6, 20}), kv = real({6, 10}), x = real({8, 16}), scalar = real({});
  std::vector<TensorType> adamw{x, x, x, x, scalar, scalar, scalar, scalar, flag({})};
  std::vector<TensorType> short_moment = adamw, remainder = adamw;
  short_moment[3] = real({8});
  remainder.push_back({.dtype = Dtype::i16, .shape = {8, 16}});
  return {
      {OpCode::gemm, GemmAttrs{}, {real({2, 3}), real({4, 5})}, "b must be [3,5], got [4,5]"},
      {OpCode::gemm, GemmAttrs{.trans_b = true}, {real({2, 3}), real({5, 4})}, "[5,3]"},
      {OpCode::gemm, GemmAttrs{}, {real({2, 3}), real({3, 5}), real({2, 4})}, "c must be [2,5]"},
      {OpCode::gemm, GemmAttrs{}, {real({2, 3, 1}), real({3, 5})}, "a must have 2 axes"},
      {OpCode::bias_add, NoAttrs{}, {x, real({15})}, "[bias_add] bias must be [16], got [15]"},
      {OpCode::column_sum, NoAttrs{}, {real({16})}, "x must have 2 axes"},
      {OpCode::embedding, NoAttrs{}, {x, real({3})}, "[embedding] ids must be i32"},
      {OpCode::embedding_grad, ScatterAddAttrs{5}, {x, i32({7})}, "ids must be [8], got [7]"},
      {OpCode::rms_norm, NormAttrs{}, {x, real({15})}, "[rms_norm] weight must be [16], got [15]"},
      {OpCode::rms_norm_grad, NormAttrs{}, {x, x, real({7})}, "rstd must be [8], got [7]"},
      {OpCode::rms_norm_grad,
       NormAttrs{},
       {x, x, real({8}), kAbsent, kAbsent, real({8})},
       "c must be [8,16], got [8]"},
      {OpCode::layer_norm, NormAttrs{}, {x, kAbsent, real({16})}, "a bias needs a weight"},
      {OpCode::layer_norm_grad, NormAttrs{}, {x, x, real({8}), real({9})}, "rstd must be [8]"},
      {OpCode::rope, rope, {real({3, 9}), i32({3})}, "[rope] x must be [3,8], got [3,9]"},
      {OpCode::rope, rope, {real({3, 8}), i32({4})}, "positions must be [3], got [4]"},
      {OpCode::rope, RopeAttrs{.heads = 1, .head_dim = 3}, {real({3, 3}), i32({3})}, "even"},
      {OpCode::attention, heads, {q, kv, real({6, 9})}, "v must be [6,10], got [6,9]"},
      {OpCode::attention, odd, {q, kv, kv}, "heads must be a multiple of kv_heads"},
      {OpCode::attention, fewer_keys, {q, kv, kv}, "k must be [4,10], got [6,10]"},
      {OpCode::attention, heads, {q, kv, kv, i32({3})}, "key_begins must be [6], got [3]"},
      {OpCode::attention, heads, {q, kv, kv, i32({6}), i32({6})}, "without ranges of keys"},
      {OpCode::attention, full, {q, kv, kv, kAbsent, i32({6})}, "need a causal mask"},
      {OpCode::attention,
       heads,
       {q, kv, kv, kAbsent, kAbsent, kAbsent, real({2, 2, 3, 3})},
       "bias must be [2,4,3,3], but for the last axis 1 where it repeats, got [2,2,3,3]"},
      {OpCode::attention_grad, biased, {q, q, kv, kv, q, real({24})}, "bias_gradient needs a bias"},
      {OpCode::attention_grad, heads, {q, q, kv, kv, q, real({23})}, "lse must be [24]"},
      {OpCode::gated_act, GatedActAttrs{}, {x, real({8, 15})}, "[gated_act] up must be [8,16]"},
      {OpCode::gated_act_grad, GatedActAttrs{}, {real({8}), x, x}, "dy must be [8,16]"},
      {OpCode::gelu, GeluAttrs{}, {i32({3})}, "[gelu] x must be a float"},
      {OpCode::gelu_grad, GeluAttrs{}, {x, real({8})}, "x must be [8,16]"},
      {OpCode::cross_entropy,
       CrossEntropyAttrs{},
       {x, i32({7}), scalar},
       "labels must be [8], got [7]"},
      {OpCode::cross_entropy,
       CrossEntropyAttrs{},
       {real({8, 0}), i32({8}), scalar},
       "at least one class"},
      {OpCode::cross_entropy_grad,
       CrossEntropyAttrs{},
       {scalar, x, i32({8}), real({7}), scalar},
       "lse"},
      {OpCode::cross_entropy_grad,
       CrossEntropyAttrs{},
       {real({7}), x, i32({8}), real({8}), scalar},
       "dloss must be [8], got [7]"},
      {OpCode::cross_entropy,
       CrossEntropyAttrs{1.0},
       {x, i32({8}), scalar},
       "smoothing must be in [0, 1), got 1"},
      {OpCode::global_norm, NoAttrs{}, {real({1}), x}, "clip must be [], got [1]"},
      {OpCode::adamw_step, AdamwAttrs{}, short_moment, "[adamw_step] v must be [8,16], got [8]"},
      {OpCode::adamw_step, AdamwAttrs{}, remainder, "expected a bf16 w and an i16 w_lo"},
      {OpCode::gelu_quantize,
       GeluQuantizeAttrs{},
       {x, absent_type(), scalar, real({4})},
       "a scale that is given has no history"},
      {OpCode::rms_norm_quantize,
       NormQuantizeAttrs{},
       {x, absent_type(), absent_type(), absent_type(), absent_type(), real({8})},
       "statistics are given with a scale only"},
      {OpCode::layer_norm_quantize,
       NormQuantizeAttrs{},
       {x, absent_type(), absent_type(), absent_type(), scalar, absent_type(), real({8})},
       "all statistics are given, or none"},
      {OpCode::quantize, QuantizeAttrs{}, {x, scalar}, "expected a result of eight bits"},
      {OpCode::amax_quantize,
       AmaxQuantizeAttrs{.q = {}, .both = false, .measures = false},
       {x},
       "expected an amax, or measures = true"},
      {OpCode::amax_quantize,
       AmaxQuantizeAttrs{},
       {x, absent_type(), real({4})},
       "amax must be [], got [4]"},
      {OpCode::amax_quantize,
       AmaxQuantizeAttrs{},
       {x, absent_type(), flag({4})},
       "flag must be [], got [4]"},
      {OpCode::dequantize, NoAttrs{}, {x}, "q must be quantized, got real[8,16]"},
  };
}

// Elements that share a scale are said by the type of the data.
std::vector<Refused> refused_codes() {
  const auto codes = [](std::string_view by, Shape shape) {
    return TensorType{.dtype = Dtype::e4m3,
                      .shape = std::move(shape),
                      .granularity = find_granularity(by).value()};
  };
  const TensorType one = real({}), x = real({8, 4}), matrix = codes("tensor", {2, 3});
  TensorType lying = matrix, padded = matrix;
  lying.layout = {.transposed = true};
  padded.layout = {.transposed = true, .pad = 4};
  return {
      {OpCode::gelu, GeluAttrs{}, {codes("1x4", {}), one}, "expected at least one axis"},
      {OpCode::gelu, GeluAttrs{}, {codes("4x1", {4}), one}, "expected a matrix"},
      {OpCode::gelu, GeluAttrs{}, {codes("1x4", {8, 16}), one}, "the scales bf16[8,4], got real[]"},
      {OpCode::gelu, GeluAttrs{}, {codes("tensor", {8, 4}), i32({})}, "scales f32[], got i32[]"},
      {OpCode::gelu, GeluAttrs{}, {codes("tensor", {8, 4})}, "the scales f32[], got none"},
      {OpCode::gelu, GeluAttrs{}, {x, one}, "x of real[8,4] is not quantized and has no scales"},
      {OpCode::add, NoAttrs{}, {matrix, x}, "a must not be quantized, got e4m3:tensor[2,3]"},
      {OpCode::reshape, ReshapeAttrs{{6}}, {codes("1x4", {2, 3})}, "x must not be quantized"},
      {OpCode::gelu,
       GeluAttrs{},
       {codes("run8", {8}), {Dtype::u32, {1}}},
       "x must not be quantized in runs, got e4m3:run8[8]"},
      {OpCode::gelu,
       GeluAttrs{},
       {lying, one},
       "x must not lie transposed, got e4m3:tensor^T[2,3]"},
      {OpCode::transpose,
       TransposeAttrs{{0, 1}},
       {matrix},
       "a matrix that is not padded, got e4m3:tensor^T4[2,3]",
       {ResultType(padded)}},
      {OpCode::transpose,
       TransposeAttrs{{0}},
       {codes("tensor", {3})},
       "a matrix that is not padded, got e4m3:tensor^T[3]",
       {ResultType(lying)}},
      {OpCode::gemm,
       GemmAttrs{.trans_a = true},
       {padded, codes("tensor", {2, 5}), kAbsent, one, one},
       "padded alike along what is reduced, got e4m3:tensor^T4[2,3] and e4m3:tensor[2,5]"},
      {OpCode::gemm,
       GemmAttrs{},
       {padded, codes("tensor", {3, 5}), kAbsent, one, one},
       "padded alike along what is reduced"},
      {OpCode::gemm,
       GemmAttrs{},
       {matrix, codes("tensor", {3, 5}), kAbsent, one, one, real({1})},
       "scale_y must be [], got [1]"},
  };
}

// Results of a quantizer are said by their types.
std::vector<Refused> refused_results() {
  using enum Granularity::Kind;
  const TensorType x = real({8, 16}), line = real({16}), one = real({});
  const auto of = [](Granularity::Kind kind, int64_t size, Dtype scale = Dtype::bf16) {
    return std::vector<ResultType>{{Dtype::e4m3, {kind, size, scale}}};
  };
  const QuantizeAttrs linear, power{.rule = ScaleRule::power_ceil};
  const auto groups = OpCode::quantize_groups;
  const std::vector<ResultType> wide{Dtype::bf16}, e4m3{Dtype::e4m3},
      transposed{e4m3[0].transposed(16)};
  return {
      {OpCode::quantize, linear, {x, one}, "a result of eight bits, e4m3:tensor for instance"},
      {OpCode::quantize, linear, {x, one}, "a result of eight bits", wide},
      {OpCode::quantize, linear, {x, one}, "one scale, e4m3:tensor[8,16]", of(group, 16)},
      {OpCode::quantize_both, linear, {x, one}, "one scale, e4m3:tensor[8,16]", of(block, 8)},
      {OpCode::quantize, linear, {line, one}, "transposed codes need a matrix", transposed},
      {OpCode::quantize, linear, {x, one}, "pad must be from 1", {e4m3[0].transposed(0)}},
      {OpCode::quantize_both, linear, {x, one}, "a result of eight bits", e4m3},
      {OpCode::quantize_both, linear, {x, one}, "the same transposed, got", {e4m3[0], e4m3[0]}},
      {OpCode::quantize_both,
       linear,
       {x, one},
       "the same transposed, got e4m3:tensor[8,16] and e5m2:tensor^T16[8,16]",
       {e4m3[0], ResultType(Dtype::e5m2).transposed(16)}},
      {OpCode::rms_norm_quantize, NormQuantizeAttrs{}, {x}, "a result of eight bits"},
      {OpCode::quantize,
       QuantizeAttrs{.rounding = Rounding::hr},
       {x, one},
       "cannot be rounded",
       e4m3},
      {groups,
       linear,
       {x},
       "expected a result by row or in 1xG, Gx1 or BxB, got e4m3:tensor[8,16]",
       e4m3},
      {groups, linear, {x}, "got e4m3:run16/bf16[8,16]", of(run, 16)},
      {groups, linear, {x}, "scales must be f32, bf16, or e8m0", of(group, 16, Dtype::fp16)},
      {groups, linear, {x}, "scales must be f32, bf16, or e8m0", of(group, 16, Dtype::e8m0)},
      {groups, power, {x}, "groups have 1 to 2147483647 elements, got 0", of(group, 0)},
      {groups, power, {line}, "expected a matrix", of(block, 8)},
      {OpCode::add_quantize, linear, {x, x}, "a result of eight bits", of(group, 16)},
  };
}

void expect_refused(const std::vector<Refused>& rows) {
  for (const Refused& row : rows) {
    const OpDef& def = op_def(row.op);
    try {
      check_scales(def, row.operands);
      def.infer(row.attrs, row.operands, row.said);
      ADD_FAILURE() << def.name << " accepts what should give: " << row.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << row.message;
      const bool is_of_a_type = std::string_view(error.what()).starts_with("[types]");
      if (!is_of_a_type) {
        EXPECT_THAT(error.what(), testing::StartsWith("[" + std::string(def.name) + "]"));
      }
      EXPECT_THAT(error.what(), testing::HasSubstr(row.message));
    }
  }
}

// A real scalar is an operand like any other; absent is another thing.
TEST(OpInfer, absent_operands_are_no_scalars) {
  Graph graph;
  Builder b(graph);
  const ValueId gate = b.input(InputKind::batch, "gate", real({4, 8}));
  const ValueId scale = b.input(InputKind::batch, "scale", real({}));
  const GeluQuantizeAttrs attrs;
  const auto own = b.emit_typed(OpCode::gelu_quantize, attrs, {gate}, {Dtype::e4m3});
  const auto given =
      b.emit_typed(OpCode::gelu_quantize, attrs, {gate, kNoValue, scale}, {Dtype::e4m3});
  EXPECT_EQ(own.size(), 3u);
  EXPECT_EQ(given.size(), 1u);
  EXPECT_THROW(b.emit(OpCode::neg, NoAttrs{}, {kNoValue}), Error);
  EXPECT_THROW(b.emit(OpCode::concatenate, AxisAttrs{}, {gate, kNoValue}), Error);
}

TEST(OpInfer, refuses_wrong_operands_of_primitives) {
  expect_refused(refused_primitives());
}
TEST(OpInfer, refuses_wrong_operands_of_layers) {
  expect_refused(refused_layers());
}

TEST(OpInfer, refuses_results_that_are_none_of_the_quantizer) {
  expect_refused(refused_results());
}

TEST(OpInfer, refuses_scales_that_are_none_of_the_codes) {
  expect_refused(refused_codes());
}

TEST(OpInfer, refuses_attributes_of_another_op) {
  const std::vector<TensorType> in{real({2, 3}), real({3, 4})};
  EXPECT_THROW(op_def(OpCode::gemm).infer(DotAttrs{}, in), std::bad_variant_access);
  EXPECT_THROW(check_operands(op_def(OpCode::add), DotAttrs{}, ValueIds{0, 1}),
               std::bad_variant_access);
}

struct Given {
  OpCode op;
  Attrs attrs;
  std::vector<TensorType> operands;
  std::vector<TensorType> results;
};

TEST(OpInfer, gives_shapes_and_exact_integer_dtypes) {
  const AttentionAttrs heads{
      .batch = 2, .q_len = 3, .kv_len = 3, .heads = 4, .kv_heads = 2, .head_dim = 5};
  AttentionAttrs longer = heads;
  longer.kv_len = 7, longer.bias_gradient = true;
  const TensorType bf16{.dtype = Dtype::bf16, .shape = {2, 3}};
  const TensorType codes{
      .dtype = Dtype::e4m3, .shape = {2, 3}, .granularity = {Granularity::Kind::tensor}};
  const Given rows[] = {
      {OpCode::less, NoAttrs{}, {real({2}), real({2})}, {flag({2})}},
      {OpCode::select, NoAttrs{}, {flag({2}), i32({2}), i32({2})}, {i32({2})}},
      {OpCode::cast, NoAttrs{}, {i32({2})}, {real({2})}},
      {OpCode::fill, FillAttrs{{2, 3}, 1}, {}, {real({2, 3})}},
      {OpCode::iota, IotaAttrs{{2, 3}, 1}, {}, {i32({2, 3})}},
      {OpCode::transpose, TransposeAttrs{{1, 0}}, {bf16}, {real({3, 2})}},
      {OpCode::reshape,
       ReshapeAttrs{{6}},
       {codes},
       {{.dtype = Dtype::e4m3, .shape = {6}, .granularity = codes.granularity}}},
      {OpCode::slice, SliceAttrs{{1}, {8}, {3}}, {real({9})}, {real({3})}},
      {OpCode::slice, SliceAttrs{{4}, {4}, {1}}, {real({9})}, {real({0})}},
      {OpCode::pad, PadAttrs{{1}, {2}, {3}}, {real({4})}, {real({16})}},
      {OpCode::pad, PadAttrs{{1}, {2}, {3}}, {real({0})}, {real({3})}},
      {OpCode::concatenate, AxisAttrs{1}, {real({2, 3}), real({2, 1})}, {real({2, 4})}},
      {OpCode::argmax, AxisAttrs{1}, {real({2, 3})}, {i32({2})}},
      {OpCode::argmin, AxisAttrs{0}, {real({2, 3})}, {i32({3})}},
      {OpCode::greater, NoAttrs{}, {real({2}), real({2})}, {flag({2})}},
      {OpCode::is_finite, NoAttrs{}, {real({2})}, {flag({2})}},
      {OpCode::reduce_prod, AxesAttrs{{0}}, {real({0, 3})}, {real({3})}},
      {OpCode::reduce_window,
       WindowAttrs{.window = {3}, .stride = {2}, .low = {1}, .high = {1}},
       {real({8})},
       {real({4})}},
      {OpCode::reduce_sum, AxesAttrs{{2, 0}}, {real({2, 3, 4})}, {real({3})}},
      {OpCode::dot,
       DotAttrs{{2}, {1}, {1}, {2}},
       {real({3, 4, 2}), real({5, 2, 4})},
       {real({2, 3, 5})}},
      {OpCode::gather, NoAttrs{}, {real({9, 4}), i32({2, 3})}, {real({2, 3, 4})}},
      {OpCode::scatter_add, ScatterAddAttrs{7}, {real({2, 3, 4}), i32({2, 3})}, {real({7, 4})}},
      {OpCode::gemm,
       GemmAttrs{.trans_a = true, .trans_b = true},
       {real({3, 2}), real({5, 3})},
       {real({2, 5})}},
      {OpCode::rms_norm_grad, NormAttrs{}, {real({2, 3}), real({2, 3}), real({2})}, {real({2, 3})}},
      {OpCode::rms_norm_grad,
       NormAttrs{},
       {real({2, 3}), real({2, 3}), real({2}), real({3})},
       {real({2, 3}), real({3})}},
      {OpCode::attention,
       heads,
       {real({6, 20}), real({6, 10}), real({6, 10})},
       {real({6, 20}), real({24})}},
      {OpCode::attention,
       longer,
       {real({6, 20}), real({14, 10}), real({14, 10}), kAbsent, kAbsent, i32({6}),
        real({1, 4, 1, 7})},
       {real({6, 20}), real({24})}},
      {OpCode::attention_grad,
       longer,
       {real({6, 20}), real({6, 20}), real({14, 10}), real({14, 10}), real({6, 20}), real({24}),
        kAbsent, i32({6}), real({1, 4, 1, 7})},
       {real({6, 20}), real({14, 10}), real({14, 10}), real({1, 4, 1, 7})}},
  };
  for (const Given& row : rows) {
    EXPECT_EQ(op_def(row.op).infer(row.attrs, row.operands), row.results) << op_def(row.op).name;
  }
}

}  // namespace
}  // namespace octet::ir_ops_infer_test
