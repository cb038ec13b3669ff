// Kernels of scales, codes, moves, look-ups and losses at the sizes where their paths differ: whole
// tiles and ragged ones, rows that are not aligned, several passes, NaN and Inf among the values.
#include "table.h"

namespace octet::fusion {
namespace {

constexpr int64_t kPads[] = {1, 16};

// With a scale of their own, of one block and of many.
void add_own_scales(Table& table, Dtype format) {
  OperandCase empty = scales({16});
  empty.fill = Fill::constant;
  empty.value = 0;
  for (const Shape& shape : {Shape{17, 33}, Shape{300, 192}, Shape{2047, 160}, Shape{0, 64}}) {
    for (const OperandCase& history : {none(), scales({16}), empty}) {
      for (const bool both : {false, true}) {
        const QuantizeAttrs q;
        std::vector<OperandCase> operands = {tensor(shape), history, scalar(0.5)};
        table.put_codes(OpCode::amax_quantize, AmaxQuantizeAttrs{q, both, false}, operands,
                        {format});
        operands.push_back(scalar(0, Dtype::boolean));
        table.put_nonfinite(OpCode::amax_quantize, AmaxQuantizeAttrs{q, both, true}, operands,
                            {format});
      }
    }
  }
}

void add_quantizers(Table& table) {
  for (const Dtype format : {Dtype::e4m3, Dtype::e5m2, Dtype::hif8}) {
    for (const Shape& shape : {Shape{1, 1}, Shape{17, 33}, Shape{128, 64}, Shape{300, 192},
                               Shape{257, 130}, Shape{2047, 16}}) {
      const QuantizeAttrs q;
      const std::vector<OperandCase> operands = {tensor(shape), scalar(0.01)};
      table.put_nonfinite(OpCode::quantize, q, operands, {format});
      for (const int64_t pad : kPads) {
        const ResultType transposed = ResultType(format).transposed(pad);
        table.put_codes(OpCode::quantize_both, q, operands, {format, transposed});
        table.put_nonfinite(OpCode::quantize, q, operands, {transposed});
      }
    }
    add_own_scales(table, format);
    for (const auto& [shape, group] :
         {std::pair(Shape{300, 192}, 16), std::pair(Shape{17, 33}, 16),
          std::pair(Shape{17, 32}, 16), std::pair(Shape{5, 8192}, 128), std::pair(Shape{3, 24}, 8),
          std::pair(Shape{3, 768}, 256), std::pair(Shape{9, 50}, 7)}) {
      const QuantizeAttrs q{.target = 57344};
      const OperandCase x = codes(shape, format, fmt::format("1x{}", group));
      const ResultType groups(x.type);
      table.put_nonfinite(OpCode::quantize_groups, q, {tensor(shape, Fill::wide)}, {groups});
      table.put_nonfinite(OpCode::add_quantize, q, {tensor(shape), tensor(shape, Fill::wide)},
                          {Dtype::real, groups});
      table.put(OpCode::dequantize, NoAttrs{}, {x, scales_of(x)});
    }
    for (const double target : {15.0, 224.0, 448.0, 57344.0}) {
      for (const auto& [cols, group] : {std::pair(32, 16), std::pair(50, 7)}) {
        const OperandCase x = codes({64, cols}, format, fmt::format("1x{}", group));
        table.put_largest(OpCode::quantize_groups, QuantizeAttrs{.target = target},
                          {tensor({64, cols})}, {ResultType(x.type)});
      }
    }
    table.put(OpCode::dequantize, NoAttrs{}, {codes({300, 192}, format), scalar(0.3)});
  }
}

void add_scales_and_moves(Table& table) {
  table.put_nonfinite(OpCode::amax, NoAttrs{}, {tensor({300, 301}), tensor({17}), tensor({9000})});
  table.put_nonfinite(OpCode::amax, NoAttrs{}, {tensor({8192})});
  table.put(OpCode::amax, NoAttrs{}, std::vector<OperandCase>(19, tensor({2047})));
  table.put(OpCode::any_of, NoAttrs{}, std::vector<OperandCase>(300, scalar(0, Dtype::boolean)));
  table.put(OpCode::delayed_scale, AmaxScaleAttrs{}, {scalar(2), scales({700})});
  for (const OpCode op : {OpCode::add, OpCode::maximum, OpCode::div})
    table.put(op, NoAttrs{}, {tensor({9001}), tensor({9001}, Fill::positive)},
              1e-7);  // rounded to f32, then to the result's type
  table.put(OpCode::add, NoAttrs{},
            {typed({9001}, Dtype::f32, Fill::normal), typed({9001}, Dtype::bf16, Fill::normal)},
            1e-7);
  table.put(OpCode::cast, NoAttrs{}, {typed({9001}, Dtype::f32, Fill::normal)});
  table.put(OpCode::cast, NoAttrs{}, {typed({9001}, Dtype::bf16, Fill::normal)});
  table.put(OpCode::fill, FillAttrs{.shape = {9001}, .value = 0.75}, {});
  table.put(OpCode::fill, FillAttrs{.shape = {3, 8192}, .value = -2}, {});
  const SliceAttrs middle{.start = {0, 64}, .limit = {300, 128}, .stride = {1, 1}};
  table.put(OpCode::slice, middle, {tensor({300, 192})});
  table.put(OpCode::slice, SliceAttrs{.start = {1, 3}, .limit = {300, 100}, .stride = {2, 1}},
            {tensor({300, 193})});
  for (const int64_t cols : {64, 65})
    table.put(OpCode::pad, PadAttrs{.low = {0, 64}, .high = {0, 64}, .interior = {0, 0}},
              {tensor({300, cols})});
  table.put(OpCode::pad, PadAttrs{.low = {1, 2}, .high = {0, 3}, .interior = {0, 1}, .value = 1.5},
            {tensor({100, 33})});
  for (const Shape& shape : {Shape{130, 70}, Shape{256, 64}, Shape{1, 300}})
    table.put(OpCode::transpose, TransposeAttrs{.perm = {1, 0}}, {tensor(shape)});
  table.put(OpCode::transpose, TransposeAttrs{.perm = {1, 0, 2}}, {tensor({20, 30, 16})});
  table.put(OpCode::transpose, TransposeAttrs{.perm = {0, 2, 1}}, {tensor({3, 65, 100})});
  for (const Shape& shape : {Shape{144, 80}, Shape{64, 128}, Shape{130, 70}, Shape{48, 33}})
    table.put(OpCode::transpose, TransposeAttrs{.perm = {1, 0}},
              {typed(shape, Dtype::e4m3, Fill::normal)});
  table.put(OpCode::broadcast, BroadcastAttrs{.shape = {300, 192}, .axes = {1}}, {tensor({192})});
  table.put(OpCode::broadcast, BroadcastAttrs{.shape = {300, 192}, .axes = {0}}, {tensor({300})});
  table.put(OpCode::concatenate, AxisAttrs{.axis = 1}, {tensor({50, 64}), tensor({50, 192})});
  table.put(OpCode::concatenate, AxisAttrs{.axis = 0}, {tensor({2048}), tensor({9}), tensor({64})});
}

void add_losses_and_lookups(Table& table) {
  constexpr double kSums = 1e-5;
  for (const auto& [tokens, rows, cols] :
       {std::tuple(3000, 40, 72), std::tuple(3000, 3, 37), std::tuple(100, 70000, 8),
        std::tuple(33, 300, 2312), std::tuple(1, 1, 8), std::tuple(1500, 1024, 16)}) {
    const OperandCase ids = integers({tokens}, Fill::any_ids, rows);
    table.put(OpCode::embedding, NoAttrs{}, {tensor({rows, cols}), ids});
    table.put(OpCode::embedding_grad, ScatterAddAttrs{.rows = rows}, {tensor({tokens, cols}), ids},
              kSums);
  }
  for (const auto& [rows, classes] :
       {std::pair(5, 50257), std::pair(3, 9000), std::pair(40, 256), std::pair(2047, 1)}) {
    const OperandCase logits = tensor({rows, classes}, Fill::wide);
    const OperandCase labels = integers({rows}, Fill::labels, classes);
    const OperandCase lse = statistic({rows}, {OpCode::cross_entropy, {1, 2, 4}, 1});
    for (const double smoothing : {0.0, 0.1}) {
      const CrossEntropyAttrs attrs{.smoothing = smoothing};
      table.put(OpCode::cross_entropy, attrs, {logits, labels, scalar(0.125)}, kSums);
      OperandCase dloss = smoothing == 0 ? scalar(1.5) : tensor({rows});
      dloss.f32_only = true;
      table.put(OpCode::cross_entropy_grad, attrs, {dloss, logits, labels, lse, scalar(0.125)},
                2 * kSums);  // a probability near 1 less 1
    }
  }
}

TEST(tensors, codes_and_their_scales_have_the_bits_of_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_quantizers(table);
  run_table(table, *gpu);
}

TEST(tensors, moves_and_elementwise_ops_have_the_bits_of_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_scales_and_moves(table);
  run_table(table, *gpu);
}

TEST(tensors, lookups_and_losses_are_close_to_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_losses_and_lookups(table);
  run_table(table, *gpu);
}

}  // namespace
}  // namespace octet::fusion
