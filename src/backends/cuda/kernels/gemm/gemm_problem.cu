#include "backends/cuda/kernels/gemm/gemm_problem.h"

#include <array>
#include <memory>
#include <vector>

#include "backends/cuda/kernels/gemm/gemm_trial.h"
#include "backends/cuda/launch/kernel.h"
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

template <typename T>
void set_attribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                   const T& value) {
  check_blas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
             "describing a product");
}

// Columns lie `stride` apart; 0: one behind the other. Matrices of a batch follow each other.
cublasLtMatrixLayout_t layout(Dtype dtype, int64_t rows, int64_t cols, int64_t batch,
                              int64_t stride = 0) {
  cublasLtMatrixLayout_t result = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&result, blas_type(dtype), static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(cols), stride == 0 ? rows : stride),
             "describing a matrix");
  if (batch == 1) return result;
  const auto count = static_cast<int32_t>(batch);
  const int64_t offset = rows * cols;
  check_blas(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof(count)),
             "describing a batch");
  check_blas(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &offset, sizeof(offset)),
             "describing a batch");
  return result;
}

int32_t scale_mode(const GemmParams& p, const GemmBlocks& blocks) {
  if (p.kind == GemmKind::by_rows) return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  return is_square(blocks) ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                           : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
}

constexpr int kProposals = 16;
const void* const kAligned = reinterpret_cast<const void*>(uintptr_t{256});

}  // namespace

GemmProblem::GemmProblem(Context& context, const GemmParams& params, AlphaPlace place,
                         int64_t workspace)
    : context_(context), params_(params), place_(place), workspace_(workspace) {
  describe();
  if (!take_cached()) choose(workspace);
  note();
}

GemmProblem::~GemmProblem() {
  for (cublasLtMatrixLayout_t one : {a_, b_, c_, y_}) {
    if (one != nullptr) cublasLtMatrixLayoutDestroy(one);
  }
  if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
}

void GemmProblem::describe() {
  const GemmParams& p = params_;
  const auto compute = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check_blas(cublasLtMatmulDescCreate(&operation_, compute, CUDA_R_32F), "describing a product");
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
  if (p.has_bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                  static_cast<int32_t>(blas_type(p.y)));
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, kAligned);
  }
  if (has_blocks(p)) {
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(p, p.b_blocks));
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(p, p.a_blocks));
    // The library looks at the scales' alignment; run() sets those of the call.
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, kAligned);
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, kAligned);
  }
  a_ = p.trans_b ? layout(p.b, p.k, p.n, p.batch) : layout(p.b, p.n, p.k, p.batch);
  b_ = p.trans_a ? layout(p.a, p.m, p.k, p.batch, p.lda) : layout(p.a, p.k, p.m, p.batch, p.lda);
  c_ = layout(p.c, p.n, p.m, p.batch);
  y_ = layout(p.y, p.n, p.m, p.batch);
}

std::string GemmProblem::key() const {
  const GemmParams& p = params_;
  const auto factor = [](Dtype dtype, bool transposed) {
    return std::string(dtype_name(dtype)) + (transposed ? "^T" : "");
  };
  const auto scales = [](const GemmBlocks& blocks) {
    return std::to_string(blocks.rows) + " x " + std::to_string(blocks.cols);
  };
  std::string text = std::to_string(p.m) + " x " + std::to_string(p.n) + " x " +
                     std::to_string(p.k) + " " + factor(p.a, p.trans_a) + " x " +
                     factor(p.b, p.trans_b);
  if (p.has_c) text += " + " + std::string(dtype_name(p.c));
  if (p.has_bias) text += " + bias";
  text += " -> " + std::string(dtype_name(p.y));
  if (p.fast_accumulate) text += ", fast";
  if (p.tf32) text += ", TF32";
  if (p.batch != 1) text += ", batch of " + std::to_string(p.batch);
  if (p.lda != 0) text += ", rows " + std::to_string(p.lda) + " apart";
  if (has_blocks(p)) text += ", scales of " + scales(p.a_blocks) + " and " + scales(p.b_blocks);
  if (place_ == AlphaPlace::device) text += ", alpha on the device";
  if (p.checks_sums) text += ", sums and bias checked";
  return text + ", workspace " + std::to_string(workspace_);
}

// True if the library still takes the algorithm within our workspace; also how much of it it uses.
bool GemmProblem::offers(const cublasLtMatmulAlgo_t& algorithm, int64_t* workspace_bytes) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(context_.blas, operation_, a_, b_, c_, y_, &algorithm, &result);
  *workspace_bytes = static_cast<int64_t>(result.workspaceSize);
  return status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
         *workspace_bytes <= workspace_;
}

