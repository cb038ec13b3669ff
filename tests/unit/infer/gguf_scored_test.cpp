// SentencePiece's BPE in GGUF files (tokenizer.ggml.model "llama"), read, converted and written.
#include <gtest/gtest.h>

#include <limits>

#include "base/json.h"
#include "infer/export_gguf.h"
#include "infer/import_gguf.h"
#include "infer/model_source.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/gguf_model.h"

namespace octet::infer_gguf_scored_test {
namespace {

using namespace test::gguf;
using test::error_of;
using test::ScratchFolder;
using Ids = std::vector<int32_t>;

constexpr const char* kScores = "tokenizer.ggml.scores";

class GgufScored : public testing::Test {
 protected:
  GgufScored() {
    texts_ = {"<unk>", "<s>", "</s>"};
    types_ = {2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
      texts_.push_back(fmt::format("<0x{:02X}>", byte));
      types_.push_back(6);
    }
    scores_.assign(texts_.size(), 0);
    // 259 to 266; "bc" is merged before "ab", and "\u2581a" last.
    const std::pair<const char*, float> words[] = {{"\u2581", -9},    {"a", -10}, {"b", -11},
                                                   {"c", -12},        {"ab", -2}, {"bc", -1},
                                                   {"\u2581abc", -3}, {"abc", -4}};
    for (const auto& [text, score] : words) {
      texts_.emplace_back(text);
      scores_.push_back(score);
      types_.push_back(1);
    }
    texts_.emplace_back("<|user|>");
    scores_.push_back(0);
    types_.push_back(4);
    add_shape(model_.file);
    model_.file.add("tokenizer.ggml.model", "llama");
    model_.file.add("tokenizer.ggml.pre", "default");
    model_.file.add("tokenizer.ggml.bos_token_id", 1u);
    model_.file.add("tokenizer.ggml.eos_token_id", 2u);
    put();
    model_.tensor("token_embd.weight", {texts_.size(), kHidden}, kQ80);
    add_layers(model_);
  }
  void put() {
    model_.file.add("tokenizer.ggml.tokens", texts_);
    model_.file.add("tokenizer.ggml.token_type", types_);
    std::string bytes =
        test::GgufFile::raw<uint32_t>(6) + test::GgufFile::raw<uint64_t>(scores_.size());
    for (const float score : scores_) bytes += test::GgufFile::raw(score);
    model_.file.add_value(kScores, 9, bytes);
  }
  std::string path() { return folder_.put("m.gguf", model_.file.bytes()); }
  // With what stands around a text; the same of the file and of its folder.
  Ids ids(const std::string& text) {
    const std::string to = folder_ / fmt::format("model-{}", ++n_);
    import_gguf(posix_files(), path(), to, {});
    Ids both[2];
    for (const bool of_folder : {false, true}) {
      const auto tokenizer = make_tokenizer(posix_files(), of_folder ? to : path());
      both[of_folder] = tokenizer->prefix();
      for (const int32_t id : tokenizer->encode(text)) both[of_folder].push_back(id);
      for (const int32_t id : tokenizer->suffix()) both[of_folder].push_back(id);
      const Ids encoded = tokenizer->encode(text);
      if (text.find('<') == text.npos) {
        EXPECT_EQ(tokenizer->decode(encoded), text);
      }
    }
    EXPECT_EQ(both[0], both[1]);
    return both[0];
  }
  std::string error() {
    std::string text = error_of([&] { import_gguf(posix_files(), path(), folder_ / "never", {}); },
                                folder_.path());
    EXPECT_FALSE(posix_files().exists(folder_ / "never"));
    return text;
  }

