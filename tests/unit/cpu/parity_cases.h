// Sizes at which the CPU's kernels part, beside the op cases: one element, whole registers and ends
// of them, several tiles, blocks of queries and keys, rows shared among threads.
#pragma once

#include <array>

#include "op_cases/op_cases.h"

namespace octet::cpu::parity {

using namespace op_cases;

class Sized {
 public:
  void put(OpCode op, Attrs attrs, std::vector<OperandCase> operands,
           std::vector<ResultType> results = {}) {
    put_typed(cases, fmt::format("sized {}", cases.size()), op, std::move(attrs),
              std::move(operands), std::move(results));
  }
  Cases cases;
};

inline void size_elements(Sized& to) {
  const OperandCase factor = scalar(0.5), minus = scalar(-3);
  for (const int64_t n : {1, 3, 17, 31, 513, 40000}) {
    const OperandCase x = tensor({n});
    const std::vector<OperandCase> one{x}, two{x, x}, three{x, x, x};
#define ROWS_unary(op) to.put(OpCode::op, NoAttrs{}, {tensor({n}, Fill::positive)});
#define ROWS_binary(op) to.put(OpCode::op, NoAttrs{}, two);
#define ROWS_compare ROWS_binary
#define ROWS_scaled(op) to.put(OpCode::op, NoAttrs{}, {x, factor});
#define ELEMENT(op, arity, ...) \
  if (OpCode::op != OpCode::power_of_two) ROWS_##arity(op)
#include "math/elementwise.def"
    for (const OpCode op : {OpCode::neg, OpCode::abs, OpCode::sign, OpCode::square, OpCode::cast})
      to.put(op, NoAttrs{}, one);
    to.put(OpCode::axpby, NoAttrs{}, {x, x, factor, minus});
    to.put(OpCode::fill, FillAttrs{.shape = {n}, .value = 2.5}, {});
    for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
      to.put(OpCode::gelu, GeluAttrs{.kind = kind}, {x});
      to.put(OpCode::gelu_grad, GeluAttrs{.kind = kind}, two);
    }
    to.put(OpCode::gated_act, GatedActAttrs{}, {tensor({n}, Fill::wide), x});
    to.put(OpCode::gated_act_grad, GatedActAttrs{}, {x, x, x});
    to.put(OpCode::reduce_sum, AxesAttrs{.axes = {0}}, {x});
    to.put(OpCode::amax, NoAttrs{}, {tensor({n}, Fill::wide)});
    to.put(OpCode::global_norm, NoAttrs{}, {scalar(0.5), x});
  }
}

inline void size_rows(Sized& to) {
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {3, 17}, {17, 31}, {130, 5}, {66, 513}, {200, 33}}) {
    const OperandCase x = tensor({rows, cols}), w = tensor({cols}), no = none();
    to.put(OpCode::bias_add, NoAttrs{}, {x, w});
    to.put(OpCode::column_sum, NoAttrs{}, {x});
    for (const OperandCase& weight : {no, w, typed({cols}, Dtype::f32, Fill::normal)}) {
      const NormAttrs attrs{.eps = 1e-3};
      to.put(OpCode::rms_norm, attrs, {x, weight});
      to.put(OpCode::layer_norm, attrs, {x, weight, weight});
      for (const OperandCase& residual : {no, x}) {
        to.put(OpCode::rms_norm_grad, attrs,
               {x, x, statistic({rows}, {OpCode::rms_norm, {1}, 1}), weight, no, residual});
        to.put(OpCode::layer_norm_grad, attrs,
               {x, x, statistic({rows}, {OpCode::layer_norm, {1}, 1}),
                statistic({rows}, {OpCode::layer_norm, {1}, 2}), weight, no, residual});
      }
    }
  }
  for (const auto& [rows, classes] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 17}, {9, 31}, {6, 513}, {5, 9001}}) {
    const OperandCase logits = tensor({rows, classes}),
                      labels = integers({rows}, Fill::labels, classes), inv_n = scalar(0.25);
    to.put(OpCode::cross_entropy, CrossEntropyAttrs{}, {logits, labels, inv_n});
    to.put(OpCode::cross_entropy_grad, CrossEntropyAttrs{},
           {scalar(3), logits, labels, statistic({rows}, {OpCode::cross_entropy, {1, 2, 4}, 1}),
            inv_n});
  }
  const OperandCase ids = integers({97}, Fill::ids, 23);
  to.put(OpCode::embedding, NoAttrs{}, {tensor({23, 37}), ids});
  to.put(OpCode::embedding_grad, ScatterAddAttrs{.rows = 23}, {tensor({97, 37}), ids});
  for (const bool inverse : {false, true}) {
    to.put(OpCode::rope, RopeAttrs{.heads = 3, .head_dim = 10, .theta = 100, .inverse = inverse},
           {tensor({19, 30}), integers({19}, Fill::ids, 40)});
  }
}

