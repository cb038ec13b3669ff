#include "backends/cpu/attention/attention_rows.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/attention/attention_rows.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/flush_scope.h"
#include "backends/cpu/common/isa.h"
#include "backends/cpu/common/simd_math-inl.h"
#include "base/error.h"
#include "formats/bf16.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

float RowMax(const float* s, int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  VF top = set(kLowest);
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR {
    top = hn::Max(keep_lanes(io, io.load(s + i), kLowest), top);
  });
  return max_of(top);
}

float Softmax(const SoftmaxRow& row) {
  const VF scale = set(row.scale), shift = set(row.shift);
  VF total = zero();
  for_lanes(0, row.n, [&](int64_t i, auto io) HWY_ATTR {
    const VF e = exp_nonpositive(hn::MulSub(scale, io.load(row.s + i), shift));
    total = hn::Add(total, keep_lanes(io, e, 0.0f));
    store(io, e, row.p, i);
  });
  for_lanes(row.n, row.n_padded, [&](int64_t i, auto io) HWY_ATTR { store(io, zero(), row.p, i); });
  return sum_of(total);
}

void AddBias(const BiasRow& row) {
  const VF scale = set(row.scale);
  for_lanes(0, row.n, [&](int64_t i, auto io) HWY_ATTR {
    io.store(hn::MulAdd(scale, io.load(row.s + i), load(io, row.bias, i)), row.s + i);
  });
}

void Cap(const CapRow& row) {
  const VF cap = set(row.cap), scale = set(row.scale / row.cap);
  for_lanes(0, row.n, [&](int64_t i, auto io) HWY_ATTR {
    io.store(hn::Mul(cap, tanh_f32(hn::Mul(scale, io.load(row.s + i)))), row.s + i);
  });
}

void ScaleRow(const float* x, Out y, float factor, int64_t n) {
  const VF f = set(factor);
  for_lanes(0, n,
            [&](int64_t i, auto io) HWY_ATTR { store(io, hn::Mul(io.load(x + i), f), y, i); });
}

// Elements i, i + lanes, ... of the sums, as many as hide the latency of an addition.
template <int V, typename Io>
HWY_INLINE void sum_weighted(const WeightedRows& sum, int64_t i, Io io) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  VF total[V];
  for (VF& t : total) t = zero();
  const auto add = [&](int64_t j) HWY_ATTR {
    const VF p =
        set(sum.p.dtype == Dtype::bf16 ? f32_from_bf16(static_cast<const uint16_t*>(sum.p.data)[j])
                                       : static_cast<const float*>(sum.p.data)[j]);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      total[v] = hn::MulAdd(p, load(io, sum.x, j * sum.x_stride + i + v * lanes), total[v]);
    }
  };
  if (sum.chain == DotChain::steps) {
    for (int64_t j = 0; j < sum.rows; ++j) add(j);
  } else {
    for (int64_t j = 0; j < sum.rows; j += 2) {
      if (j + 1 < sum.rows) add(j + 1);
      add(j);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) io.store(total[v], sum.y + i + v * lanes);
}

void SumWeightedRows(const WeightedRows& sum) {
  constexpr int kVectors = 4;
  const int64_t width = kVectors * static_cast<int64_t>(hn::Lanes(F32()));
  int64_t i = 0;
  for (; i + width <= sum.n; i += width) sum_weighted<kVectors>(sum, i, Full());
  for_lanes(i, sum.n, [&](int64_t at, auto io) HWY_ATTR { sum_weighted<1>(sum, at, io); });
}

float DotRow(In a, In b, int64_t n) {
  VF s = zero();
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR {
    s = hn::MulAdd(load(io, a, i), load(io, b, i), s);
  });
  return sum_of(s);
}

void SoftmaxGradient(const SoftmaxGradientRow& row) {
  const VF score_scale = set(row.score_scale), scale = set(row.scale);
  const VF inv_cap = set(row.inv_cap), one = set(1.0f), lowest = set(-1.0f);
  const auto clear = [&](int64_t begin, int64_t end) HWY_ATTR {
    for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
      store(io, zero(), row.p, i);
      store(io, zero(), row.ds, i);
      if (row.unscaled != nullptr) io.store(zero(), row.unscaled + i);
    });
  };
  clear(0, row.first);
  for_lanes(row.first, row.last, [&](int64_t i, auto io) HWY_ATTR {
    // Rounding may leave the difference a little above 0, where the bounded exponential still
    // holds.
    const VF s = io.load(row.s + i);
    const VF p = exp_nonpositive(hn::MulSub(score_scale, s, io.load(row.lse + i)));
    const VF above = hn::Sub(io.load(row.dp + i), io.load(row.d + i));
    VF ds = hn::Mul(hn::Mul(p, scale), above);
    if (row.inv_cap > 0) {
      const VF curve = hn::Max(hn::Mul(inv_cap, s), lowest);  // hidden: -Inf
      ds = hn::Mul(ds, hn::NegMulAdd(curve, curve, one));
    }
    if (row.unscaled != nullptr) io.store(hn::Mul(p, above), row.unscaled + i);
    store(io, p, row.p, i);
    store(io, ds, row.ds, i);
  });
  clear(row.last, row.width);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(RowMax);
HWY_EXPORT(Softmax);
HWY_EXPORT(AddBias);
HWY_EXPORT(Cap);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(SumWeightedRows);
HWY_EXPORT(DotRow);
HWY_EXPORT(SoftmaxGradient);

