// Texts over caches with states, which do not go back by themselves: whatever an entry reads, and
// whoever stands beside it, its logits are those of one pass over its whole text.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/backend.h"
#include "golden/drawn_weights.h"
#include "infer/text_model.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/put_arrays.h"

namespace octet::cached_states_test {
namespace {

constexpr int64_t kEntries = 3, kRoom = 200;

ModelSpec spec() {
  ModelSpec spec;
  spec.kind = ModelKind::qwen3_5;
  spec.vocab = 48, spec.hidden = 16, spec.ffn = 24, spec.layers = 3;
  spec.heads = 2, spec.kv_heads = 1, spec.head_dim = 8, spec.rope_share = 0.5;
  spec.linear_layers = {1, 0, 1};
  spec.linear_key_heads = 2, spec.linear_value_heads = 4;
  spec.linear_key_dim = spec.linear_value_dim = 8;
  return spec;
}

class States : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::vector<test::ArrayToPut> arrays;
    for (const ParameterSpec& one : model_parameters(spec())) {
      const Shape& shape = one.file_shape.empty() ? one.shape : one.file_shape;
      std::vector<float> values = golden::weights_of(one.name, shape);
      // States that last.
      if (one.name.ends_with("A_log"))
        for (float& x : values) x -= 4;
      arrays.push_back(test::array_of(one.name, SafeDtype::f32, shape, values));
    }
    source_ = {.spec = resolved(spec()),
               .weights = test::put_arrays(folder_ / "model.safetensors", arrays)};
    const TextModelOptions options{.n_entries = kEntries,
                                   .capacity = kRoom,
                                   .logits = LogitsFor::scoring,
                                   .runs_one_alone = GetParam()};
    cached_ = make_text_model(source_, options, machine());
    whole_ = make_recomputed_model(source_, options, machine());
  }

  TextMachine machine() { return {posix_files(), *backend_.device, *backend_.catalogue}; }

  static std::vector<int32_t> tokens(int64_t n, int64_t seed) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < n; ++t)
      ids.push_back(static_cast<int32_t>((seed * 17 + t * t * 5 + t) % 48));
    return ids;
  }

  static std::vector<float> logits(TextModel& model, const std::vector<TextChunk>& chunks) {
    std::vector<float> all;
    model.logits(chunks, [&](const TextChunk&, int64_t, std::span<const float> row) {
      all.insert(all.end(), row.begin(), row.end());
    });
    return all;
  }

  // Entry, place and length of each chunk.
  using Chunks = std::vector<std::array<int64_t, 3>>;
  std::vector<TextChunk> chunks_of(const Chunks& places) {
    held_.clear();
    held_.reserve(places.size());
    std::vector<TextChunk> chunks;
    for (const auto& place : places) {
      held_.push_back(tokens(place[2], ++seed_));
      chunks.push_back({place[0], place[1], held_.back()});
    }
    return chunks;
  }
  void fill(const Chunks& places) {
    const std::vector<TextChunk> chunks = chunks_of(places);
    cached_->fill(chunks);
    whole_->fill(chunks);
  }
  void expect_same(const Chunks& places) {
    const std::vector<TextChunk> chunks = chunks_of(places);
    const std::vector<float> got = logits(*cached_, chunks), wanted = logits(*whole_, chunks);
    ASSERT_EQ(got.size(), wanted.size());
    float largest = 0;
    for (const float x : wanted) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-5f * largest) << i;
  }

  test::ScratchFolder folder_;
  cpu::Backend backend_ = cpu::make_backend(2, cpu::detect_isa(), cpu::RowSums::same);
  ModelSource source_;
  std::unique_ptr<TextModel> cached_, whole_;
  std::vector<std::vector<int32_t>> held_;
  int64_t seed_ = 0;
};

TEST_P(States, logits_are_those_of_whole_texts) {
  ASSERT_TRUE(cached_->has_cache());
  fill({{0, 0, 75}, {1, 0, 3}, {2, 0, 130}});
  expect_same({{0, 75, 1}, {2, 130, 1}});
  expect_same({{1, 3, 1}});
  expect_same({{1, 4, 1}});
  expect_same({{0, 76, 2}, {1, 5, 20}});
  // Back to where a fill ended, before it, and to the beginning.
  expect_same({{2, 130, 3}});
  expect_same({{1, 3, 5}, {0, 40, 4}});
  expect_same({{0, 0, 2}, {2, 131, 1}});
  fill({{0, 2, 9}});
  expect_same({{0, 11, 1}});
}

TEST_P(States, what_texts_begin_with_alike_is_read_once) {
  fill({{0, 0, 20}});
  cached_->copy_prefix(20);
  whole_->copy_prefix(20);
  fill({{0, 20, 5}, {2, 20, 17}});
  for (int i = 0; i < 2; ++i) expect_same({{0, 25, 2}, {1, 20, 3}, {2, 37, 1}});
  fill({{0, 20, 1}, {2, 22, 3}});
  expect_same({{0, 21, 1}, {2, 25, 1}});
  fill({{1, 7, 30}});
  expect_same({{1, 20, 1}, {0, 22, 1}});
  const std::vector<int64_t> from = {2, 2, 1};
  cached_->take_over(from, kRoom);
  whole_->take_over(from, kRoom);
  expect_same({{0, 26, 1}, {1, 25, 1}, {2, 21, 1}});
}

INSTANTIATE_TEST_SUITE_P(one_alone, States, testing::Bool());

}  // namespace
}  // namespace octet::cached_states_test
