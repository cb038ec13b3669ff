#include "backends/cuda/kernels/ranks/transport.h"

#include <algorithm>
#include <thread>

namespace octet::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMaxBlocks = 4;  // of NCCL's kernels: the rest computes
constexpr size_t kStagingBytes = size_t{16} << 20;
constexpr milliseconds kLook{1}, kToEnd{5'000};
constexpr int kEagerLooks = 1000;  // for launches that a thread of NCCL makes

size_t size(int64_t n) {
  return static_cast<size_t>(n);
}

}  // namespace

BetweenHosts::BetweenHosts(const RankLinks& links, const nccl::Api& api, const nccl::UniqueId& id)
    : links_(links), api_(api) {
  nccl::Config config;
  config.blocking = 0;
  config.min_ctas = 1;
  config.max_ctas = kMaxBlocks;
  settle(api_.init_rank(&comm_, links_.n_hosts(), id, links_.host(), &config), "connecting ranks");
  const cudaError_t allocated = cudaMalloc(&staging_, kStagingBytes);
  if (allocated != cudaSuccess) end_communicator();
  check(allocated, "memory for what ranks exchange");
}
BetweenHosts::~BetweenHosts() {
  end_communicator();
  cudaFree(staging_);
}

void BetweenHosts::exchange(std::span<const Exchange> parts, cudaStream_t stream) {
  group("exchanging parts of a tensor", [&] {
    for (const Exchange& part : parts) {
      if (part.give_bytes > 0)
        add(api_.send(part.give, size(part.give_bytes), nccl::int8, part.host, comm_, stream));
      if (part.take_bytes > 0)
        add(api_.recv(part.take, size(part.take_bytes), nccl::int8, part.host, comm_, stream));
    }
  });
}
void BetweenHosts::all_gather(const void* own, void* all, int64_t n_bytes, cudaStream_t stream) {
  group("all_gather",
        [&] { add(api_.all_gather(own, all, size(n_bytes), nccl::int8, comm_, stream)); });
}
void BetweenHosts::max_of(const void* x, void* y, int64_t n, nccl::DataType type,
                          cudaStream_t stream) {
  group("maxima", [&] { add(api_.all_reduce(x, y, size(n), type, nccl::max, comm_, stream)); });
}
void BetweenHosts::add_sums(int64_t* sum, cudaStream_t stream) {
  group("adding sums", [&] {
    add(api_.all_reduce(sum, sum, kExactLimbs + 1, nccl::int64, nccl::sum, comm_, stream));
  });
}
std::span<std::byte> BetweenHosts::staging() const {
  return {static_cast<std::byte*>(staging_), kStagingBytes};
}

std::string BetweenHosts::problem() {
  nccl::Result now = nccl::success;
  if (comm_ == nullptr) return "it was ended";
  const nccl::Result asked = api_.get_async_error(comm_, &now);
  if (asked != nccl::success) now = asked;
  return now == nccl::success || now == nccl::in_progress ? "" : text_of(now);
}
void BetweenHosts::give_up() {
  if (comm_ != nullptr) api_.end_now(comm_);
  comm_ = nullptr;
}

// Calls that NCCL launches together. It says in the end what is wrong with one of them.
template <typename Calls>
void BetweenHosts::group(const char* what, const Calls& calls) {
  if (comm_ == nullptr) throw ModuleError("[ranks] NCCL was ended");
  first_ = api_.group_start();
  calls();
  add(api_.group_end());
  settle(first_, what);
}
void BetweenHosts::add(nccl::Result result) {
  if (first_ == nccl::success || first_ == nccl::in_progress) first_ = result;
}

// Until NCCL has done its part of a call: with a new connection it goes on beside the caller.
void BetweenHosts::settle(nccl::Result result, const char* what) {
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
  give_up();
  throw ModuleError(std::string("[ranks] NCCL: ") + what + ": " + why);
}
std::string BetweenHosts::text_of(nccl::Result result) const {
  const char* const last = comm_ == nullptr ? nullptr : api_.last_error(comm_);
  std::string text = api_.error_string(result);
  if (last != nullptr && *last != 0) text += std::string(" (") + last + ")";
  return text.substr(0, text.find('\n'));
}

// All ranks are at their end, or one of them is not there any more.
void BetweenHosts::end_communicator() {
  if (comm_ == nullptr) return;
  const auto until = Clock::now() + kToEnd;
  nccl::Result result = api_.finalize(comm_);
  while (result == nccl::in_progress && Clock::now() < until) {
    std::this_thread::sleep_for(kLook);
    if (api_.get_async_error(comm_, &result) != nccl::success) break;
  }
  result == nccl::success ? api_.destroy(comm_) : api_.end_now(comm_);
}

}  // namespace octet::cuda
