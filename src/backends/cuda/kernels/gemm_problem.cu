#include "backends/cuda/kernels/gemm_problem.h"

#include <algorithm>
#include <array>
#include <vector>

#include "backends/cuda/kernels/element.cuh"
#include "backends/cuda/params/gemm_scratch.h"

namespace octet::cuda {
namespace {

void check_blas(cublasStatus_t status, const std::string& what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw ModuleError("[cuda] " + what + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t blas_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return CUDA_R_32F;
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::fp16:
      return CUDA_R_16F;
    case Dtype::e4m3:
      return CUDA_R_8F_E4M3;
    case Dtype::e5m2:
      return CUDA_R_8F_E5M2;
    default:
      throw ModuleError("[cuda] no product of " + std::string(dtype_name(dtype)));
  }
}

// Pseudo-random finite numbers of moderate size: what a product is timed on.
__global__ void fill_random(uint32_t* words, int64_t n, uint32_t keep, uint32_t set) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    uint32_t x = static_cast<uint32_t>(i) * 0x9E3779B9u;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    words[i] = ((x ^ (x >> 16)) & keep) | set;
  }
}

// Memory for as long as a product is timed; null where there is none.
class Trial {
 public:
  Trial(int64_t bytes, Dtype dtype, cudaStream_t stream) {
    if (cudaMalloc(&data_, static_cast<size_t>(bytes + 256)) != cudaSuccess) {
      cudaGetLastError();
      data_ = nullptr;
      return;
    }
    // Signs and significands random, exponents in a narrow band.
    uint32_t keep = 0x807FFFFFu, set = 0x3F000000u;
    if (dtype == Dtype::bf16) keep = 0x80FF80FFu, set = 0x3E803E80u;
    if (dtype == Dtype::fp16) keep = 0x83FF83FFu, set = 0x34003400u;
    if (dtype_bytes(dtype) == 1) keep = 0x8F8F8F8Fu, set = 0x30303030u;
    fill_random<<<1024, 256, 0, stream>>>(static_cast<uint32_t*>(data_), ceil_div(bytes, 4), keep,
                                          set);
  }
  ~Trial() { cudaFree(data_); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

template <typename T>
void set_attribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                   const T& value) {
  check_blas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
             "describing a product");
}

cublasLtMatrixLayout_t layout(Dtype dtype, int64_t rows, int64_t cols) {
  cublasLtMatrixLayout_t result = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&result, blas_type(dtype), static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(cols), rows),
             "describing a matrix");
  return result;
}

constexpr int kProposals = 16;
constexpr int kTrials = 3;

}  // namespace

GemmProblem::GemmProblem(Context& context, const GemmParams& params, AlphaPlace place,
                         int64_t workspace)
    : context_(context), params_(params), place_(place), workspace_(workspace) {
  describe();
  choose(workspace);
}

GemmProblem::~GemmProblem() {
  for (cublasLtMatrixLayout_t one : {a_, b_, c_, y_}) {
    if (one != nullptr) cublasLtMatrixLayoutDestroy(one);
  }
  if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
}

void GemmProblem::describe() {
  const GemmParams& p = params_;
  check_blas(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
             "describing a product");
  const cublasOperation_t first = p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set_attribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, first);
  set_attribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, second);
  if (place_ == AlphaPlace::device) {
    const cublasLtPointerMode_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_POINTER_MODE, mode);
  }
  const int8_t fast = p.fast_accumulate ? 1 : 0;
  set_attribute(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
  a_ = p.trans_b ? layout(p.b, p.k, p.n) : layout(p.b, p.n, p.k);
  b_ = p.trans_a ? layout(p.a, p.m, p.k) : layout(p.a, p.k, p.m);
  c_ = layout(p.c, p.n, p.m);
  y_ = layout(p.y, p.n, p.m);
}

std::string GemmProblem::key() const {
  const GemmParams& p = params_;
  std::string text;
  for (const int64_t part :
       {p.m, p.n, p.k, static_cast<int64_t>(p.a), static_cast<int64_t>(p.b),
        static_cast<int64_t>(p.c), static_cast<int64_t>(p.y), static_cast<int64_t>(p.trans_a),
        static_cast<int64_t>(p.trans_b), static_cast<int64_t>(p.has_c),
        static_cast<int64_t>(p.fast_accumulate), static_cast<int64_t>(place_), workspace_}) {
    text += std::to_string(part) + " ";
  }
  return text;
}