inline void size_products(Sized& to) {
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      const GemmAttrs attrs{.trans_a = a, .trans_b = b};
      const auto put = [&](int64_t m, int64_t n, int64_t k, const OperandCase& c = none()) {
        to.put(OpCode::gemm, attrs,
               {tensor(a ? Shape{k, m} : Shape{m, k}), tensor(b ? Shape{n, k} : Shape{k, n}), c});
      };
      for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
               {1, 1, 1}, {17, 31, 5}, {64, 64, 64}, {33, 65, 97}, {130, 70, 513}, {33, 65, 37}}) {
        put(m, n, k);
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
          const Dtype other = dtype == Dtype::f32 ? Dtype::bf16 : Dtype::f32;
          to.put(OpCode::gemm, attrs,
                 {typed(a ? Shape{k, m} : Shape{m, k}, dtype, Fill::normal),
                  typed(b ? Shape{n, k} : Shape{k, n}, other, Fill::normal)});
        }
      }
      put(70, 90, 40, tensor({90}));
      put(70, 90, 40, tensor({70, 90}));
      if (a == b) continue;
      put(300, 200, 64);
      put(257, 321, 40);
      put(300, 190, 70, tensor({300, 190}));
    }
  }
  to.put(OpCode::gemm, GemmAttrs{},
         {typed({1500, 4}, Dtype::f32, Fill::normal), typed({4, 1030}, Dtype::f32, Fill::normal)});
  to.put(OpCode::gemm, GemmAttrs{.trans_b = true}, {tensor({5, 33}), tensor({70, 33})});
  for (const auto& [a, b] : {std::pair(Dtype::e4m3, Dtype::e4m3),
                             {Dtype::e5m2, Dtype::e4m3},
                             {Dtype::hif8, Dtype::hif8}}) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        to.put(
            OpCode::gemm, GemmAttrs{.trans_a = trans_a, .trans_b = trans_b},
            {codes(trans_a ? Shape{75, 70} : Shape{70, 75}, a),
             codes(trans_b ? Shape{133, 75} : Shape{75, 133}, b), none(), scales({}), scales({})});
      }
    }
  }
}

inline void size_attention(Sized& to) {
  const auto put = [&](AttentionAttrs a) {
    a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
    const Shape q{a.batch * a.q_len, a.heads * a.head_dim},
        kv{a.batch * a.kv_len, a.kv_heads * a.head_dim};
    to.put(OpCode::attention, a, {tensor(q), tensor(kv), tensor(kv)});
    const std::vector<int> forward = {1, 2, 3};
    to.put(
        OpCode::attention_grad, a,
        {tensor(q), tensor(q), tensor(kv), tensor(kv), derived(q, {OpCode::attention, forward, 0}),
         statistic({a.batch * a.q_len * a.heads}, {OpCode::attention, forward, 1})});
  };
  const auto square = [&](int64_t batch, int64_t length, int64_t heads, int64_t kv, int64_t dim) {
    return AttentionAttrs{.batch = batch,
                          .q_len = length,
                          .kv_len = length,
                          .heads = heads,
                          .kv_heads = kv,
                          .head_dim = dim};
  };
  for (const int64_t length : {1, 17, 64, 130}) {
    for (const int64_t dim : {5, 8, 64}) put(square(2, length, 2, 1, dim));
  }
  AttentionAttrs full = square(1, 75, 6, 2, 128);
  full.mask = AttentionMask::full;
  put(full);
  put(square(2, 33, 3, 3, 16));
  put(square(1, 300, 2, 1, 8));
  put(square(1, 70, 2, 2, 32));
  put(square(2, 150, 4, 2, 24));
  put(square(1, 67, 2, 1, 24));
  for (const int64_t q_len : {1, 9, 80}) {
    AttentionAttrs a = square(1, 70, 2, 1, 16);
    a.q_len = q_len;
    if (q_len > 70) a.mask = AttentionMask::full;
    put(a);
  }
  AttentionAttrs without_keys = square(1, 9, 1, 1, 8);
  without_keys.kv_len = 4;
  put(without_keys);
}

