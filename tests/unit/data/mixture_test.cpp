#include "data/mixture.h"

#include <gtest/gtest.h>

#include <map>

#include "data/json_values.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/data/documents.h"

namespace octet::data_mixture_test {
namespace {

using Counts = std::map<int64_t, int64_t>;

Counts counts_of(const Mixture& mixture, uint64_t first, uint64_t end) {
  Counts counts;
  for (uint64_t epoch = first; epoch < end; ++epoch)
    for (int64_t i = 0; i < mixture.n_items(); ++i) ++counts[mixture.item(epoch, i)];
  return counts;
}

TEST(Mixture, reads_each_part_as_often_as_its_weight_says) {
  const std::vector<StreamPart> parts = {{4, 0.5}, {6, 3}, {10, 1}};
  for (const bool shuffles : {false, true}) {
    const Mixture mixture(10, parts, {.shuffles = shuffles, .seed = 7});
    EXPECT_EQ(mixture.n_items(), 2 + 6 + 4);
    const Counts two = counts_of(mixture, 0, 2);  // in two epochs all of half a weight, once
    for (int64_t item = 0; item < 10; ++item)
      EXPECT_EQ(two.at(item), item < 4 ? 1 : item < 6 ? 6 : 2) << item;
  }
}

TEST(Mixture, of_equal_weights_is_one_part) {
  const std::vector<StreamPart> parts = {{4, 1}, {10, 1}};
  const Mixture mixture(10, parts, {.seed = 7}), plain(10, {}, {.seed = 7});
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(mixture.item(3, i), plain.item(3, i));
}

TEST(WeightedRows, hold_documents_by_weight_and_resume) {
  const auto tokenizer = byte_tokenizer();
  const auto source = [&](char byte, int n) {
    TextBuilder builder(*tokenizer);
    for (int i = 0; i < n; ++i) builder.add_document(std::string(3, byte));
    return TokenStream({builder.build()});
  };
  const std::vector<std::pair<TokenStream, double>> streams = {{source('a', 4), 2},
                                                               {source('b', 6), 0.5}};
  const TokenStream all = TokenStream::weighted(streams);
  const RowOptions options{.seq = 2, .seed = 3, .packing = Packing::single};
  RowLoader loader(all, options);
  EXPECT_EQ(loader.rows_of_epoch(0), 8 + 3);
  Counts counts;
  for (const int32_t token : loader.peek(0, 22).ints("tokens")) ++counts[token];
  EXPECT_EQ(counts, (Counts{{'a', 2 * 16}, {'b', 2 * 6}}));
  loader.advance(5);
  RowLoader other(all, options);
  other.restore(loader.state());
  EXPECT_EQ(other.peek(0, 20).ints("tokens"), loader.peek(0, 20).ints("tokens"));
  const std::vector<std::pair<TokenStream, double>> changed = {{source('a', 4), 1},
                                                               {source('b', 6), 0.5}};
  RowLoader third(TokenStream::weighted(changed), options);
  EXPECT_EQ(test::error_of([&] { third.restore(loader.state()); }),
            "[data] 'weights' must stay as in the checkpoint: expected 2, 0.5, got 1, 0.5");
}

TEST(LongValues, are_told_and_read_over) {
  const test::ScratchFolder folder;
  const std::string lines =
      folder.put("x.jsonl", "{\"a\": \"" + std::string(3 << 20, 'x') + "\"}\n{\"b\": 1}\n");
  const std::string list =
      folder.put("x.json", "[{\"a\": \"" + std::string(3 << 20, ']') + "\"},\n{\"b\": 1}]");
  for (const std::string& path : {lines, list}) {
    JsonLimits limits{.max_value_bytes = 1 << 20, .long_values = JsonLimits::LongValues::are_told};
    JsonValues values(posix_files(), path, limits);
    const auto first = values.next();
    ASSERT_TRUE(first);
    EXPECT_TRUE(first->is_too_long);
    EXPECT_EQ(first->text, "");
    const auto second = values.next();
    ASSERT_TRUE(second);
    EXPECT_EQ(second->text, "{\"b\": 1}");
    EXPECT_EQ(second->line, 2);
    EXPECT_FALSE(values.next());
    limits.long_values = JsonLimits::LongValues::are_errors;
    EXPECT_EQ(test::error_of([&] { JsonValues(posix_files(), path, limits).next(); }),
              "[data] " + path + ":1: expected values of at most 1048576 bytes, got more");
  }
}

TEST(JsonContent, is_told_by_its_first_bytes) {
  const test::ScratchFolder folder;
  const auto begins = [&](const std::string& text) {
    return begins_with_objects(posix_files(), folder.put("x", text));
  };
  for (const char* json : {"{\"a\": 1}", "\xEF\xBB\xBF [\n { \"a\"", "{}"})
    EXPECT_TRUE(begins(json));
  for (const char* text : {"", "Once upon", "{% set a %}", "[1] See", "{ int x; }"})
    EXPECT_FALSE(begins(text)) << text;
}

}  // namespace
}  // namespace octet::data_mixture_test
