// Self-test of ranks when they connect: the CPU's kernels pass, and a back end with a wrong result
// does not, whatever the collective.
#include <gmock/gmock.h>

#include <cstring>
#include <mutex>

#include "backends/cpu/backend.h"
#include "base/error.h"
#include "comm/local.h"
#include "plan/streams.h"
#include "runtime/rank_self_test.h"

namespace octet::cpu_rank_self_test_test {
namespace {

// Fault of a rank: called behind each launch of a collective with its first result.
using Fault = std::function<void(std::byte* result, int64_t n_bytes, int n_launches)>;

class FaultyCatalogue : public Catalogue {
 public:
  FaultyCatalogue(Catalogue& right, Fault fault) : right_(right), fault_(std::move(fault)) {}
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override {
    return right_.choose(graph, node);
  }
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override {
    if (!is_collective(node.op)) return right_.prepare(graph, node, choice);
    return [this, launch = right_.prepare(graph, node, choice),
            n = graph.type(node.results[0]).n_bytes(), count = 0](const LaunchArgs& args) mutable {
      launch(args);
      if (fault_) fault_(args.results[0], n, count++);
    };
  }

 private:
  Catalogue& right_;
  Fault fault_;
};

// Error of each rank's self-test; "" where it passes.
std::vector<std::string> self_test(int n_ranks, const CollectiveKinds& kinds, int faulty_rank = -1,
                                   const Fault& fault = {}) {
  auto groups = local_groups(n_ranks);
  std::vector<std::string> words(static_cast<size_t>(n_ranks));
  run_local_ranks(groups, [&](Group& group) {
    const Backend backend = cpu::make_backend(1, cpu::detect_isa(), cpu::RowSums::library, &group);
    FaultyCatalogue catalogue(*backend.catalogue, group.rank() == faulty_rank ? fault : Fault());
    RankSelfTest test(kinds.empty() ? all_kinds(catalogue, n_ranks) : kinds, group, catalogue);
    int64_t arena_bytes[kArenaCount] = {};
    test.raise(arena_bytes);
    Arenas arenas(*backend.device, arena_bytes);
    try {
      EXPECT_GT(test.run(catalogue, arenas).n_kernels, 0);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::device);
      words[static_cast<size_t>(group.rank())] = error.what();
    }
  });
  return words;
}

TEST(RankSelfTest, kernels_of_the_cpu_pass_with_any_number_of_ranks) {
  for (const int n_ranks : {2, 3}) {
    const std::vector<std::string> words = self_test(n_ranks, {});
    EXPECT_THAT(words, testing::Each("")) << n_ranks;
  }
}

// Each of the back end's collectives by itself: every rank tells what one rank found.
TEST(RankSelfTest, one_wrong_element_of_any_collective_is_named_by_all_ranks) {
  const auto groups = local_groups(1);
  const Backend backend = cpu::make_backend(1, cpu::detect_isa());
  const CollectiveKinds all = all_kinds(*backend.catalogue, 3);
  EXPECT_GE(all.size(), 57u);
  for (const CollectiveKind& kind : all) {
    const bool is_late = kind.x == Dtype::bf16;
    const auto flip = [is_late](std::byte* result, int64_t n_bytes, int n_launches) {
      if (!is_late || n_launches >= 3) result[n_bytes / 2] ^= std::byte{0x81};
    };
    const std::vector<std::string> words = self_test(3, {kind}, 1, flip);
    for (const std::string& line : words) {
      EXPECT_THAT(line, testing::StartsWith("[ranks] self-test: " + kind_text(kind) +
                                            ", rank 1, element "));
      EXPECT_THAT(line, testing::HasSubstr(is_late ? "replayed" : "launched"));
    }
  }
}

TEST(RankSelfTest, sums_of_nothing_and_results_of_the_run_before_are_wrong) {
  const CollectiveKind kind{OpCode::reduce_scatter, RankReduction::sum, Dtype::bf16, Dtype::bf16};
  const auto zero = [](std::byte* result, int64_t n_bytes, int) {
    std::memset(result, 0, static_cast<size_t>(n_bytes));
  };
  EXPECT_THAT(self_test(2, {kind}, 0, zero)[1],
              testing::MatchesRegex(".ranks. self-test: reduce_scatter bf16 -> bf16, rank 0, "
                                    "element [0-9]+: expected -?[1-9][0-9]*, got 0 .*"));
  std::map<std::byte*, std::vector<std::byte>> before;
  const auto stale = [&](std::byte* result, int64_t n_bytes, int n_launches) {
    if (n_launches > 0) std::memcpy(result, before.at(result).data(), before.at(result).size());
    before[result].assign(result, result + n_bytes);
  };
  EXPECT_THAT(self_test(2, {kind}, 1, stale)[0], testing::HasSubstr("rank 1"));
}

}  // namespace
}  // namespace octet::cpu_rank_self_test_test
