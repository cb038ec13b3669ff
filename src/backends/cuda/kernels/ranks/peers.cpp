// Ranks that reach each other's memory: copy engines move data, and a rank waits for the others
// without a multiprocessor.
#include <algorithm>

#include "backends/cuda/kernels/ranks/stream_ops.h"
#include "backends/cuda/kernels/ranks/transport.h"

namespace octet::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Those that have not come to any meeting; where one has come to one, those that are not there.
std::string missing_ranks(const RankLinks& links, cudaStream_t beside) {
  RankBoard board{};
  check(cudaMemcpyAsync(&board, links.board(), sizeof(board), cudaMemcpyDeviceToHost, beside),
        "reading who has come");
  check(cudaStreamSynchronize(beside), "reading who has come");
  std::string names;
  for (int r = 0; r < links.n_ranks; ++r) {
    bool has_come = r == links.rank;
    for (const auto& meeting : board.arrived) has_come = has_come || meeting[r] != 0;
    if (!has_come) names += (names.empty() ? "" : ", ") + std::to_string(r);
  }
  return names;
}

class PeerTransport : public Transport {
 public:
  explicit PeerTransport(const RankLinks& links) : links_(links) {}
  void begin(uint32_t run, cudaStream_t stream) override { meet(Meeting::before_run, run, stream); }
  void end(cudaStream_t stream) override { meet(Meeting::behind_run, 0, stream); }
  void exchange(std::span<const Exchange> parts, cudaStream_t stream) override {
    for (const Exchange& part : parts) {
      if (part.take_bytes == 0) continue;
      check(cudaMemcpyAsync(part.take, links_.peers<const std::byte>(part.given)[part.rank],
                            static_cast<size_t>(part.take_bytes), cudaMemcpyDefault, stream),
            "bringing what another rank has");
    }
  }
  std::array<const int64_t*, kMostRanks> share_sums(cudaStream_t stream) override {
    meet(Meeting::inside_run, 0, stream);
    return links_.peers<const int64_t>(links_.board()->sum);
  }
  std::string missing(cudaStream_t beside) override { return missing_ranks(links_, beside); }
  // Whoever comes late finds nobody: this rank's error ends them all.
  void give_up(std::span<const cudaStream_t> streams, cudaStream_t beside) override {
    const auto until = Clock::now() + std::chrono::seconds(5);
    RankBoard all{};
    for (auto& meeting : all.arrived) std::ranges::fill(meeting, 1u);
    while (!are_idle(streams) && Clock::now() < until) {
      check(cudaMemcpyAsync(links_.board()->arrived, all.arrived, sizeof(all.arrived),
                            cudaMemcpyHostToDevice, beside),
            "passing a meeting alone");
      check(cudaStreamSynchronize(beside), "passing a meeting alone");
    }
  }

 private:
  // What is queued behind it on this stream begins when the streams of all ranks have come here.
  void meet(Meeting meeting, uint32_t run, cudaStream_t stream) {
    RankBoard* const own = links_.board();
    const auto boards = links_.boards();
    std::vector<CUstreamBatchMemOpParams> ops, resets;
    if (run > 0) ops.push_back(write_word(links_.progress.run, run));
    for (int r = 0; r < links_.n_ranks; ++r) {
      if (r == links_.rank) continue;
      check(cudaMemcpyAsync(&boards[r]->arrived[meeting][links_.rank], &own->one, sizeof(own->one),
                            cudaMemcpyDefault, stream),
            "telling another rank that this one has come");
      ops.push_back(wait_for_one(&own->arrived[meeting][r]));
      resets.push_back(write_word(&own->arrived[meeting][r], 0));
    }
    ops.insert(ops.end(), resets.begin(), resets.end());
    run_stream_ops(ops, stream);
  }

  const RankLinks& links_;
};

}  // namespace

std::unique_ptr<Transport> make_peer_transport(const RankLinks& links) {
  return std::make_unique<PeerTransport>(links);
}

}  // namespace octet::cuda
