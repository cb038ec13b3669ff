// What the prepared kernels of the module share.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>

namespace octet::cuda {

struct Context {
  int device = 0;
  bool deterministic = false;
  int n_sm = 0;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t blas = nullptr;
  // Algorithms that were timed, by the text of the problem: layers repeat themselves.
  std::map<std::string, cublasLtMatmulAlgo_t> gemm_algorithms = {};
  // Whatever a family keeps between its kernels (a library's handle), by its name.
  std::map<std::string, std::shared_ptr<void>> shared = {};
};

}  // namespace octet::cuda
