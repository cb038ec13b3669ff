#include <algorithm>

#include "backends/cuda/kernels/ranks/stream_ops.h"
#include "backends/cuda/kernels/ranks/transport.h"

namespace octet::cuda {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void WithinHost::begin(uint32_t run, cudaStream_t stream) {
  next_inside_ = RankBarrier::inside_run;
  barrier(RankBarrier::before_run, run, stream);
}
void WithinHost::barrier(cudaStream_t stream) {
  const bool is_first = next_inside_ == RankBarrier::inside_run;
  barrier(next_inside_, 0, stream);
  next_inside_ = is_first ? RankBarrier::inside_again : RankBarrier::inside_run;
}
void WithinHost::end(cudaStream_t stream) {
  barrier(RankBarrier::behind_run, 0, stream);
}

void WithinHost::bring(int local, const void* given, void* to, int64_t n_bytes,
                       cudaStream_t stream) const {
  if (n_bytes == 0) return;
  check(cudaMemcpyAsync(to, links_.peers<const std::byte>(given)[local],
                        static_cast<size_t>(n_bytes), cudaMemcpyDefault, stream),
        "bringing what another rank has");
}

// Work queued behind it on this stream begins when the streams of all ranks have come here.
void WithinHost::barrier(RankBarrier barrier, uint32_t run, cudaStream_t stream) const {
  RankBoard* const own = links_.board();
  const auto boards = links_.boards();
  std::vector<CUstreamBatchMemOpParams> ops, resets;
  if (run > 0) ops.push_back(write_word(links_.progress.run, run));
  for (int r = 0; r < links_.n_local; ++r) {
    if (r == links_.local()) continue;
    check(cudaMemcpyAsync(&boards[r]->arrived[barrier][links_.local()], &own->one, sizeof(own->one),
                          cudaMemcpyDefault, stream),
          "telling another rank that this one has come");
    ops.push_back(wait_for_one(&own->arrived[barrier][r]));
    resets.push_back(write_word(&own->arrived[barrier][r], 0));
  }
  ops.insert(ops.end(), resets.begin(), resets.end());
  run_stream_ops(ops, stream);
}

// Ranks that have not come to any barrier; where one has come to one, those that are not there.
std::string WithinHost::missing(cudaStream_t beside) const {
  RankBoard board{};
  check(cudaMemcpyAsync(&board, links_.board(), sizeof(board), cudaMemcpyDeviceToHost, beside),
        "reading who has come");
  check(cudaStreamSynchronize(beside), "reading who has come");
  std::string names;
  for (int r = 0; r < links_.n_local; ++r) {
    bool has_come = r == links_.local();
    for (const auto& barrier : board.arrived) has_come = has_come || barrier[r] != 0;
    if (!has_come)
      names += (names.empty() ? "" : ", ") + std::to_string(links_.host() * links_.n_local + r);
  }
  return names;
}

// Whoever comes late finds nobody: this rank's error ends them all.
void WithinHost::give_up(std::span<const cudaStream_t> streams, cudaStream_t beside) const {
  const auto until = Clock::now() + std::chrono::seconds(5);
  RankBoard all{};
  for (auto& barrier : all.arrived) std::ranges::fill(barrier, 1u);
  while (!are_idle(streams) && Clock::now() < until) {
    check(cudaMemcpyAsync(links_.board()->arrived, all.arrived, sizeof(all.arrived),
                          cudaMemcpyHostToDevice, beside),
          "passing a meeting alone");
    check(cudaStreamSynchronize(beside), "passing a meeting alone");
  }
}

}  // namespace octet::cuda
