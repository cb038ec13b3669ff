// BLEU and chrF as sacrebleu computes them, the buckets of T5's relative positions, and the ids of
// a Marian tokenizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "infer/tasks/translation_scores.h"
#include "nn/relative_positions.h"
#include "text/tokenizer.h"
#include "text/translation_text.h"
#include "unit/base/scratch_folder.h"

namespace octet::translation_scores_test {
namespace {

nlohmann::json read(const std::string& name) {
  const std::string path = OCTET_SOURCE_DIR "/tests/golden/translation/" + name;
  return nlohmann::json::parse(posix_files().read_text(path));
}

TEST(TranslationScores, have_all_digits_of_sacrebleus) {
  for (const nlohmann::json& one : read("scores.json")) {
    std::vector<ScoredText> texts;
    for (const nlohmann::json& row : one.at("texts"))
      texts.push_back({.text = row[0], .references = row[1].get<std::vector<std::string>>()});
    EXPECT_DOUBLE_EQ(bleu(texts), one.at("bleu").get<double>()) << one.at("texts").dump();
    EXPECT_DOUBLE_EQ(chrf(texts), one.at("chrf").get<double>()) << one.at("texts").dump();
  }
}

TEST(RelativePositions, have_the_buckets_of_transformers) {
  for (const nlohmann::json& one : read("buckets.json")) {
    ModelSpec spec{.kind = ModelKind::t5};
    spec.relative_buckets = one.at("buckets");
    spec.relative_distance = one.at("distance");
    const bool is_both = one.at("both");
    const auto buckets =
        distance_buckets(spec, is_both ? Distances::both : Distances::before, -400, 801);
    std::vector<std::pair<int64_t, int64_t>> runs;
    for (int64_t i = 0; i < std::ssize(buckets); ++i) {
      const int64_t bucket = buckets[static_cast<size_t>(i)];
      if (runs.empty() || runs.back().second != bucket) runs.emplace_back(i - 400, bucket);
    }
    EXPECT_EQ(runs, (one.at("runs").get<std::vector<std::pair<int64_t, int64_t>>>()))
        << spec.relative_buckets << " " << spec.relative_distance << " " << is_both;
  }
}

TEST(MarianTokenizer, has_the_ids_of_transformers) {
  const nlohmann::json json = read("tokenizer.json");
  const test::ScratchFolder folder;
  const std::string fixtures = OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/";
  folder.put("source.spm", posix_files().read_text(fixtures + "sp_unigram.model"));
  folder.put("target.spm", posix_files().read_text(fixtures + "sp_bpe.model"));
  const std::string path = folder.put("vocab.json", json.at("vocab").dump());
  EXPECT_EQ(find_tokenizer(posix_files(), parent_path(path)), path);
  const auto tokenizer = make_tokenizer(posix_files(), path);
  for (const nlohmann::json& one : json.at("cases")) {
    const auto text = one.at("text").get<std::string>();
    EXPECT_EQ(source_tokens(*tokenizer, text).ids, one.at("ids").get<std::vector<int32_t>>())
        << text;
    const auto target = one.at("target").get<std::vector<int32_t>>();
    EXPECT_EQ(target_tokens(*tokenizer, text).ids, target) << text;
    EXPECT_EQ(tokenizer->decode(target), one.at("decoded").get<std::string>()) << text;
  }
  const TranslationText cut =
      source_tokens(*tokenizer, "the cat sat on the mat", {.max_tokens = 4});
  EXPECT_TRUE(cut.is_cut);
  EXPECT_EQ(cut.ids, (std::vector<int32_t>{135, 248, 155, 0}));
  const std::vector<int32_t> whole = source_tokens(*tokenizer, "the cat sat on the mat").ids;
  const TranslationTextOptions last{.max_tokens = 4, .cut = CutSide::start};
  EXPECT_EQ(source_tokens(*tokenizer, "the cat sat on the mat", last).ids,
            std::vector<int32_t>(whole.end() - 4, whole.end()));
}

}  // namespace
}  // namespace octet::translation_scores_test
