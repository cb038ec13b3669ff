// Words of device memory by which the blocks of a launch count themselves or tell each other what
// they found. Every prepared kernel has its own, so that launches on two streams, or of two
// programs, do not meet there. They are 0 before a launch, and its last block leaves them so.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

class Counters {
 public:
  ~Counters() {
    for (void* const slab : slabs_) cudaFree(slab);
  }

  unsigned int* take() {
    if (free_.empty()) add_slab();
    unsigned int* const words = free_.back();
    free_.pop_back();
    return words;
  }
  void give_back(unsigned int* words) { free_.push_back(words); }

 private:
  static constexpr size_t kBytes = 64, kSlots = 1024;  // of one kernel; of a slab

  void add_slab() {
    void* slab = nullptr;
    check(cudaMalloc(&slab, kBytes * kSlots), "allocating counters");
    slabs_.push_back(slab);
    check(cudaMemset(slab, 0, kBytes * kSlots), "clearing counters");
    for (size_t i = kSlots; i-- > 0;)
      free_.push_back(reinterpret_cast<unsigned int*>(static_cast<std::byte*>(slab) + i * kBytes));
  }

  std::vector<void*> slabs_;
  std::vector<unsigned int*> free_;
};

}  // namespace octet::cuda
