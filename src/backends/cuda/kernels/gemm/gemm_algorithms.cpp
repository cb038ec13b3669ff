#include "backends/cuda/kernels/gemm/gemm_algorithms.h"

#include <cstdio>
#include <cstring>
#include <iterator>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(OctetCudaAlgorithm::code));

// 0 where the algorithm has no such attribute.
uint32_t attribute(const cublasLtMatmulAlgo_t& algorithm,
                   cublasLtMatmulAlgoConfigAttributes_t which) {
  // Attributes are 16 or 32 bits wide and little-endian.
  uint32_t value = 0;
  size_t n_written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &value, sizeof(value), &n_written);
  if (status == CUBLAS_STATUS_SUCCESS) return value;
  uint16_t narrow = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &narrow, sizeof(narrow), &n_written);
  return narrow;
}

// Numbers as cublasLt.h enumerates them.
std::string in_words(const cublasLtMatmulAlgo_t& algorithm) {
  struct Row {
    const char* name;
    cublasLtMatmulAlgoConfigAttributes_t which;
  };
  constexpr Row rows[] = {{"algorithm ", CUBLASLT_ALGO_CONFIG_ID},
                          {", tile ", CUBLASLT_ALGO_CONFIG_TILE_ID},
                          {", stages ", CUBLASLT_ALGO_CONFIG_STAGES_ID},
                          {", cluster ", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID},
                          {", split-k ", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
                          {", reduction ", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME},
                          {", swizzle ", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING},
                          {", option ", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION}};
  std::string text;
  for (const Row& row : rows) text += row.name + std::to_string(attribute(algorithm, row.which));
  return text;
}

}  // namespace

OctetCudaAlgorithm recorded_algorithm(const Context& context, int32_t index) {
  if (index < 0 || index >= std::ssize(context.gemm_algorithms))
    throw ModuleError("[cuda] expected an algorithm below " +
                      std::to_string(context.gemm_algorithms.size()) + ", got " +
                      std::to_string(index));
  const auto& [problem, algorithm] = *std::next(context.gemm_algorithms.begin(), index);
  OctetCudaAlgorithm record{};
  std::snprintf(record.problem, sizeof(record.problem), "%s", problem.c_str());
  std::snprintf(record.choice, sizeof(record.choice), "%s", in_words(algorithm.code).c_str());
  std::memcpy(record.code, &algorithm.code, sizeof(record.code));
  record.workspace_bytes = algorithm.workspace_bytes;
  record.ms = static_cast<double>(algorithm.ms);
  return record;
}

void cache_algorithm(Context& context, const OctetCudaAlgorithm& algorithm) {
  GemmAlgorithm cached;
  std::memcpy(&cached.code, algorithm.code, sizeof(algorithm.code));
  cached.ms = static_cast<float>(algorithm.ms);
  const std::string problem(algorithm.problem,
                            strnlen(algorithm.problem, sizeof(algorithm.problem)));
  context.cached_algorithms.insert_or_assign(problem, cached);
}

}  // namespace octet::cuda