inline void size_quantizers(Sized& to) {
  for (const auto& [dtype, target] :
       {std::pair(Dtype::e4m3, 448.0), std::pair(Dtype::e5m2, 57344.0),
        std::pair(Dtype::hif8, 15.0)}) {
    const QuantizeAttrs q{.target = target};
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{17, 40}, Shape{64, 64},
                               Shape{130, 352}, Shape{5, 1100}}) {
      const OperandCase x = tensor(shape, Fill::wide), scale = scalar(0.0123);
      to.put(OpCode::quantize, q, {x, scale}, {dtype});
      to.put(OpCode::dequantize, NoAttrs{}, {codes(shape, dtype), scalar(0.7)});
      for (const int64_t pad : {1, 16}) {
        const ResultType transposed = ResultType(dtype).transposed(pad);
        to.put(OpCode::quantize, q, {x, scale}, {transposed});
        to.put(OpCode::quantize_both, q, {x, scale}, {dtype, transposed});
      }
      for (const int64_t group : {1, 7, 16, 128, 2000}) {
        const OperandCase by_group = quantized(shape, dtype, {Granularity::Kind::group, group});
        to.put(OpCode::quantize_groups, q, {x}, {ResultType(by_group.type)});
        to.put(OpCode::dequantize, NoAttrs{}, {by_group, scales_of(by_group)});
        if (shape[0] != 17) continue;
        to.put(OpCode::add_quantize, q, {x, x}, {Dtype::real, ResultType(by_group.type)});
      }
    }
  }
}

inline void size_moves(Sized& to) {
  const auto put = [&](OpCode op, const Attrs& attrs, const Shape& shape) {
    to.put(op, attrs, {tensor(shape)});
    to.put(op, attrs, {booleans(shape)});
  };
  const auto slice = [&](const Shape& from, SliceAttrs a) { put(OpCode::slice, a, from); };
  slice({3, 5, 7}, {.start = {0, 0, 0}, .limit = {3, 5, 7}, .stride = {1, 1, 1}});
  slice({9, 48}, {.start = {0, 16}, .limit = {9, 32}, .stride = {1, 1}});
  slice({4, 40}, {.start = {0, 1}, .limit = {4, 16}, .stride = {1, 3}});
  slice({4, 4}, {.start = {2, 0}, .limit = {2, 4}, .stride = {1, 1}});
  slice({40000}, {.start = {0}, .limit = {40000}, .stride = {1}});
  const auto pad = [&](const Shape& from, PadAttrs a) { put(OpCode::pad, a, from); };
  pad({9, 16}, {.low = {0, 16}, .high = {0, 16}, .interior = {0, 0}, .value = 1});
  pad({4, 5}, {.low = {0, 2}, .high = {1, 14}, .interior = {0, 3}});
  const auto transpose = [&](const Shape& from, const Shape& perm) {
    put(OpCode::transpose, TransposeAttrs{.perm = perm}, from);
  };
  transpose({45, 70}, {1, 0});
  transpose({2, 5, 3, 8}, {0, 2, 1, 3});
  transpose({3, 41, 37}, {0, 2, 1});
  transpose({130, 257}, {1, 0});
  const auto broadcast = [&](const Shape& from, const Shape& shape, const Shape& axes) {
    put(OpCode::broadcast, BroadcastAttrs{.shape = shape, .axes = axes}, from);
  };
  broadcast({33}, {6, 33}, {1});
  broadcast({6}, {6, 33}, {0});
  broadcast({}, {1}, {});
  to.put(OpCode::select, NoAttrs{}, {booleans({40000}), tensor({40000}), tensor({40000})});
}

inline const Cases& sized_cases() {
  static const Cases cases = [] {
    Sized all;
    size_elements(all);
    size_rows(all);
    size_products(all);
    size_attention(all);
    size_quantizers(all);
    size_moves(all);
    return all.cases;
  }();
  return cases;
}

}  // namespace octet::cpu::parity
