#include "plan/tensor_gemm.h"

#include "formats/table.h"
#include "ir/ops/slots.h"

namespace octet {
namespace {

constexpr int64_t kTileSide = 16;      // of FP8: sizes are multiples of it
constexpr int64_t kScaledDepth = 128;  // products that share a scale
constexpr int64_t kFewRows = 2;

// A factor as the sums see it: `outer` rows of k.
struct Factor {
  const TensorType& type;
  bool k_is_last;
  int64_t k;

  ScaleTile tile() const {  // rows and columns of [outer, k]
    const ScaleTile t = scale_tile(type);
    return k_is_last ? t : ScaleTile{t.cols, t.rows};
  }
  bool has_one() const { return scale_tile(type).is_all(); }
  // Not groups that are as long as the sum: other kernels read them.
  bool by_row() const {
    return type.granularity.kind == Granularity::Kind::row && tile().rows == 1 && tile().cols == k;
  }
  bool is_line() const { return !has_one() && tile().rows == 1 && tile().cols == kScaledDepth; }
  bool is_square() const {
    return !has_one() && tile().rows == kScaledDepth && tile().cols == kScaledDepth;
  }
};

bool is_half(Dtype dtype) {
  return dtype == Dtype::bf16 || dtype == Dtype::fp16;
}

using Scales = TensorGemm::Scales;

std::optional<Scales> scales_of_fp8(const NodeView& view, const Factor& a, const Factor& b) {
  if (a.has_one() && b.has_one()) return Scales::one;
  if (a.by_row() && b.by_row() && !view.has(Gemm::c)) return Scales::rows;
  const bool is_pair = (a.is_line() && b.is_square()) || (a.is_square() && b.is_line());
  const bool has_bias = view.has(Gemm::c) && is_bias_row(view.in(Gemm::c));
  return is_pair && !has_bias ? std::optional(Scales::blocks) : std::nullopt;
}

// Dtype of decoded factors: as decoded_type() of the same header has it.
std::optional<Dtype> decoded(const NodeView& view, const Factor& a, const Factor& b) {
  const auto is_exact = [&](const Factor& f, size_t scale) {
    return f.has_one() || view.in(scale).dtype == Dtype::e8m0;
  };
  if (!is_exact(a, Gemm::scale_a) || !is_exact(b, Gemm::scale_b)) return std::nullopt;
  const bool has_blocks = !a.has_one() || !b.has_one();
  return view.out(Gemm::y).dtype == Dtype::fp16 && !has_blocks ? Dtype::fp16 : Dtype::bf16;
}

}  // namespace

// True of a GEMM as GemmKind::few_rows has it (backends/cuda/params/gemm_scratch.h).
bool has_few_rows(const Graph& graph, const Node& node) {
  const auto& attrs = std::get<GemmAttrs>(node.attrs);
  const TensorType &a = graph.type(node.in(Gemm::a)), &b = graph.type(node.in(Gemm::b));
  const auto has_one = [](const TensorType& type) { return scale_tile(type).is_all(); };
  const bool halves = is_half(a.dtype) && b.dtype == a.dtype;
  const bool codes = b.dtype == Dtype::e4m3 && (is_half(a.dtype) || a.dtype == b.dtype);
  const bool scaled = node.in(Gemm::scale_a) != kNoValue || node.in(Gemm::scale_b) != kNoValue;
  const Shape shape = read_shape(a, attrs.trans_a);
  return shape[0] > 0 && shape[0] <= kFewRows && shape[1] > 0 && shape[1] % kTileSide == 0 &&
         ((halves && !scaled) || (codes && has_one(a) && has_one(b))) &&
         !reads_transposed(a, attrs.trans_a) && reads_transposed(b, attrs.trans_b);
}

std::optional<TensorGemm> tensor_gemm(const NodeView& view, int capability) {
  if (view.node.op != OpCode::gemm) return std::nullopt;
  const auto& attrs = view.attrs<GemmAttrs>();
  const TensorType &a_type = view.in(Gemm::a), &b_type = view.in(Gemm::b);
  const int64_t m = view.out(Gemm::y).shape[0], n = view.out(Gemm::y).shape[1];
  const int64_t k = read_shape(a_type, attrs.trans_a)[1];
  const Factor a{a_type, !reads_transposed(a_type, attrs.trans_a), k};
  const Factor b{b_type, reads_transposed(b_type, attrs.trans_b), k};
  if (m == 0 || n == 0 || k == 0 || has_few_rows(view.graph, view.node)) return std::nullopt;

  TensorGemm gemm;
  if (is_half(a_type.dtype) && a_type.dtype == b_type.dtype) {
    gemm.factors = a_type.dtype;
  } else if (is_gemm_operand(a_type.dtype) && is_gemm_operand(b_type.dtype) &&
             view.has(Gemm::scale_a) && view.has(Gemm::scale_b)) {
    const bool pads_k = attrs.role == GemmRole::wgrad;
    const bool fits = m % kTileSide == 0 && n % kTileSide == 0 && (pads_k || k % kTileSide == 0);
    const TensorSums* of_codes = find_tensor_sums(capability, a_type.dtype, b_type.dtype);
    if (fits && of_codes != nullptr) {
      const auto scales = scales_of_fp8(view, a, b);
      if (!scales) return std::nullopt;
      const bool is_fast = *scales == Scales::blocks || attrs.fast_accumulate;
      return TensorGemm{.rule = of_codes,
                        .mode = is_fast ? SumMode::one_chain : SumMode::promoted,
                        .scales = *scales,
                        .factors = a_type.dtype};
    }
    const auto dtype = decoded(view, a, b);
    if (!dtype) return std::nullopt;
    gemm.factors = *dtype;
  } else {
    return std::nullopt;
  }
  gemm.rule = find_tensor_sums(capability, gemm.factors, gemm.factors);
  return gemm.rule != nullptr ? std::optional(gemm) : std::nullopt;
}

}  // namespace octet
