// Files that are no tokenizer, or one that is not supported: one line, which says what is wrong.
#include <gtest/gtest.h>

#include "base/json.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::text_bad_files_test {
namespace {

using test::error_of;
using test::ScratchFolder;

const std::string kTiny = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

class BadFile : public testing::Test {
 protected:
  std::string error(const std::string& name, std::string_view bytes) {
    const std::string path = folder_.put(name, bytes);
    return error_of([&] { make_tokenizer(posix_files(), path); }, folder_.path());
  }
  // With one part of a good tokenizer.json replaced.
  std::string error_with(const std::string& pointer, const Json& value) {
    Json json = parse_json(posix_files().read_text(kTiny + "gpt2.json"), "gpt2.json");
    json[Json::json_pointer(pointer)] = value;
    return error("t.json", json.dump());
  }
  ScratchFolder folder_;
};

TEST_F(BadFile, parts_that_are_not_supported_are_named) {
  const std::string at = "[tokenizer] DIR/t.json: ";
  EXPECT_EQ(error_with("/model/type", "Other"), at + "model 'Other' is not supported");
  for (const std::string type : {"WordLevel", "Unigram", "WordPiece"})
    EXPECT_EQ(error_with("/model/type", type),
              at + "pre-tokenizer 'ByteLevel' with a model '" + type + "' is not supported");
  EXPECT_EQ(error_with("/model/dropout", 0.1), at + "dropout is not supported");
  EXPECT_EQ(error_with("/normalizer", {{"type", "Other"}}),
            at + "normalizer 'Other' is not supported");
  EXPECT_EQ(error_with("/pre_tokenizer", {{"type", "UnicodeScripts"}}),
            at + "pre-tokenizer 'UnicodeScripts' is not supported");
  EXPECT_EQ(error_with("/post_processor", {{"type", "Other"}}),
            at + "post-processor 'Other' is not supported");
  EXPECT_EQ(error_with("/decoder", {{"type", "WordPiece"}}),
            at + "decoder 'WordPiece' with a model 'BPE' is not supported");
  EXPECT_EQ(error_with("/decoder", {{"type", "CTC"}}), at + "decoder 'CTC' is not supported");
  EXPECT_EQ(
      error_with("/pre_tokenizer",
                 {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}}),
      at + "expected a regular expression, got '(a': missing closing parenthesis");
}

TEST_F(BadFile, faults_of_a_vocabulary_are_named) {
  const std::string at = "[tokenizer] DIR/t.json: ";
  EXPECT_EQ(error_with("/model/vocab/zzz", 1 << 21),
            at + "token 2097152: expected an id from 0 to 2097151");
  EXPECT_EQ(error_with("/model/vocab/zzz", -1), at + "token -1: expected an id from 0 to 2097151");
  EXPECT_EQ(error_with("/model/vocab/zzz", 5), at + "token 5: expected each id once, got two");
  EXPECT_EQ(error_with("/model/vocab/zzz", "5"), at + "token 'zzz': expected an id");
  EXPECT_EQ(error_with("/model/vocab/" + std::string(5000, 'z'), 999),
            at + "token 999: expected at most 4096 bytes, got 5000");
  EXPECT_EQ(error_with("/model/merges/0", "a"), at + "merge 0: expected two tokens");
  EXPECT_EQ(error_with("/model/merges/0", "q zzz"), at + "merge 0: 'zzz' is not in the vocabulary");
  EXPECT_EQ(error_with("/model/merges/0", "a "), at + "merge 0: expected two tokens");
  const std::string repeated = error_with(
      "/model/merges/1", Json(parse_json(posix_files().read_text(kTiny + "gpt2.json"), "")
                                  .at("model")
                                  .at("merges")[0]));
  EXPECT_TRUE(repeated.starts_with(at + "merge 1: '") && repeated.ends_with("' came before"))
      << repeated;
  EXPECT_EQ(error_with("/added_tokens/0/id", 3),
            at + "added token '<|end|>': expected the id 0, got 3");
  // The tokenizers package gives a new token the id behind the others, whatever the file says.
  const auto added = [](const char* content, int id) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const std::string behind = " behind those before it, got ";
  EXPECT_EQ(error_with("/added_tokens", Json::array({added("<x>", 500)})),
            at + "added token '<x>': expected the id 420" + behind + "500");
  EXPECT_EQ(error_with("/added_tokens", {added("<x>", 421), added("<y>", 420)}),
            at + "added token '<x>': expected the id 420" + behind + "421");
  EXPECT_EQ(error_with("/added_tokens", {added("<x>", 420), added("<y>", 422)}),
            at + "added token '<y>': expected the id 421" + behind + "422");
  EXPECT_EQ(error_with("/added_tokens", {added("<x>", 420), added("<y>", 421)}), "no error");
}