float row_max(const float* s, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(RowMax)(s, n);
}
float softmax_row(const SoftmaxRow& row) {
  return HWY_DYNAMIC_DISPATCH(Softmax)(row);
}
void add_bias_row(const BiasRow& row) {
  HWY_DYNAMIC_DISPATCH(AddBias)(row);
}
void cap_row(const CapRow& row) {
  HWY_DYNAMIC_DISPATCH(Cap)(row);
}
void scale_row(const float* x, Out y, float factor, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(x, y, factor, n);
}
void sum_weighted_rows(const WeightedRows& sum) {
  CHECK(sum.chain != DotChain::tiles);
  if (sum.chain == DotChain::steps) return HWY_DYNAMIC_DISPATCH(SumWeightedRows)(sum);
  const FlushScope flush;
  HWY_DYNAMIC_DISPATCH(SumWeightedRows)(sum);
}
float dot_row(In a, In b, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(DotRow)(a, b, n);
}
void softmax_gradient_row(const SoftmaxGradientRow& row) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradient)(row);
}

AttentionShape checked_shape(const AttentionSpec& spec) {
  if (spec.dtype != Dtype::f32 && spec.dtype != Dtype::bf16) {
    throw Error(ErrorCode::invalid_argument, "[attention] expected f32 or bf16, got {}",
                dtype_name(spec.dtype));
  }
  if (spec.kv_heads < 1 || spec.heads % spec.kv_heads != 0 || spec.head_size < 1) {
    throw Error(
        ErrorCode::invalid_argument,
        "[attention] expected heads that kv_heads divides and a positive head size, got {}, "
        "{} and {}",
        spec.heads, spec.kv_heads, spec.head_size);
  }
  if (!(spec.scale > 0)) {
    throw Error(ErrorCode::invalid_argument, "[attention] expected a positive scale, got {}",
                spec.scale);
  }
  if (spec.q_len < 1 || spec.kv_len < 1) {
    throw Error(ErrorCode::invalid_argument, "[attention] expected positive lengths, got {} and {}",
                spec.q_len, spec.kv_len);
  }
  if (!(spec.softcap >= 0) || (spec.softcap > 0 && spec.bias)) {
    throw Error(ErrorCode::invalid_argument,
                "[attention] expected a softcap of 0 or more, and none with a bias, got {}",
                spec.softcap);
  }
  AttentionShape shape;
  shape.spec = spec;
  shape.compute = spec.dtype == Dtype::bf16 ? bf16_compute_dtype() : Dtype::f32;
  shape.depth = round_up(spec.head_size, kTileDepth);
  shape.columns = round_up(spec.head_size, kTileColumns);
  return shape;
}

KeyRange AttentionShape::blocks(const AttentionSpan& span, int64_t q0, int64_t q_end) const {
  KeyRange keys = seen(span, q_end - 1);
  if (span.positions == nullptr && !span.has_ranges()) {  // neither end falls
    keys.first = seen(span, q0).first;
  } else {
    for (int64_t query = q0; query < q_end; ++query) {
      const KeyRange own = seen(span, query);
      if (own.first >= own.end) continue;
      keys = keys.first < keys.end
                 ? KeyRange{std::min(keys.first, own.first), std::max(keys.end, own.end)}
                 : own;
    }
  }
  return {keys.first / k_block, ceil_div(keys.end, k_block)};
}

AttentionSpan AttentionShape::part(const AttentionSpan& sequence, int64_t row) const {
  if (!sequence.has_ranges()) return sequence;
  const auto of_row = [&](int64_t i) {
    KeyRange keys{0, spec.kv_len};
    if (spec.mask == AttentionMask::causal)
      keys.end = std::clamp<int64_t>(i + 1 + sequence.shift, 0, spec.kv_len);
    if (sequence.begins != nullptr) keys.first = std::max<int64_t>(0, sequence.begins[i]);
    if (sequence.ends != nullptr) keys.end = std::min<int64_t>(keys.end, sequence.ends[i]);
    return keys;
  };
  KeyRange keys = {};
  int64_t end = row;
  for (; end < spec.q_len; ++end) {
    const KeyRange own = of_row(end);
    if (own.first >= own.end) continue;
    if (keys.first < keys.end && own.first >= keys.end) break;
    keys = keys.first < keys.end
               ? KeyRange{std::min(keys.first, own.first), std::max(keys.end, own.end)}
               : own;
  }
  AttentionSpan part = sequence;
  part.q_row += row, part.kv_row += keys.first;
  part.q_len = end - row, part.kv_len = keys.end - keys.first;
  part.shift += row - keys.first, part.first_key = keys.first;
  if (part.begins != nullptr) part.begins += row;
  if (part.ends != nullptr) part.ends += row;
  return part;
}

void pack_operand(const MatrixIn& b, const TileGemm& product, Extent extent, void* dst) {
  const PanelLayout& layout = product.panels();
  const int64_t panel_bytes = bytes_of(layout.dtype, layout.panel_elems());
  for (int64_t n = 0; n < product.shape().n; n += layout.width) {
    const int64_t begin = std::min(n, extent.n), end = std::min(n + layout.width, extent.n);
    pack_panel(b, layout, {0, extent.k, begin, end}, true,
               static_cast<char*>(dst) + n / layout.width * panel_bytes);
  }
}

}  // namespace octet::cpu
#endif
