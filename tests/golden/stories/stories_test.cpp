// A small trained Llama as an oracle: its loss on real stories and its greedy text, as another
// program (llama2.c, f32) computed them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/cpu/backend.h"
#include "data/dataset.h"
#include "infer/evaluate.h"
#include "infer/generate.h"
#include "infer/model_source.h"
#include "infer/text_batch.h"
#include "text/tokenizer.h"

namespace octet::stories_test {
namespace {

constexpr int64_t kSeq = 512, kStories = 200;
const std::string kModel = OCTET_TEST_DATA "/data/weights/stories260K";
const std::string kTokenizer = OCTET_TEST_DATA "/data/tokenizers/tok512/tok512.bin";
const std::string kText = OCTET_TEST_DATA "/data/text/tinystories/tinystories_train_first2MiB.txt";

class Stories : public testing::Test {
 protected:
  void SetUp() override {
    if (!posix_files().exists(kModel)) {
      GTEST_SKIP() << "the model's folder is not there (CMake variable OCTET_TEST_DATA)";
    }
    std::ifstream(kModel + "/reference.json") >> reference_;
    backend_ = cpu::make_backend(0, cpu::detect_isa(), cpu::RowSums::same);
    tokenizer_ = make_tokenizer(posix_files(), kTokenizer);
    source_ = find_model_source(posix_files(), kModel);
  }

  Inference load(std::span<const FunctionKey> functions) {
    Inference model(source_.spec, "fp32", functions, *backend_.device, *backend_.catalogue);
    model.load(WeightReader(posix_files(), source_.weights, source_.spec));
    return model;
  }

  TextMachine machine() { return {posix_files(), *backend_.device, *backend_.catalogue}; }

  std::vector<std::vector<int32_t>> stories() const {
    const DatasetOptions options{
        .train = {kText}, .val_fraction = 0, .document_separator = "<|endoftext|>"};
    const Dataset data = open_dataset(posix_files(), options, *tokenizer_);
    return documents_of(data.train, {.max_documents = kStories, .max_tokens = kSeq});
  }

