#include "infer/generate.h"

#include <gtest/gtest.h>

#include "infer/batch_inputs.h"
#include "infer/evaluate.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

std::vector<int64_t> lengths(int64_t prompt, const GenerateOptions& options) {
  std::vector<int64_t> result;
  for (const FunctionKey& f : generation_functions(prompt, options)) {
    EXPECT_EQ(f.name, function::logits);
    result.push_back(f.size.seq);
  }
  return result;
}

TEST(GenerationFunctions, are_the_powers_of_two_that_the_text_passes) {
  EXPECT_EQ(lengths(1, {.max_tokens = 9, .context = 64}), (std::vector<int64_t>{1, 2, 4, 8, 16}));
  EXPECT_EQ(lengths(5, {.max_tokens = 4, .context = 64}), (std::vector<int64_t>{8}));
  EXPECT_EQ(lengths(5, {.max_tokens = 5, .context = 64}), (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(lengths(5, {.max_tokens = 100, .context = 12}), (std::vector<int64_t>{8, 12}));
  EXPECT_EQ(lengths(500, {.max_tokens = 100, .context = 12}), (std::vector<int64_t>{12}));
  EXPECT_EQ(lengths(5, {.max_tokens = INT64_MAX, .context = 12}), (std::vector<int64_t>{8, 12}));
}

TEST(PaddedRow, has_no_labels) {
  const std::vector<int32_t> tokens = {3, 4, 5};
  const Batch batch = padded_row(tokens, 5);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{3, 4, 5, 0, 0}));
  EXPECT_EQ(batch.n_labels(), 0);
}

TEST(Documents, are_cut_and_counted_as_asked) {
  const auto tokenizer = byte_tokenizer();
  TextBuilder builder("text", *tokenizer);
  for (const char* text : {"abc", "defgh", "i"}) builder.add_document(text);
  const TokenStream stream({builder.build()});
  using Documents = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(documents_of(stream, {}),
            (Documents{{'a', 'b', 'c'}, {'d', 'e', 'f', 'g', 'h'}, {'i'}}));
  EXPECT_EQ(documents_of(stream, {.max_documents = 2, .max_tokens = 2}),
            (Documents{{'a', 'b'}, {'d', 'e'}}));
}

}  // namespace
}  // namespace octet