void GemmProblem::choose(int64_t workspace) {
  const auto known = context_.gemm_algorithms.find(key());
  if (known != context_.gemm_algorithms.end()) {
    algorithm_ = known->second;
    return;
  }
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference), "asking for an algorithm");
  const auto limit = static_cast<size_t>(workspace);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                       sizeof(limit));
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> found{};
  int n_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      context_.blas, operation_, a_, b_, c_, y_, preference, kProposals, found.data(), &n_found);
  cublasLtMatmulPreferenceDestroy(preference);
  check_blas(status, "no algorithm for the product " + key());
  if (n_found == 0) throw ModuleError("[cuda] no algorithm for the product " + key());
  algorithm_ = found[0].algo;
  const GemmParams& p = params_;
  if (!context_.deterministic && n_found > 1) {
    const Trial a(p.m * p.k * dtype_bytes(p.a), p.a, context_.stream);
    const Trial b(p.n * p.k * dtype_bytes(p.b), p.b, context_.stream);
    const Trial y(p.m * p.n * dtype_bytes(p.y), p.y, context_.stream);
    const Trial space(workspace, Dtype::f32, context_.stream);
    const Trial ones(256, Dtype::f32, context_.stream);
    if (a.data() && b.data() && y.data() && space.data() && ones.data()) {
      const auto* one = static_cast<const float*>(ones.data());
      const GemmCall call{.a = a.data(),
                          .b = b.data(),
                          .c = y.data(),
                          .y = y.data(),
                          .scale_a = one,
                          .scale_b = one,
                          .alpha_beta = one,
                          .workspace = space.data()};
      float best = 0;
      for (int i = 0; i < n_found; ++i) {
        const float ms = time(call, found[static_cast<size_t>(i)].algo);
        if (ms > 0 && (best == 0 || ms < best)) {
          best = ms;
          algorithm_ = found[static_cast<size_t>(i)].algo;
        }
      }
    }
  }
  context_.gemm_algorithms[key()] = algorithm_;
}

float GemmProblem::time(const GemmCall& call, const cublasLtMatmulAlgo_t& algorithm) {
  cudaEvent_t from = nullptr, to = nullptr;
  check(cudaEventCreate(&from), "making an event");
  check(cudaEventCreate(&to), "making an event");
  float least = 0;
  try {
    for (int i = 0; i <= kTrials; ++i) {  // the first one warms up
      cudaEventRecord(from, context_.stream);
      run(call, algorithm, context_.stream);
      cudaEventRecord(to, context_.stream);
      check(cudaEventSynchronize(to), "timing a product");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, from, to), "timing a product");
      if (i > 0 && (least == 0 || ms < least)) least = ms;
    }
  } catch (const ModuleError&) {
    least = 0;  // the library proposed it and then refused it: the others stand
  }
  cudaEventDestroy(from);
  cudaEventDestroy(to);
  return least;
}

void GemmProblem::run(const GemmCall& call, const cublasLtMatmulAlgo_t& algorithm,
                      cudaStream_t stream) {
  if (call.scale_a != nullptr && runs_in_fp8(params_)) {
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.scale_b);
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.scale_a);
  }
  const float one = 1.0f, beta = params_.has_c ? 1.0f : 0.0f;
  const bool on_device = place_ == AlphaPlace::device;
  const void* alpha_at = on_device ? call.alpha_beta : &one;
  const void* beta_at = on_device ? call.alpha_beta + 1 : &beta;
  const void* c = params_.has_c ? call.c : call.y;
  check_blas(cublasLtMatmul(context_.blas, operation_, alpha_at, call.b, a_, call.a, b_, beta_at, c,
                            c_, call.y, y_, &algorithm, call.workspace,
                            static_cast<size_t>(workspace_), stream),
             "multiplying " + key());
}

}  // namespace octet::cuda
