#include <thread>

#include "backends/cuda/kernels/ranks/stream_ops.h"
#include "backends/cuda/kernels/ranks/transport.h"

namespace octet::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kEagerLooks = 500;
constexpr std::chrono::microseconds kPause{20};
constexpr milliseconds kBetweenLooks{5};

// Looks at the other ranks now and then; says why nothing will come, "": nothing says so.
class Lookout {
 public:
  Lookout(const RankLinks& links, milliseconds patience)
      : links_(links), patience_(patience), begin_(Clock::now()), looked_(begin_) {}
  std::string why_in_vain(cudaStream_t beside) {
    const auto now = Clock::now();
    if (now - looked_ < kBetweenLooks) return "";
    looked_ = now;
    links_.progress.is_idle = false;
    const std::string rank = "[ranks] rank " + std::to_string(links_.rank) + " ";
    if (links_.look != nullptr && !links_.look(links_.looker, links_.progress.value()))
      return rank + "waited for one that failed";
    // NCCL's word of a rank that is gone may be there before that rank's own.
    if (!problem_.empty() && now - problem_at_ > kWords) return rank + "NCCL: " + problem_;
    if (problem_.empty() && has_between()) {
      problem_ = links_.transport->between->problem();
      problem_at_ = now;
    }
    if (now - begin_ < patience_) return "";
    std::string whom = "its own GPU";
    if (links_.n_ranks > 1) {
      const WithinHost* const within = links_.transport->within.get();
      const std::string names = within == nullptr ? "" : within->missing(beside);
      whom = names.empty() ? "another rank" : "rank " + names;
    }
    return rank + "waited " + std::to_string(patience_.count() / 1000) + " s for " + whom;
  }

 private:
  bool has_between() const { return links_.n_ranks > 1 && links_.transport->between != nullptr; }

  const RankLinks& links_;
  const milliseconds patience_;
  const Clock::time_point begin_;
  Clock::time_point looked_, problem_at_;
  std::string problem_;
};

}  // namespace

void await_ranks(const RankLinks& links, std::span<const cudaStream_t> streams, cudaStream_t beside,
                 milliseconds patience) {
  Lookout lookout(links, patience);
  for (int looks = 0; !are_idle(streams); ++looks) {
    if (looks < kEagerLooks) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(kPause);
    const std::string why = lookout.why_in_vain(beside);
    if (why.empty()) continue;
    if (links.n_ranks > 1) links.transport->give_up(streams, beside);
    throw ModuleError(why);
  }
}

}  // namespace octet::cuda
