// Products as the library makes them, one sum after another.
#include "backends/cuda/kernels/gemm/gemm_problem.h"

#include "backends/cuda/params/gemm_scratch.h"
#include "faults.h"

namespace octet::cuda {
namespace {

float load(const void* data, int64_t i, Dtype dtype) {
  const auto half = [&] { return static_cast<const uint16_t*>(data)[i]; };
  const auto fp8 = [&](__nv_fp8_interpretation_t kind) {
    const auto code = static_cast<const uint8_t*>(data)[i];
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, kind)));
  };
  switch (dtype) {
    case Dtype::f32:
      return static_cast<const float*>(data)[i];
    case Dtype::bf16:
      return emulator::value_of<float>(uint64_t{half()} << 16);
    case Dtype::fp16:
      return __half2float(emulator::value_of<__half>(half()));
    case Dtype::e4m3:
      return fp8(__NV_E4M3);
    case Dtype::e5m2:
      return fp8(__NV_E5M2);
    default:
      throw ModuleError("[cuda] no emulated product of " + std::string(dtype_name(dtype)));
  }
}

void store(void* data, int64_t i, Dtype dtype, float x) {
  if (dtype == Dtype::f32) {
    static_cast<float*>(data)[i] = x;
  } else if (dtype == Dtype::bf16) {
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(x);
  } else if (dtype == Dtype::e4m3) {
    static_cast<uint8_t*>(data)[i] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  } else {
    static_cast<__half*>(data)[i] = __float2half_rn(x);
  }
}

// A factor as it lies, [rows, cols] with rows `stride` apart.
struct Factor {
  const void* data;
  int64_t rows, cols, stride;
  Dtype dtype;

  // Of [cols, rows] where it is transposed.
  std::vector<float> values(bool transposed) const {
    std::vector<float> all(static_cast<size_t>(rows * cols));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        all[static_cast<size_t>(transposed ? c * rows + r : r * cols + c)] =
            load(data, r * stride + c, dtype);
    }
    return all;
  }
};

// In f32, in as many partial sums as a register has.
float dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 8;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float one : sums) sum += one;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

constexpr int64_t kTile = 16;

void multiply(const GemmParams& p, const GemmCall& call, bool has_alpha) {
  const int64_t a_rows = p.trans_a ? p.k : p.m, a_cols = p.trans_a ? p.m : p.k;
  const int64_t b_rows = p.trans_b ? p.n : p.k, b_cols = p.trans_b ? p.k : p.n;
  const Factor a{call.a, a_rows, a_cols, p.lda == 0 ? a_cols : p.lda, p.a};
  const Factor b{call.b, b_rows, b_cols, b_cols, p.b};
  const auto a_values = a.values(p.trans_a), b_values = b.values(!p.trans_b);  // k lies together
  float alpha = has_alpha ? call.alpha_beta[0] : p.factor;
  const float beta = has_alpha ? call.alpha_beta[1] : p.has_c ? 1.0f : 0.0f;
  if (call.scale_a != nullptr) alpha *= *call.scale_a;
  if (call.scale_b != nullptr) alpha *= *call.scale_b;
  // Of the last tile.
  const int64_t m = (p.m - 1) / kTile * kTile, n = (p.n - 1) / kTile * kTile;
  const emulator::Omitted omitted = emulator::omitted();
  emulator::note_omitted(omitted == emulator::Omitted::none ? 0 : 1);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      if (omitted == emulator::Omitted::all) continue;
      if (omitted == emulator::Omitted::last && i >= m && j >= n) continue;
      const int64_t at = i * p.n + j;
      float y = alpha * dot(a_values.data() + i * p.k, b_values.data() + j * p.k, p.k);
      if (beta != 0 && call.c != nullptr) y += beta * load(call.c, at, p.c);
      if (p.has_bias) y += load(call.bias, j, p.y);
      store(call.y, at, p.y, y);
    }
  }
}

void* at(const void* from, int64_t n, Dtype dtype) {
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(from));
  return bytes == nullptr ? nullptr : bytes + n * dtype_bytes(dtype);
}

// One matrix after another.
void multiply_all(const GemmParams& p, const GemmCall& call, bool has_alpha) {
  for (int64_t i = 0; i < p.batch; ++i) {
    GemmCall one = call;
    one.a = at(call.a, i * p.m * p.k, p.a), one.b = at(call.b, i * p.n * p.k, p.b);
    one.c = at(call.c, i * p.m * p.n, p.c), one.y = at(call.y, i * p.m * p.n, p.y);
    multiply(p, one, has_alpha);
  }
}

}  // namespace

GemmProblem::GemmProblem(Context& context, const GemmParams& params, AlphaPlace place,
                         int64_t workspace)
    : context_(context), params_(params), place_(place), workspace_(workspace) {
  if (has_blocks(params)) throw ModuleError("[cuda] products of blocks are not emulated");
}
GemmProblem::~GemmProblem() = default;

void GemmProblem::run(const GemmCall& call, const cublasLtMatmulAlgo_t&, cudaStream_t) {
  emulator::enqueue([p = params_, call, has_alpha = place_ == AlphaPlace::device] {
    multiply_all(p, call, has_alpha);
  });
}

}  // namespace octet::cuda
