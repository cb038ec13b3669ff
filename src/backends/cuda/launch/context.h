// What the prepared kernels of the module share.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/launch/counters.h"
#include "backends/cuda/launch/ranks.h"

namespace octet::cuda {

// A product's algorithm and what is known of it.
struct GemmAlgorithm {
  GemmAlgorithm() = default;
  GemmAlgorithm(const cublasLtMatmulAlgo_t& chosen, float measured_ms = 0)  // NOLINT: converts
      : code(chosen), ms(measured_ms) {}
  operator const cublasLtMatmulAlgo_t&() const { return code; }  // NOLINT: converts

  cublasLtMatmulAlgo_t code{};
  float ms = 0;  // 0: not measured
  int64_t workspace_bytes = 0;
};

struct Context {
  int device = 0;
  bool deterministic = false;
  int n_sm = 0;
  cudaStream_t stream = nullptr, transfers = nullptr, saves = nullptr;
  cublasLtHandle_t blas = nullptr;
  Counters counters = {};
  std::span<std::byte> lent = {};    // what preparing kernels may overwrite
  std::vector<Joined> waiting = {};  // for the launch that they are made with
  bool is_capturing = false;         // launches, into a CUDA graph
  std::string nccl = {};             // its file; empty: where the system looks
  RankLinks links = {};              // to the other ranks, where there are any
  // Algorithms that were timed, by the text of the problem: layers repeat themselves.
  std::map<std::string, GemmAlgorithm> gemm_algorithms = {};
  // Those of a former process, to be taken where they still apply.
  std::map<std::string, GemmAlgorithm> cached_algorithms = {};
  // Whatever a family keeps between its kernels (a library's handle), by its name.
  std::map<std::string, std::shared_ptr<void>> shared = {};
};

}  // namespace octet::cuda