  nlohmann::json reference_;
  cpu::Backend backend_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ModelSource source_;
};

TEST_F(Stories, loss_is_that_of_the_reference) {
  const FunctionKey function{function::evaluate, {.batch = 8, .seq = kSeq}};
  Inference model = load(std::span(&function, 1));
  const auto results = document_nll(model.function(function.name, function.size), stories(),
                                    {.batch = 8, .seq = kSeq});
  ASSERT_EQ(results.size(), static_cast<size_t>(kStories));
  NllSum total;
  for (const NllSum& story : results) {
    total.sum += story.sum;
    total.n_tokens += story.n_tokens;
  }
  EXPECT_EQ(total.n_tokens, reference_["first200"]["predicted_tokens"].get<int64_t>());
  EXPECT_NEAR(total.mean(), reference_["first200"]["mean_nll"].get<double>(), 1e-4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(results[i].mean(), reference_["first4_story_nll"][i].get<double>(), 1e-4) << i;
  }
}

TEST_F(Stories, greedy_text_is_that_of_the_reference) {
  const std::vector<Prompt> prompts = {{.tokens = {*tokenizer_->bos()}}};
  const GenerateOptions options{.max_tokens = 200, .stop_tokens = {1, 2}};
  const TextModelOptions size{.capacity = 201};
  // The reference ends its output with a line's end of its own.
  const auto expected = reference_["greedy_200_steps_from_BOS"].get<std::string>();
  for (const auto make : {make_cached_model, make_recomputed_model}) {
    const auto model = make(source_, size, machine());
    EXPECT_EQ(generate(*model, *tokenizer_, prompts, options).front().text + "\n", expected);
  }
}

// Batches of any size, and a model without a cache.
TEST_F(Stories, a_text_does_not_depend_on_those_beside_it) {
  std::vector<Prompt> prompts;
  for (const std::vector<int32_t>& story : stories()) {
    const size_t n = 3 + 11 * prompts.size();
    prompts.push_back({.tokens = {story.begin(), story.begin() + static_cast<int64_t>(n)},
                       .sampling = {.temperature = 1, .top_p = 0.9, .seed = 7}});
    if (prompts.size() == 5) break;
  }
  const GenerateOptions options{.max_tokens = 30, .stop_tokens = {1, 2}};
  for (const char* recipe : {"fp32", "bf16"}) {
    source_.recipe = recipe;
    const auto texts = [&](const TextModelOptions& size, const auto& make) {
      const auto model = make(source_, size, machine());
      std::vector<std::string> result;
      for (const Completion& done : generate(*model, *tokenizer_, prompts, options)) {
        result.push_back(done.text);
      }
      return result;
    };
    const auto expected = texts({.n_entries = 1, .capacity = 100}, make_cached_model);
    EXPECT_EQ(texts({.n_entries = 2, .capacity = 77}, make_cached_model), expected) << recipe;
    EXPECT_EQ(texts({.n_entries = 2, .capacity = 77, .picks = true}, make_cached_model), expected)
        << recipe;
    EXPECT_EQ(texts({.n_entries = 5, .capacity = 128}, make_cached_model), expected) << recipe;
    EXPECT_EQ(texts({.n_entries = 3, .capacity = 77, .runs_one_alone = true}, make_cached_model),
              expected)
        << recipe;
    EXPECT_EQ(texts({.n_entries = 1, .capacity = 100}, make_recomputed_model), expected) << recipe;
  }
}

// One comes after every third step; where there is no room, it waits. At first, in between and at
// last one is alone.
TEST_F(Stories, a_text_does_not_depend_on_when_others_come_and_go) {
  struct Kept : TextListener {
    void on_end(Stop, const std::string& said) override { text = said; }
    std::string text;
  };
  std::vector<Prompt> prompts;
  for (const std::vector<int32_t>& story : stories()) {
    const auto n = static_cast<int64_t>(25 - 5 * prompts.size());
    prompts.push_back({.tokens = {story.begin(), story.begin() + n}});
    if (prompts.size() == 5) break;
  }
  const auto single = make_cached_model(source_, {.capacity = 60}, machine());
  const std::vector<Completion> expected =
      generate(*single, *tokenizer_, prompts, {.max_tokens = 20});
  const auto model = make_cached_model(
      source_, {.n_entries = 3, .capacity = 60, .runs_one_alone = true}, machine());
  TextBatch batch(*model, *tokenizer_, 7);
  std::vector<Kept> kept(prompts.size());
  size_t n_begun = 0;
  for (size_t step = 0; step == 0 || batch.step() || n_begun < prompts.size(); ++step) {
    for (size_t entry = 0; entry < 3 && step % 3 == 0 && n_begun < prompts.size(); ++entry) {
      if (!batch.is_free(entry)) continue;
      batch.add(entry, {.prompt = prompts[n_begun], .max_tokens = 20, .listener = &kept[n_begun]});
      ++n_begun;
      break;
    }
  }
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(kept[i].text, expected[i].text) << i;
}

TEST_F(Stories, beyond_the_capacity_the_oldest_tokens_are_forgotten) {
  const std::vector<int32_t> story = stories().front();
  const std::vector<Prompt> prompts = {{.tokens = {story.begin(), story.begin() + 20}}};
  const GenerateOptions options{.max_tokens = 12, .stop_tokens = {1, 2}};
  std::vector<std::string> texts;
  for (const auto make : {make_cached_model, make_recomputed_model}) {
    const auto model = make(source_, {.capacity = 24}, machine());
    texts.push_back(generate(*model, *tokenizer_, prompts, options).front().text);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_FALSE(texts[0].empty());
}

}  // namespace
}  // namespace octet::stories_test
