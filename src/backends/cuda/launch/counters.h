// Words of device memory by which the blocks of a launch count themselves or tell each other what
// they found. Every prepared kernel has its own as long as it lives, so that launches on two
// streams, or of two programs, do not meet there. They are 0 before a launch, and its last block
// leaves them so.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

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
  static constexpr size_t kBytes = kCounters * sizeof(unsigned int), kSlots = 1024;

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

}  // namespace octet::cuda
