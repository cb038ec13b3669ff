// Factors of products in codes, K-major or as they come: the same bits.
#include <gtest/gtest.h>

#include <bit>

#include "property/recipes/tiny_training.h"

namespace octet::recipes_layouts_test {
namespace {

// The CPU's kernels, given codes in the layout that GPUs ask for.
class KMajorCatalogue : public Catalogue {
 public:
  KMajorCatalogue() : Catalogue({.k_major = true}) {}
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override {
    return tiny::backend().catalogue->choose(graph, node);
  }
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override {
    return tiny::backend().catalogue->prepare(graph, node, choice);
  }
};

int transposed_codes(const ProgramOptions& options, const Catalogue& catalogue) {
  Program program(options, catalogue);
  int n = 0;
  const Graph& graph = program.plan(function::step).graph;
  for (const Node& node : graph.nodes) {
    const auto lies_transposed = [&](ValueId id) {
      return id != kNoValue && graph.type(id).layout.transposed;
    };
    n += std::ranges::any_of(node.results, lies_transposed) ? 1 : 0;
    const auto* gemm = std::get_if<GemmAttrs>(&node.attrs);
    const bool k_major =
        gemm == nullptr || (!reads_transposed(graph.type(node.in(Gemm::a)), gemm->trans_a) &&
                            reads_transposed(graph.type(node.in(Gemm::b)), gemm->trans_b));
    EXPECT_TRUE(k_major || !catalogue.target().k_major || node.tag.layer < 0);
  }
  return n;
}

class Layouts : public testing::TestWithParam<const char*> {};

TEST_P(Layouts, of_codes_change_no_bit_of_the_loss) {
  KMajorCatalogue k_major;
  for (const ModelKind kind : {ModelKind::llama, ModelKind::gpt2}) {
    const ModelSpec spec = tiny::spec(kind);
    for (const Recompute again : {Recompute::none, Recompute::cheap}) {
      ProgramOptions options = tiny::options(GetParam(), spec);
      options.recompute = again;
      options.train.seq = 13;  // tokens that K-major codes pad
      const auto expected = tiny::losses(options, 4, spec, k_major);
      const auto found = tiny::losses(options, 4, spec);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i])) << i;
      }
    }
  }
}

TEST_P(Layouts, have_no_transposed_codes_where_products_read_either) {
  EXPECT_EQ(transposed_codes(tiny::options(GetParam()), *tiny::backend().catalogue), 0);
  EXPECT_GT(transposed_codes(tiny::options(GetParam()), KMajorCatalogue()), 0);
}

INSTANTIATE_TEST_SUITE_P(EightBit, Layouts, testing::Values("fp8_linear", "coat", "hif8"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace octet::recipes_layouts_test