  ScratchFolder folder_;
  int n_ = 0;
  GgufModel model_;
  std::vector<std::string> texts_;
  std::vector<int32_t> types_;
  std::vector<float> scores_;
};

TEST_F(GgufScored, the_token_of_highest_score_is_merged_first) {
  EXPECT_EQ(ids("abc"), (Ids{1, 265}));            // b c, then a bc, then the mark
  EXPECT_EQ(ids("ab"), (Ids{1, 259, 263}));        // no token "_ab"
  EXPECT_EQ(ids(" ab"), (Ids{1, 259, 259, 263}));  // a space of the text's own
  EXPECT_EQ(ids("a<|user|>b"), (Ids{1, 259, 260, 267, 259, 261}));
  EXPECT_EQ(ids("a\u00e9"), (Ids{1, 259, 260, 3 + 0xC3, 3 + 0xA9}));
}

TEST_F(GgufScored, spaces_and_ends_are_as_the_file_says) {
  model_.file.add_flag("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(ids("abc ab"), (Ids{1, 266, 259, 263}));
  model_.file.add_flag("tokenizer.ggml.add_bos_token", false);
  model_.file.add_flag("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(ids("ab"), (Ids{263, 2}));
}

TEST_F(GgufScored, what_is_written_has_the_same_ids) {
  for (const bool adds_space : {true, false}) {
    model_.file.add_flag("tokenizer.ggml.add_space_prefix", adds_space);
    const std::string folder = folder_ / fmt::format("from-{}", adds_space);
    import_gguf(posix_files(), path(), folder, {});
    const std::string out = folder_ / fmt::format("out-{}.gguf", adds_space);
    export_gguf(posix_files(), find_model_source(posix_files(), folder), out, GgufDtype::bf16);
    const auto before = make_tokenizer(posix_files(), path()),
               after = make_tokenizer(posix_files(), out);
    EXPECT_EQ(before->prefix(), after->prefix());
    for (const std::string text : {"abc", " ab", "a<|user|> bc", "x<unk>abcabc </s>a", "cab bca"})
      EXPECT_EQ(before->encode(text), after->encode(text)) << text;
  }
}

TEST_F(GgufScored, merges_of_another_kind_are_refused) {
  const std::string folder = folder_ / "model";
  import_gguf(posix_files(), path(), folder, {});
  const std::string file = join_path(folder, "tokenizer.json");
  const Json whole = Json::parse(posix_files().read_text(file));
  const auto refused = [&](const auto& change) {
    Json json = whole;
    change(json["model"]["merges"]);
    write_atomically(posix_files(), file, json.dump());
    return error_of([&] {
      export_gguf(posix_files(), find_model_source(posix_files(), folder), folder_ / "x.gguf",
                  GgufDtype::bf16);
    });
  };
  const std::string expected =
      "expected merges of SentencePiece, all pairs of each token in an order of tokens, got others";
  const std::string missing = refused([](Json& merges) { merges.erase(merges.size() - 1); });
  EXPECT_TRUE(missing.ends_with(expected)) << missing;
  const std::string order = refused([](Json& merges) {
    const Json last = merges.back();
    merges.erase(merges.size() - 1);
    merges.insert(merges.begin(), last);
  });
  EXPECT_TRUE(order.ends_with(expected)) << order;
}

// Words are GPT-2's kind's alone.
TEST_F(GgufScored, no_word_rule_is_missed) {
  model_.file.remove("tokenizer.ggml.pre");
  std::string said;
  const Log log([&](LogLevel, const std::string& line) { said += line; });
  import_gguf(posix_files(), path(), folder_ / "model", {.log = log});
  EXPECT_EQ(said.find("tokenizer.ggml.pre"), said.npos) << said;
}

// Looked for behind the space that the normalizer puts before a text, they are found nowhere else.
TEST_F(GgufScored, added_tokens_of_normalized_text_are_refused_where_a_space_is_put_before_them) {
  for (const bool adds_space : {true, false}) {
    model_.file.add_flag("tokenizer.ggml.add_space_prefix", adds_space);
    const std::string folder = folder_ / fmt::format("normalized-{}", adds_space);
    import_gguf(posix_files(), path(), folder, {});
    const std::string file = join_path(folder, "tokenizer.json"), out = folder + ".gguf";
    Json json = Json::parse(posix_files().read_text(file));
    for (Json& token : json["added_tokens"]) token["normalized"] = token["content"] == "<|user|>";
    write_atomically(posix_files(), file, json.dump());
    const auto write = [&] {
      export_gguf(posix_files(), find_model_source(posix_files(), folder), out, GgufDtype::bf16);
    };
    if (adds_space) {
      const std::string error = error_of(write);
      EXPECT_TRUE(error.ends_with("added token '<|user|>': 'normalized' has no key in a GGUF file"))
          << error;
    } else {
      write();
      const std::string text = "a<|user|>b";
      EXPECT_EQ(make_tokenizer(posix_files(), file)->encode(text),
                make_tokenizer(posix_files(), out)->encode(text));
    }
  }
}

TEST_F(GgufScored, damaged_vocabularies_are_refused_by_name) {
  scores_.pop_back();
  put();
  EXPECT_EQ(error(), "[gguf] DIR/m.gguf: expected a score for each token, got 267 for 268");
  scores_.push_back(0);
  scores_[260] = std::numeric_limits<float>::quiet_NaN();
  put();
  EXPECT_EQ(error(), "[gguf] DIR/m.gguf: token 260: expected a finite score, got nan");
  scores_[260] = 0;
  texts_[260] = std::string(257, 'a');
  put();
  EXPECT_EQ(error(), "[gguf] DIR/m.gguf: token 260: expected at most 256 bytes, got 257");
  texts_[260] = "a";
  put();
  model_.file.add("tokenizer.ggml.pre", "gpt-2");
  EXPECT_EQ(error(), "[gguf] DIR/m.gguf: tokenizer.ggml.pre 'gpt-2' is not supported");
  model_.file.add("tokenizer.ggml.model", "t5");
  EXPECT_EQ(error(),
            "[gguf] DIR/m.gguf: expected tokenizer.ggml.model 'gpt2' or 'llama', got 't5'");
}

}  // namespace
}  // namespace octet::infer_gguf_scored_test
