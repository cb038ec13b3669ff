// State that the prepared kernels of the module share.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/launch/kernel.h"
#include "backends/cuda/launch/ranks.h"

namespace octet::cuda {

// Words of device memory by which the blocks of a launch count themselves or tell each other what
// they found. Every prepared kernel has its own as long as it lives, so that launches on two
// streams, or of two programs, do not meet there. They are 0 before a launch, and its last block
// leaves them so.
//
// Slabs live as long as the process, as its context does.
class Counters {
 public:
  unsigned int* take() {
    if (free_.empty()) add_slab();
    unsigned int* const words = free_.back();
    free_.pop_back();
    return words;
  }
  void give_back(unsigned int* words) { free_.push_back(words); }

 private:
  static constexpr size_t kBytes = kCounters * sizeof(unsigned int), kSlots = 64;

  void add_slab() {
    void* slab = nullptr;
    check(cudaMalloc(&slab, kBytes * kSlots), "allocating counters");
    check(cudaMemset(slab, 0, kBytes * kSlots), "clearing counters");
    check(cudaStreamSynchronize(nullptr), "clearing counters");
    for (size_t i = kSlots; i-- > 0;)
      free_.push_back(reinterpret_cast<unsigned int*>(static_cast<std::byte*>(slab) + i * kBytes));
  }

  std::vector<unsigned int*> free_;
};

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
  int n_sm = 0, capability = 0;  // 10 major + minor
  cudaStream_t stream = nullptr, transfers = nullptr, saves = nullptr;
  cudaStream_t own_stream = nullptr;  // what `stream` is while none is borrowed
  cublasLtHandle_t blas = nullptr;
  Counters counters = {};
  std::span<std::byte> lent = {};    // what preparing kernels may overwrite
  std::vector<Joined> waiting = {};  // for the launch that they are made with
  bool is_capturing = false;         // launches, into a CUDA graph
  std::string nccl = {};             // its file; empty: where the system looks
  RankLinks links = {};              // to the other ranks, where there are any
  // Algorithms that were timed, by the text of the problem: layers repeat themselves.
  std::map<std::string, GemmAlgorithm> gemm_algorithms = {};
  // Algorithms of a former process, to be taken where they still apply.
  std::map<std::string, GemmAlgorithm> cached_algorithms = {};
  // Whatever a family keeps between its kernels (a library's handle), by its name.
  std::map<std::string, std::shared_ptr<void>> shared = {};
};

}  // namespace octet::cuda
