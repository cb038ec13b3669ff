#include "backends/cpu/gemm/gemm.h"

#include <memory>
#include <vector>

#include "backends/cpu/bind/launch.h"
#include "backends/cpu/gemm/tile_gemm.h"

namespace octet::cpu {
namespace {

using GemmSlots = octet::Gemm;

Transpose transpose_if(bool is_transposed) {
  return is_transposed ? Transpose::yes : Transpose::no;
}

GemmSpec spec_of(const NodeView& view) {
  const auto& attrs = view.attrs<GemmAttrs>();
  const TensorType &a = view.in(GemmSlots::a), &b = view.in(GemmSlots::b),
                   &y = view.out(GemmSlots::y);
  return {.m = y.shape[0],
          .n = y.shape[1],
          .k = read_shape(a, attrs.trans_a)[1],
          .a = a.dtype,
          .b = b.dtype,
          .c = y.dtype,
          .trans_a = transpose_if(reads_transposed(a, attrs.trans_a)),
          .trans_b = transpose_if(reads_transposed(b, attrs.trans_b))};
}

// Factors f32, bf16, or codes of one scale, which the kernel decodes exactly; the result is f32 or
// bf16.
bool gemm_applies(const NodeView& view) {
  const auto factor = [](const TensorType& type) {
    return (is_f32_or_bf16(type.dtype) || is_gemm_operand(type.dtype)) && scale_tile(type).is_all();
  };
  const bool addend = !view.has(GemmSlots::c) || is_f32_or_bf16(view.in(GemmSlots::c).dtype);
  return factor(view.in(GemmSlots::a)) && factor(view.in(GemmSlots::b)) &&
         is_f32_or_bf16(view.out(GemmSlots::y).dtype) && addend;
}

LaunchFn gemm_prepare(const NodeView& view, Context& context) {
  const bool is_row = view.has(GemmSlots::c) && is_bias_row(view.in(GemmSlots::c));
  return launcher(view, context,
                  [gemm = Gemm(spec_of(view), context.pool.n_threads()), is_row](const Call& call) {
                    const In c = call.in(GemmSlots::c);
                    gemm.launch({.a = call.args.operands[GemmSlots::a],
                                 .b = call.args.operands[GemmSlots::b],
                                 .c = call.args.results[GemmSlots::y],
                                 .scale_a = call.data<float>(GemmSlots::scale_a),
                                 .scale_b = call.data<float>(GemmSlots::scale_b),
                                 .bias = is_row ? c : In{},
                                 .addend = is_row ? In{} : c,
                                 .scratch = call.args.scratch},
                                call.pool);
                  });
}

// One matrix of the batch.
GemmSpec batched_spec(const NodeView& view) {
  const auto& attrs = view.attrs<BatchedGemmAttrs>();
  const Shape &a = view.in(BatchedGemm::a).shape, &y = view.out(BatchedGemm::y).shape;
  return {.m = y[1],
          .n = y[2],
          .k = a[attrs.trans_a ? 1 : 2],
          .a = view.in(BatchedGemm::a).dtype,
          .b = view.in(BatchedGemm::b).dtype,
          .c = view.out(BatchedGemm::y).dtype,
          .trans_a = transpose_if(attrs.trans_a),
          .trans_b = transpose_if(attrs.trans_b)};
}

// A thread is idle where matrices that are one tile or few are multiplied one after another: each
// of these is one thread's, beside the others.
bool is_of_one_thread(const GemmSpec& spec, int64_t n, int n_threads) {
  constexpr int64_t kSmallProduct = int64_t{1} << 21;
  const bool is_small = spec.m * spec.n * spec.k <= kSmallProduct;
  return is_small && (n >= n_threads || spec.m * spec.n <= kTileRows * kTileColumns);
}

// Products of the batch, each as if it were alone: bits do not depend on the batch.
class BatchedGemmKernel {
 public:
  BatchedGemmKernel(const GemmSpec& spec, int64_t n, int n_threads) : spec_(spec), n_(n) {
    const bool is_shared = !is_of_one_thread(spec, n, n_threads);
    for (int i = 0; i < (is_shared ? 1 : n_threads); ++i) {
      gemms_.emplace_back(spec, is_shared ? n_threads : 1);
    }
    if (!is_shared) alone_ = std::make_shared<ThreadPool>(1);
  }

  int64_t scratch_bytes() const { return static_cast<int64_t>(gemms_.size()) * own_bytes(); }

  void launch(const Call& call, float factor) const {
    if (alone_ == nullptr) {
      for (int64_t i = 0; i < n_; ++i) launch_one(call, factor, {i, 0}, call.pool);
      return;
    }
    for_tiles(call.pool, n_, [&](int64_t i, int thread) {
      launch_one(call, factor, {i, static_cast<size_t>(thread)}, *alone_);
    });
  }

 private:
  struct Place {
    int64_t matrix = 0;
    size_t gemm = 0;
  };
  int64_t own_bytes() const {
    return round_up(static_cast<int64_t>(gemms_.front().scratch_bytes()), 64);
  }
  void launch_one(const Call& call, const float& factor, Place place, ThreadPool& pool) const {
    const auto [i, gemm] = place;
    const int64_t n_y = i * spec_.m * spec_.n;
    gemms_[gemm].launch(
        {.a = offset(call.in(BatchedGemm::a), i * spec_.m * spec_.k).data,
         .b = offset(call.in(BatchedGemm::b), i * spec_.n * spec_.k).data,
         .c = offset(call.out(BatchedGemm::y), n_y).data,
         .alpha = &factor,
         .addend = offset(call.in(BatchedGemm::c), n_y),
         .scratch = call.scratch<char>() + static_cast<int64_t>(gemm) * own_bytes()},
        pool);
  }

  GemmSpec spec_;
  int64_t n_;
  std::vector<Gemm> gemms_;            // one, or each thread's
  std::shared_ptr<ThreadPool> alone_;  // of copies too; without threads of its own, for any thread
};

BatchedGemmKernel batched_kernel(const NodeView& view, int n_threads) {
  return {batched_spec(view), view.out(BatchedGemm::y).shape[0], n_threads};
}

LaunchFn batched_prepare(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [kernel = batched_kernel(view, context.pool.n_threads()),
                   factor = static_cast<float>(view.attrs<BatchedGemmAttrs>().factor)](
                      const Call& call) { kernel.launch(call, factor); });
}

int64_t batched_scratch(const NodeView& view) {
  return batched_kernel(view, view.target.n_threads).scratch_bytes();
}

int64_t gemm_scratch(const NodeView& view) {
  return static_cast<int64_t>(Gemm(spec_of(view), view.target.n_threads).scratch_bytes());
}

const Binding kGemmBindings[] = {
    {{OpCode::gemm, "simd", gemm_applies, gemm_scratch}, gemm_prepare},
    {{OpCode::batched_gemm, "simd", all_f32_or_bf16, batched_scratch}, batched_prepare}};

}  // namespace

std::span<const Binding> gemm_bindings() {
  return kGemmBindings;
}

}  // namespace octet::cpu
