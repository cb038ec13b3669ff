// How bytes move between ranks, below the collectives (ranks.cu, reduce_ranks.cu), which add and
// compare: by peers' memory within a host, by NCCL between hosts, or by one of them alone.
//
// Every rank makes the same calls in the same order, on one stream. They may be captured in a CUDA
// graph once their like have run outside of one. Throws ModuleError.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backends/cuda/kernels/ranks/nccl_api.h"
#include "backends/cuda/launch/ranks.h"

namespace octet::cuda {

// For the reason of a failure to arrive from the rank that has it.
inline constexpr std::chrono::milliseconds kWords{2'000};

// The ranks of a host, which reach each other's memory (RankLinks::peers): copy engines move data,
// and a rank waits for the others without a multiprocessor.
class WithinHost {
 public:
  explicit WithinHost(const RankLinks& links) : links_(links) {}
  // `run`: the number of the run in its plan. What is queued behind `begin` on this stream finds
  // the operands of all ranks there; what is queued behind `end` may overwrite them.
  void begin(uint32_t run, cudaStream_t stream);
  // Work queued behind it finds what the others queued before theirs.
  void barrier(cudaStream_t stream);
  void end(cudaStream_t stream);
  // Brings what rank `local` of the host has at an address of this one: all have the same layout.
  void bring(int local, const void* given, void* to, int64_t n_bytes, cudaStream_t stream) const;

  // The ranks that have not come, as text; empty: all have.
  std::string missing(cudaStream_t beside) const;
  // Lets what is queued end without the others.
  void give_up(std::span<const cudaStream_t> streams, cudaStream_t beside) const;

 private:
  void barrier(RankBarrier barrier, uint32_t run, cudaStream_t stream) const;

  const RankLinks& links_;
  RankBarrier next_inside_ = RankBarrier::inside_run;
};

// Data that this rank gives the one of another host, and takes from it.
struct Exchange {
  int host = 0;
  const std::byte* give = nullptr;
  int64_t give_bytes = 0;
  std::byte* take = nullptr;
  int64_t take_bytes = 0;
};

// The ranks of equal number on their hosts, which NCCL connects; where NCCL moves everything, each
// rank counts as a host. It moves bytes, adds whole numbers and compares bits, so that results do
// not depend on it.
class BetweenHosts {
 public:
  // Returns when all ranks are there, and throws once one of them has failed.
  BetweenHosts(const RankLinks& links, const nccl::Api& api, const nccl::UniqueId& id);
  ~BetweenHosts();
  BetweenHosts(const BetweenHosts&) = delete;
  BetweenHosts& operator=(const BetweenHosts&) = delete;

  void exchange(std::span<const Exchange> parts, cudaStream_t stream);
  // Pieces of n_bytes of all hosts, in their order, with one's own.
  void all_gather(const void* own, void* all, int64_t n_bytes, cudaStream_t stream);
  // The largest of all hosts' n words: of floats that are not negative, NaN is above all.
  void max_of(const void* x, void* y, int64_t n, nccl::DataType type, cudaStream_t stream);
  // Addition of an exact sum, in its place.
  void add_sums(int64_t* sum, cudaStream_t stream);
  // Memory for parts of a tensor, of one collective at a time.
  std::span<std::byte> staging() const;

  std::string problem();  // why nothing will come any more; empty: it will
  void give_up();         // what is queued ends without the others

 private:
  template <typename Calls>
  void group(const char* what, const Calls& calls);
  void add(nccl::Result result);
  void settle(nccl::Result result, const char* what);
  std::string text_of(nccl::Result result) const;
  void end_communicator();

  const RankLinks& links_;
  const nccl::Api& api_;
  nccl::Communicator comm_ = nullptr;
  nccl::Result first_ = nccl::success;
  void* staging_ = nullptr;
};

// One of them, or both.
struct Transport {
  const RankLinks& links;
  std::unique_ptr<WithinHost> within = {};
  std::unique_ptr<BetweenHosts> between = {};

  void begin(uint32_t run, cudaStream_t stream);  // as of WithinHost; between hosts, who gives
  void end(cudaStream_t stream);                  // waits for who takes
  void give_up(std::span<const cudaStream_t> streams, cudaStream_t beside);
};

// Waits until the streams have ended their work, and looks at the other ranks meanwhile. Where one
// of them has failed, or it takes longer than `patience`, it lets the streams end without them, by
// copies on the stream `beside`, and throws ModuleError, naming the ranks that did not come.
void await_ranks(const RankLinks& links, std::span<const cudaStream_t> streams, cudaStream_t beside,
                 std::chrono::milliseconds patience = std::chrono::hours(1 << 20));

}  // namespace octet::cuda