// Proposals of the library, the likely fastest first. A split of k is added in f32, since in a
// 16-bit result each part would be rounded; it changes the bits of sums with a rule
// (math/tensor_sums.h).
std::vector<GemmAlgorithm> GemmProblem::proposals() const {
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference), "asking for an algorithm");
  const auto limit = static_cast<size_t>(workspace_);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                       sizeof(limit));
  const uint32_t reductions =
      params_.checks_sums ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                       &reductions, sizeof(reductions));
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> found{};
  int n_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      context_.blas, operation_, a_, b_, c_, y_, preference, kProposals, found.data(), &n_found);
  cublasLtMatmulPreferenceDestroy(preference);
  std::vector<GemmAlgorithm> all;
  if (status != CUBLAS_STATUS_SUCCESS) return all;
  for (int i = 0; i < n_found; ++i)
    all.push_back(GemmAlgorithm(found[static_cast<size_t>(i)].algo));
  return all;
}

// Of these, the ones whose sums are the card's by its rule.
std::vector<GemmAlgorithm> GemmProblem::with_sums(const std::vector<GemmAlgorithm>& all,
                                                  const GemmTrial& trial) {
  GemmSums sums(context_.capability, params_, place_, trial, context_.stream);
  if (!sums.has_rule()) return all;
  std::vector<GemmAlgorithm> right = all;
  for (const auto which : {GemmSums::Trial::random, GemmSums::Trial::cancelling}) {
    sums.begin(which);
    std::erase_if(right, [&](const GemmAlgorithm& algorithm) {
      try {
        return !sums.holds([&](const GemmCall& call) { run(call, algorithm, context_.stream); });
      } catch (const ModuleError&) {  // proposed and then refused
        return true;
      }
    });
  }
  if (right.empty())
    throw ModuleError("[cuda] none of " + std::to_string(all.size()) +
                      " algorithms adds as tensor_sums.h says: " + key());
  return right;
}

bool GemmProblem::take_cached() {
  const auto cached = context_.cached_algorithms.find(key());
  int64_t n_bytes = 0;
  if (cached == context_.cached_algorithms.end() || !offers(cached->second, &n_bytes)) return false;
  context_.gemm_algorithms.insert_or_assign(key(), cached->second);
  algorithm_ = cached->second;
  return true;
}

void GemmProblem::note() {
  int64_t n_bytes = 0;
  if (offers(algorithm_, &n_bytes)) context_.gemm_algorithms[key()].workspace_bytes = n_bytes;
}

void GemmProblem::choose(int64_t workspace) {
  const auto known = context_.gemm_algorithms.find(key());
  if (known != context_.gemm_algorithms.end()) {
    algorithm_ = known->second;
    return;
  }
  std::vector<GemmAlgorithm> found = proposals();
  if (found.empty()) throw ModuleError("[cuda] no algorithm for the product " + key());
  std::unique_ptr<GemmTrial> trial;
  if (params_.checks_sums || (!context_.deterministic && found.size() > 1))
    trial = std::make_unique<GemmTrial>(params_, workspace, context_.lent, context_.stream);
  if (params_.checks_sums) {
    if (!trial->has_memory()) throw ModuleError("[cuda] no memory to check the sums of " + key());
    found = with_sums(found, *trial);
    // What is timed are normal deviates again.
    trial.reset();
    if (!context_.deterministic && found.size() > 1)
      trial = std::make_unique<GemmTrial>(params_, workspace, context_.lent, context_.stream);
  }
  algorithm_ = found[0].code;
  float ms = 0;
  if (!context_.deterministic && found.size() > 1 && trial->has_memory()) {
    int last = 0;
    const auto run_one = [&](int i) {
      last = i;
      run(trial->call(), found[static_cast<size_t>(i)], context_.stream);
    };
    const auto fastest = [&] {
      try {
        return trial->fastest(static_cast<int>(found.size()), run_one);
      } catch (const ModuleError& error) {
        throw ModuleError(std::string(error.what()) + ", at proposal " + std::to_string(last) +
                          " for " + key());
      }
    }();
    algorithm_ = found[static_cast<size_t>(fastest.candidate)].code;
    ms = fastest.ms;
  }
  context_.gemm_algorithms[key()] = {algorithm_, ms};
}

void GemmProblem::run(const GemmCall& call, const cublasLtMatmulAlgo_t& algorithm,
                      cudaStream_t stream) {
  if (call.scale_a != nullptr && is_fp8(params_.a)) {
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.scale_b);
    set_attribute(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.scale_a);
  }
  if (params_.has_bias) set_attribute(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  const float alpha = params_.factor, beta = params_.has_c ? 1.0f : 0.0f;
  const bool on_device = place_ == AlphaPlace::device;
  const void* alpha_at = on_device ? call.alpha_beta : &alpha;
  const void* beta_at = on_device ? call.alpha_beta + 1 : &beta;
  // Without an addend c is y, or nothing where it could not lie there.
  const void* c = params_.has_c ? call.c : params_.c == params_.y ? call.y : nullptr;
  check_blas(cublasLtMatmul(context_.blas, operation_, alpha_at, call.b, a_, call.a, b_, beta_at, c,
                            c_, call.y, y_, &algorithm, call.workspace,
                            static_cast<size_t>(workspace_), stream),
             "multiplying " + key());
}

}  // namespace octet::cuda
