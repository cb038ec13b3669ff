// Isolated documents of a row, across chunks of the gated delta rule, as rows of their own.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine.h"
#include "golden.h"

namespace octet::golden {
namespace {

using Values = std::vector<double>;

class Documents {
 public:
  explicit Documents(const std::string& fixture) : golden_(load_golden(fixture)) {
    for (int64_t t = 0; t < kTokens; ++t)
      tokens_.push_back(static_cast<double>((t * t * 5 + 3 * t) % golden_.spec.vocab));
  }

  // Of tokens [first, end), documents beginning at these places of them.
  Values logits(int64_t first, int64_t end, const std::vector<int64_t>& starts) const {
    reference::Tensors inputs = golden_.inputs();
    inputs["tokens"] = Values(tokens_.begin() + first, tokens_.begin() + end);
    inputs["positions"].clear();
    int64_t start = 0;
    for (int64_t t = 0; t < end - first; ++t) {
      if (std::ranges::count(starts, t) > 0) start = t;
      inputs["positions"].push_back(static_cast<double>(t - start));
      inputs["doc_starts"].push_back(static_cast<double>(start));
    }
    const BatchSize size{.batch = 1, .seq = end - first, .documents = RowDocuments::isolated};
    const Graph graph = build_model(golden_.spec, size, ModelOutputs::outputs).graph;
    return kReference.run(graph, inputs).at("logits");
  }

  static constexpr int64_t kTokens = 150;

 private:
  Golden golden_;
  Values tokens_;
};

TEST(GatedDelta, isolated_documents_are_rows_of_their_own) {
  const std::vector<int64_t> starts = {0, 5, 70, 71, 130};
  for (const char* fixture : {"hf_qwen3_5", "hf_qwen3_5_plain"}) {
    const Documents documents(fixture);
    const Values all = documents.logits(0, Documents::kTokens, starts);
    Values apart;
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t end = i + 1 < starts.size() ? starts[i + 1] : Documents::kTokens;
      const Values one = documents.logits(starts[i], end, {0});
      apart.insert(apart.end(), one.begin(), one.end());
    }
    EXPECT_LE(relative_distance(all, apart), 1e-12) << fixture;
    EXPECT_GT(relative_distance(documents.logits(0, Documents::kTokens, {0}), apart), 1e-3);
  }
}

}  // namespace
}  // namespace octet::golden
