#include "bench/rank_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "backends/cpu/ranks/ranks.h"
#include "bench/machine.h"
#include "ir/sharding.h"

namespace octet {
namespace {

// All that a collective of one size reads and writes.
class Tensors {
 public:
  Tensors(Group& group, int64_t bytes) : group_(group) {
    cut_ = {.group = &group, .n = bytes / 4, .shard = shard_elems(bytes / 4, group.size())};
    const auto whole = static_cast<size_t>(cut_.shard * group.size());
    x_.assign(whole, 1.0f), y_.assign(whole, 0.0f), scratch_.resize(whole * 8);
    shard_.assign(static_cast<size_t>(cut_.shard), 1.0f);
  }
  void all_gather() {
    cpu::all_gather(cut_, 4, reinterpret_cast<const std::byte*>(shard_.data()),
                    reinterpret_cast<std::byte*>(y_.data()), scratch_.data());
  }
  void reduce_scatter() {
    cpu::reduce_scatter(cut_, {{x_.data(), Dtype::f32}, 1}, {}, {shard_.data(), Dtype::f32},
                        scratch_.data());
  }
  void all_reduce() {
    reduce_scatter();
    all_gather();
  }
  // Received from others by one exchange of all shards.
  double received() const { return 4.0 * static_cast<double>(cut_.shard * (group_.size() - 1)); }

 private:
  Group& group_;
  cpu::Cut cut_;
  std::vector<float> x_, y_, shard_;
  std::vector<std::byte> scratch_;
};

double slowest_seconds(Group& group, int rounds, const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i <= rounds; ++i) {
    gather_value(&group, i);  // all begin together
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (i > 0) times.push_back(passed.count());
  }
  const std::vector<double> all = gather_value(&group, median(times));
  return *std::ranges::max_element(all);
}

}  // namespace

BenchRows bench_links(Group& group, const std::string& over, const LinkSizes& sizes) {
  BenchRows rows;
  for (int64_t bytes = sizes.least; bytes <= sizes.most; bytes *= 4) {
    Tensors tensors(group, bytes);
    const auto add = [&](const char* what, double received, const std::function<void()>& run) {
      const double seconds = slowest_seconds(group, sizes.rounds, run);
      rows.push_back({.name = fmt::format("links {}", what),
                      .shape = fmt::format("{} {}, {} KiB", group.size(), over, bytes >> 10),
                      .value = received / seconds / 1e9,
                      .unit = "GB/s to each rank",
                      .baseline = {},
                      .isa = "cpu"});
    };
    const double once = tensors.received();
    add("all_gather", once, [&] { tensors.all_gather(); });
    add("reduce_scatter", once, [&] { tensors.reduce_scatter(); });
    add("all_reduce", 2 * once, [&] { tensors.all_reduce(); });
  }
  return rows;
}

}  // namespace octet
