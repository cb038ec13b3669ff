// Ranks that NCCL connects: between hosts, and where GPUs do not reach each other's memory. It
// moves bytes, adds whole numbers and compares bits, so that all results are those of peers.
#include <algorithm>
#include <thread>

#include "backends/cuda/kernels/ranks/stream_ops.h"
#include "backends/cuda/kernels/ranks/transport.h"

namespace octet::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMostBlocks = 4;  // of NCCL's kernels: the rest computes
constexpr size_t kStagingBytes = size_t{16} << 20;
constexpr milliseconds kLook{1}, kToEnd{5'000};
constexpr int kEagerLooks = 1000;  // for launches that a thread of NCCL makes

class NcclTransport : public Transport {
 public:
  NcclTransport(const RankLinks& links, const nccl::Api& api) : links_(links), api_(api) {}
  ~NcclTransport() override {
    end_communicator();
    cudaFree(staging_);
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  void connect(const nccl::UniqueId& id) {
    nccl::Config config;
    config.blocking = 0;
    config.min_ctas = 1;
    config.max_ctas = kMostBlocks;
    settle(api_.init_rank(&comm_, links_.n_ranks, id, links_.rank, &config), "connecting ranks");
    check(cudaMalloc(&staging_, kStagingBytes), "memory for what ranks exchange");
  }

  void begin(uint32_t run, cudaStream_t stream) override {
    std::vector ops = {write_word(links_.progress.run, run)};
    run_stream_ops(ops, stream);
  }
  void end(cudaStream_t) override {}  // who gives waits for who takes
  void exchange(std::span<const Exchange> parts, cudaStream_t stream) override {
    group("exchanging parts of a tensor", [&] {
      for (const Exchange& part : parts) {
        if (part.give_bytes > 0)
          add(api_.send(part.give, size(part.give_bytes), nccl::int8, part.rank, comm_, stream));
        if (part.take_bytes > 0)
          add(api_.recv(part.take, size(part.take_bytes), nccl::int8, part.rank, comm_, stream));
      }
    });
  }
  std::array<const int64_t*, kMostRanks> share_sums(cudaStream_t stream) override {
    int64_t* const sum = links_.board()->sum;
    group("adding sums", [&] {
      add(api_.all_reduce(sum, sum, kExactLimbs + 1, nccl::int64, nccl::sum, comm_, stream));
    });
    return {sum};
  }
  bool reaches_memory() const override { return false; }
  void all_gather(const void* own, void* all, int64_t bytes, cudaStream_t stream) override {
    group("all_gather",
          [&] { add(api_.all_gather(own, all, size(bytes), nccl::int8, comm_, stream)); });
  }
  void max_of(const void* x, void* y, int64_t n, nccl::DataType type,
              cudaStream_t stream) override {
    group("maxima", [&] { add(api_.all_reduce(x, y, size(n), type, nccl::max, comm_, stream)); });
  }
  std::span<std::byte> staging() const override {
    return {static_cast<std::byte*>(staging_), kStagingBytes};
  }

  std::string problem() override {
    nccl::Result now = nccl::success;
    if (comm_ == nullptr) return "it was ended";
    const nccl::Result asked = api_.get_async_error(comm_, &now);
    if (asked != nccl::success) now = asked;
    return now == nccl::success || now == nccl::in_progress ? "" : text_of(now);
  }
  void give_up(std::span<const cudaStream_t>, cudaStream_t) override {
    if (comm_ != nullptr) api_.end_now(comm_);
    comm_ = nullptr;
  }

 private:
  static size_t size(int64_t n) { return static_cast<size_t>(n); }

  // Calls that NCCL launches together. It says in the end what is wrong with one of them.
  template <typename Calls>
  void group(const char* what, const Calls& calls) {
    if (comm_ == nullptr) throw ModuleError("[ranks] NCCL was ended");
    first_ = api_.group_start();
    calls();
    add(api_.group_end());
    settle(first_, what);
  }
  void add(nccl::Result result) {
    if (first_ == nccl::success || first_ == nccl::in_progress) first_ = result;
  }

  // Until NCCL has done its part of a call: with a new connection it goes on beside the caller.
  void settle(nccl::Result result, const char* what) {
    for (int looks = 0; result == nccl::in_progress; ++looks) {
      if (looks < kEagerLooks) {
        std::this_thread::yield();
      } else if (links_.look(links_.looker, links_.progress.value())) {
        std::this_thread::sleep_for(kLook);
      } else {
        break;
      }
      const nccl::Result asked = api_.get_async_error(comm_, &result);
      if (asked != nccl::success) result = asked;
    }
    if (result == nccl::success) return;
    const std::string why = text_of(result);
    // Another rank's own words count, where there are any.
    const auto until = Clock::now() + kWords;
    while (links_.look(links_.looker, links_.progress.value()) && Clock::now() < until)
      std::this_thread::sleep_for(kLook);
    give_up({}, nullptr);
    throw ModuleError(std::string("[ranks] NCCL: ") + what + ": " + why);
  }
  std::string text_of(nccl::Result result) const {
    const char* const last = comm_ == nullptr ? nullptr : api_.last_error(comm_);
    std::string text = api_.error_string(result);
    if (last != nullptr && *last != 0) text += std::string(" (") + last + ")";
    return text.substr(0, text.find('\n'));
  }

  // All ranks are at their end, or one of them is not there any more.
  void end_communicator() {
    if (comm_ == nullptr) return;
    const auto until = Clock::now() + kToEnd;
    nccl::Result result = api_.finalize(comm_);
    while (result == nccl::in_progress && Clock::now() < until) {
      std::this_thread::sleep_for(kLook);
      if (api_.get_async_error(comm_, &result) != nccl::success) break;
    }
    result == nccl::success ? api_.destroy(comm_) : api_.end_now(comm_);
  }

  const RankLinks& links_;
  const nccl::Api& api_;
  nccl::Communicator comm_ = nullptr;
  nccl::Result first_ = nccl::success;
  void* staging_ = nullptr;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const RankLinks& links, const nccl::Api& api,
                                               const nccl::UniqueId& id) {
  auto transport = std::make_unique<NcclTransport>(links, api);
  transport->connect(id);
  return transport;
}

}  // namespace octet::cuda