TEST_F(BadFile, every_truncation_is_one_line_or_a_shorter_tokenizer) {
  for (const char* name : {"gpt2.json", "sp_bpe.model", "sp_unigram.model", "tiny.tiktoken"}) {
    const std::string whole = posix_files().read_text(kTiny + name);
    for (size_t n = 0; n < whole.size(); n += 97) {
      const std::string line = error("cut", whole.substr(0, n));
      EXPECT_EQ(line.find('\n'), line.npos) << name << " " << n;
      EXPECT_NE(line, "no error") << name << " " << n;  // ranks need a pattern
    }
  }
}

TEST_F(BadFile, other_data_is_refused) {
  const std::string other =
      "[tokenizer] DIR/x: expected a tokenizer.json, a SentencePiece model, "
      "tiktoken ranks, a vocab.json, a vocab.txt or a tokenizer.bin, got other data";
  EXPECT_EQ(error("x", ""), other);
  EXPECT_EQ(error("x", "some text\n"), other);
  EXPECT_EQ(error("x", "{\"a\": [1]}"),
            "[tokenizer] DIR/x: expected a tokenizer.json or a vocab.json, got other JSON");
  EXPECT_EQ(
      error("x", "{\"a\": 1}"),
      "[tokenizer] DIR/x: expected merges.txt or vocab.bpe beside the vocabulary, got neither");
  EXPECT_EQ(error("x", "{\"a\": 1, \"a\": 2}"),
            "[json] DIR/x: expected each key once, got 'a' again");
  const std::string deep = "{\"model\": " + std::string(64, '[') + std::string(64, ']') + "}";
  EXPECT_EQ(error("x", deep), "[json] DIR/x: expected at most 64 levels, got more");
  EXPECT_EQ(error("x", "YQ== 0\nYg== x\n"),
            "[tokenizer] DIR/x: line 2: expected a token in base64 and its rank");
  EXPECT_EQ(error("x", "YQ== 0\nYQ== 1\n"),
            "[tokenizer] DIR/x: line 2: expected each token once, got one again");
  EXPECT_EQ(error("x", "YQ== 0\nYg== 0\n"),
            "[tokenizer] DIR/x: line 2: token 0: expected each id once, got two");
  EXPECT_EQ(error("x", "GGUF\x03"), "[tokenizer] DIR/x: expected a whole GGUF file, got its start");
  EXPECT_EQ(error_of([&] { make_tokenizer(posix_files(), folder_.put("empty/x.txt", "")); },
                     folder_.path())
                .substr(0, 26),
            "[tokenizer] DIR/empty/x.tx");
  EXPECT_EQ(
      error_of([&] { make_tokenizer(posix_files(), folder_ / "empty"); }, folder_.path()),
      "[tokenizer] DIR/empty: expected tokenizer.json, spiece.model, tokenizer.model, vocab.json, "
      "encoder.json, *.tiktoken, tokenizer.bin or vocab.txt in the folder, got none");
}

}  // namespace
}  // namespace octet::text_bad_files_test
