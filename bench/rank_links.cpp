#include "bench/rank_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "ir/sharding.h"

namespace octet {
namespace {

constexpr std::chrono::seconds kPatience{60};

// Collective that a row times.
struct LinkCase {
  std::string name;
  CollectiveKind kind;
  int64_t bytes = 0;  // of the whole tensor; 0: a barrier
};

std::vector<LinkCase> link_cases(const BenchMachine& machine, const LinkSizes& sizes) {
  using enum RankReduction;
  const bool is_gpu = machine.is_gpu();
  const int64_t a_host = machine.backend.device->ranks_a_host();
  const Dtype dtype = is_gpu ? Dtype::bf16 : Dtype::f32;
  const auto sum_of = [&](OpCode op, Dtype of) {
    return CollectiveKind{.op = op, .reduction = sum, .x = of, .y = of, .ranks_a_host = a_host};
  };
  std::vector<LinkCase> cases;
  for (int64_t bytes = sizes.least; bytes <= sizes.most; bytes *= 4) {
    cases.push_back({"all_gather", {OpCode::all_gather, sum, dtype, dtype}, bytes});
    cases.push_back({"reduce_scatter", sum_of(OpCode::reduce_scatter, dtype), bytes});
    cases.push_back({"all_reduce", sum_of(OpCode::all_reduce, dtype), bytes});
    if (!is_gpu) continue;
    cases.push_back({"all_reduce max", {OpCode::all_reduce, max, Dtype::f32, Dtype::f32}, bytes});
    cases.push_back({"sharded_norm", {OpCode::sharded_norm, sum, dtype, Dtype::f32}, bytes});
  }
  if (is_gpu) cases.push_back({"barrier", sum_of(OpCode::all_reduce, Dtype::f32), 0});
  return cases;
}

class LinkBench {
 public:
  LinkBench(const BenchMachine& machine, Group& group, const LinkSizes& sizes)
      : machine_(machine), group_(group), rounds_(sizes.rounds) {
    Catalogue& catalogue = *machine.backend.catalogue;
    int64_t arena_bytes[kArenaCount] = {};
    if (machine.backend.device->info().reaches_peers) {
      const int64_t a_host = machine.backend.device->ranks_a_host();
      test_ = std::make_unique<RankSelfTest>(all_kinds(catalogue, group.size(), a_host), group,
                                             catalogue);
      test_->raise(arena_bytes);
    }
    for (const LinkCase& one : link_cases(machine, sizes)) {
      const CollectiveTrial trial = trial_of(one);
      for (int arena = 0; arena < kArenaCount; ++arena)
        arena_bytes[arena] = std::max(arena_bytes[arena], trial.plan().arena_bytes[arena]);
    }
    arenas_ = std::make_unique<Arenas>(*machine.backend.device, arena_bytes);
    arenas_->connect(group);
  }
  SelfTestResult self_test() {
    return test_ ? test_->run(*machine_.backend.catalogue, *arenas_, kPatience) : SelfTestResult{};
  }
  double seconds(const LinkCase& one) {
    CollectiveTrial trial = trial_of(one);
    trial.bind(*machine_.backend.catalogue, *arenas_);
    for (const int pass : {0, 1}) verify(trial, pass);
    trial.write(2);
    // A GPU's launches are queued; as many on every rank.
    const int64_t repeats = machine_.is_gpu()
                                ? std::clamp((int64_t{64} << 20) / std::max<int64_t>(one.bytes, 1),
                                             int64_t{1}, int64_t{64})
                                : 1;
    std::vector<double> times;
    for (int i = 0; i <= rounds_; ++i) {
      gather_value(&group_, i);  // all begin together
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t k = 0; k < repeats; ++k) trial.bound().run();
      arenas_->device().await_ranks(kPatience);
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      if (i > 0) times.push_back(passed.count() / static_cast<double>(repeats));
    }
    expect_no_mismatch(group_, trial.kind(), trial.check(2));
    verify(trial, 3);
    const std::vector<double> all = gather_value(&group_, median(times));
    return *std::ranges::max_element(all);
  }

 private:
  CollectiveTrial trial_of(const LinkCase& one) const {
    return {one.kind,
            {one.bytes / dtype_bytes(one.kind.x)},
            {.rank = group_.rank(), .n_ranks = group_.size()},
            *machine_.backend.catalogue};
  }
  void verify(CollectiveTrial& trial, int pass) {
    trial.write(pass);
    trial.bound().run();
    arenas_->device().await_ranks(kPatience);
    expect_no_mismatch(group_, trial.kind(), trial.check(pass));
  }

  const BenchMachine& machine_;
  Group& group_;
  int rounds_;
  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<RankSelfTest> test_;
};

// Bytes that come to a rank, or that it reads.
double moved_bytes(const LinkCase& one, int n_ranks) {
  const int64_t width = dtype_bytes(one.kind.x), others = n_ranks - 1;
  if (one.name == "sharded_norm") return static_cast<double>(one.bytes);
  if (one.name == "all_reduce max") return static_cast<double>(one.bytes * others);
  const int64_t shard = shard_elems(one.bytes / width, n_ranks) * width;
  return static_cast<double>(shard * others * (one.name == "all_reduce" ? 2 : 1));
}

}  // namespace

LinkRows bench_links(const BenchMachine& machine, Group& group, const std::string& over,
                     const LinkSizes& sizes) {
  LinkBench bench(machine, group, sizes);
  LinkRows result{.rows = {}, .self_test = bench.self_test()};
  for (const LinkCase& one : link_cases(machine, sizes)) {
    const double seconds = bench.seconds(one);
    BenchRow row = machine.row("links " + one.name,
                               fmt::format("{} {}, {} KiB", group.size(), over, one.bytes >> 10));
    row.value = moved_bytes(one, group.size()) / seconds / 1e9;
    row.unit = one.name == "sharded_norm" ? "GB/s read"
               : machine.is_gpu()         ? "GB/s each way"
                                          : "GB/s to each rank";
    if (one.bytes == 0) {  // a barrier before a run, and one behind
      row.shape = fmt::format("{} {}, empty", group.size(), over);
      row.value = seconds / 2 * 1e6;
      row.unit = "us";
    }
    result.rows.push_back(std::move(row));
  }
  gather_value(&group, 0);  // none goes while another one still reads its memory
  return result;
}

}  // namespace octet
