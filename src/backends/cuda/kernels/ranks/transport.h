// How bytes move between ranks, below the collectives (ranks.cu), which add and compare.
//
// Every rank makes the same calls in the same order, on one stream. They may be captured in a CUDA
// graph once their like have run outside of one. Throws ModuleError.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backends/cuda/kernels/ranks/nccl_api.h"
#include "backends/cuda/launch/ranks.h"

namespace octet::cuda {

// What this rank gives one other, and takes from it.
struct Exchange {
  int rank = 0;
  const std::byte* give = nullptr;
  int64_t give_bytes = 0;
  std::byte* take = nullptr;
  int64_t take_bytes = 0;
  // What the other one gives, as an address of this rank: all have the same layout.
  const std::byte* given = nullptr;
};

// For the reason of a failure to arrive from the rank that has it.
inline constexpr std::chrono::milliseconds kWords{2'000};

class Transport {
 public:
  virtual ~Transport() = default;
  // `run`: the number of the run in its plan. What is queued behind `begin` on this stream finds
  // the operands of all ranks there; what is queued behind `end` may overwrite them.
  virtual void begin(uint32_t run, cudaStream_t stream) = 0;
  virtual void end(cudaStream_t stream) = 0;
  virtual void exchange(std::span<const Exchange> parts, cudaStream_t stream) = 0;
  // Of RankBoard::sum, which each rank has made: what there is to add up still; null behind it.
  virtual std::array<const int64_t*, kMostRanks> share_sums(cudaStream_t stream) = 0;

  // Whether kernels read the memory of other ranks (RankLinks::peers). Where they do not:
  virtual bool reaches_memory() const { return true; }
  // Pieces of `bytes` of all ranks, in their order, with one's own.
  virtual void all_gather(const void*, void*, int64_t, cudaStream_t) {}
  // The largest of all ranks' n words: of floats that are not negative, NaN is above all.
  virtual void max_of(const void*, void*, int64_t, nccl::DataType, cudaStream_t) {}
  // Memory for parts of a tensor, of one collective at a time.
  virtual std::span<std::byte> staging() const { return {}; }

  // Why nothing will come any more; empty: it will.
  virtual std::string problem() { return ""; }
  // The ranks that have not come, as text; empty: they are not known.
  virtual std::string missing(cudaStream_t) { return ""; }
  // Lets what is queued end without the others.
  virtual void give_up(std::span<const cudaStream_t> streams, cudaStream_t beside) = 0;
};

std::unique_ptr<Transport> make_peer_transport(const RankLinks& links);
// Returns when all ranks are there, and throws once one of them has failed.
std::unique_ptr<Transport> make_nccl_transport(const RankLinks& links, const nccl::Api& api,
                                               const nccl::UniqueId& id);

// Waits until the streams have ended their work, and looks at the other ranks meanwhile. Where one
// of them has failed, or it takes longer than `patience`, it lets the streams end without them, by
// copies on the stream `beside`, and throws ModuleError, naming the ranks that did not come.
void await_ranks(const RankLinks& links, std::span<const cudaStream_t> streams, cudaStream_t beside,
                 std::chrono::milliseconds patience = std::chrono::hours(1 << 20));

}  // namespace octet::cuda
