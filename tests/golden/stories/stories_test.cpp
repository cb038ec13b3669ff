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
#include "text/tokenizer.h"

namespace octet {
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
    backend_ = cpu::make_backend(0, cpu::detect_isa());
    tokenizer_ = make_tokenizer(posix_files(), kTokenizer);
    source_ = find_model_source(posix_files(), kModel);
  }

  Inference load(std::span<const FunctionKey> functions) {
    Inference model(source_.spec, "fp32", functions, *backend_.device, *backend_.catalogue);
    model.load(WeightReader(posix_files(), source_.weights, source_.spec));
    return model;
  }

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
  const GenerateOptions options{.max_tokens = 200, .context = kSeq, .stop = {1, 2}};
  const std::vector<int32_t> prompt = {*tokenizer_->bos()};
  Inference model = load(generation_functions(1, options));
  std::vector<int32_t> tokens = prompt;
  const std::vector<int32_t> added = generate(model, prompt, options);
  tokens.insert(tokens.end(), added.begin(), added.end());
  const auto expected = reference_["greedy_200_steps_from_BOS"].get<std::string>();
  std::string text = tokenizer_->decode(tokens);
  // The reference ends its output with a line's end of its own.
  EXPECT_EQ(text + "\n", expected);
}

TEST_F(Stories, padding_does_not_change_the_next_token) {
  const std::vector<std::vector<int32_t>> documents = stories();
  const std::span<const int32_t> prompt = std::span(documents.front()).first(37);
  const GenerateOptions padded{.max_tokens = 1, .context = kSeq};  // to 64
  const GenerateOptions exact{.max_tokens = 1, .context = 37};
  Inference with_padding = load(generation_functions(37, padded));
  Inference without_padding = load(generation_functions(37, exact));
  EXPECT_EQ(generate(with_padding, prompt, padded), generate(without_padding, prompt, exact));
}

}  // namespace
}  // namespace octet
