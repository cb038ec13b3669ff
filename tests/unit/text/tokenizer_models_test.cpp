// tokenizer.json of Unigram, WordLevel and BPE with affixes, in the forms of published files, made
// by tools/make_tokenizer_model_goldens.py, against the package that made them.
#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/json.h"
#include "text/character_map.h"
#include "text/tokenizer.h"
#include "text/unigram.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::text_tokenizer_models_test {
namespace {

using Ids = std::vector<int32_t>;
using test::error_of;
using test::ScratchFolder;

const std::string kModels = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/tokenizer_models/";

class TokenizerModel : public testing::TestWithParam<std::string> {
 protected:
  std::string path() const { return kModels + GetParam() + ".json"; }
};

TEST_P(TokenizerModel, gives_the_ids_and_the_text_of_the_package) {
  const auto tokenizer = make_tokenizer(posix_files(), path());
  const Json golden =
      parse_json(posix_files().read_text(kModels + "expected.json"), "expected.json");
  const Json& texts = golden.at("texts");
  const Json& rows = golden.at("rows").at(GetParam() + ".json");
  WordCache words;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(ids, rows[i][0].get<Ids>()) << text;
    Ids whole = tokenizer->prefix();
    whole.insert(whole.end(), ids.begin(), ids.end());
    const Ids suffix = tokenizer->suffix();
    whole.insert(whole.end(), suffix.begin(), suffix.end());
    EXPECT_EQ(whole, rows[i][1].get<Ids>()) << text;
    EXPECT_EQ(tokenizer->decode(ids), rows[i][2].get<std::string>()) << text;
    for (int time = 0; time < 2; ++time)
      EXPECT_EQ(tokenizer->encode(text, {.words = &words}), ids) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TokenizerModel,
                         testing::Values("t5", "xlmr", "albert", "deberta", "unigram_bytes",
                                         "word_level", "bpe_suffix", "bpe_prefix", "clip",
                                         "byte_normalizer"),
                         [](const auto& row) { return row.param; });

// A file with one part changed.
std::string error_with(const std::string& name, const std::function<void(Json&)>& change,
                       const std::string& text = "a") {
  const ScratchFolder folder;
  Json json = parse_json(posix_files().read_text(kModels + name), name);
  change(json);
  const std::string path = folder.put("t.json", json.dump());
  return error_of([&] { make_tokenizer(posix_files(), path)->encode(text); }, folder.path());
}

TEST(TokenizerModels, what_is_damaged_or_not_supported_is_refused_by_name) {
  const std::string begin = "[tokenizer] DIR/t.json: ";
  const struct {
    std::string file;
    std::function<void(Json&)> change;
    std::string error;
  } cases[] = {
      {"t5.json", [](Json& json) { json["model"]["unk_id"] = 100000; },
       "unk_id: expected an id from 0 to "},
      {"t5.json", [](Json& json) { json["model"]["vocab"][3] = "x"; },
       "vocab 3: expected a token and its score"},
      {"t5.json",
       [](Json& json) {
         json["model"]["vocab"] = Json::array();
         json["model"].erase("unk_id");
       },
       "expected tokens, got none"},
      {"t5.json", [](Json& json) { json["normalizer"]["precompiled_charsmap"] = "AAAA"; },
       "Precompiled: expected a map of characters, got other data"},
      {"t5.json",
       [](Json& json) {
         json["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
       },
       "pre-tokenizer 'UnicodeScripts' is not supported"},
      {"t5.json",
       [](Json& json) {
         json["decoder"] = {{"type", "CTC"}};
       },
       "decoder 'CTC' is not supported"},
      {"t5.json",
       [](Json& json) {
         json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"use_regex", true}};
       },
       "pre-tokenizer 'ByteLevel' with a model 'Unigram' is not supported"},
      {"bpe_prefix.json",
       [](Json& json) {
         json["pre_tokenizer"] = {{"type", "FixedLength"}, {"length", 0}};
       },
       "FixedLength: expected a length above 0, got 0"},
      {"bpe_prefix.json",
       [](Json& json) {
         json["pre_tokenizer"] = {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}};
       },
       "'delimiter': expected one character, got 'ab'"},
  };
  for (const auto& row : cases) {
    const std::string error = error_with(row.file, row.change);
    EXPECT_EQ(error.substr(0, begin.size() + row.error.size()), begin + row.error);
  }
}

// Rows of tools/make_alphabet_goldens.py.
TEST(TokenizerModels, bytes_without_a_token_fall_back_or_are_unknown) {
  const std::string path =
      std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/tokenizers/alphabets.json";
  for (const Json& row : parse_json(posix_files().read_text(path), path)) {
    const ScratchFolder folder;
    Json vocab = {{"<unk>", 0}};
    for (int byte = 0; byte < row.at("n_bytes"); ++byte)
      vocab[fmt::format("<0x{:02X}>", byte)] = vocab.size();
    for (const char* token : {"a", "b", "\u0120"}) vocab[token] = vocab.size();
    const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const Json json = {{"model",
                        {{"type", "BPE"},
                         {"vocab", vocab},
                         {"merges", Json::array()},
                         {"unk_token", "<unk>"},
                         {"byte_fallback", row.at("byte_fallback")},
                         {"fuse_unk", row.at("fuse_unk")}}},
                       {"pre_tokenizer", level},
                       {"decoder", {{"type", "ByteLevel"}}}};
    const auto tokenizer = make_tokenizer(posix_files(), folder.put("t.json", json.dump()));
    for (const auto& [text, ids] : row.at("ids").items())
      EXPECT_EQ(tokenizer->encode(text), ids.get<Ids>()) << text << row.dump();
  }
}

TEST(TokenizerModels, without_an_unknown_token_a_character_without_one_is_an_error) {
  EXPECT_EQ(error_with(
                "t5.json", [](Json& json) { json["model"].erase("unk_id"); }, "\u4e00"),
            "[tokenizer] expected a token for every character, got none for byte 0xE4");
  EXPECT_EQ(error_with(
                "word_level.json", [](Json& json) { json["model"]["unk_token"] = "none"; }, "zzzz"),
            "[tokenizer] DIR/t.json: expected a token for every character, got none for byte 0x7A");
}

// tokenizers 0.23.3's ids and texts of small files whose words meet what others have not.
std::string small_bpe(const Json& changed) {
  Json json = {{"version", "1.0"},
               {"added_tokens", Json::array()},
               {"model",
                {{"type", "BPE"},
                 {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"\u0120", 4}, {" ", 5}}},
                 {"merges", Json::array()}}}};
  json.merge_patch(changed);
  return json.dump();
}

TEST(TokenizerModels, words_meet_tokens_as_in_the_package) {
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const struct {
    Json changed;
    std::string text;
    Ids ids;
    std::string decoded;
  } cases[] = {
      // A word is looked up whole, no part of it.
      {{{"model", {{"ignore_merges", true}}}}, "ab", {3}, "ab"},
      {{{"model", {{"ignore_merges", true}}}}, "cab", {2, 0, 1}, "c a b"},
      // A token that is not spelled in the alphabet of bytes is no byte and no word.
      {{{"pre_tokenizer", bytes}, {"decoder", bytes}}, "a b", {0, 4, 1}, "a b"},
      {{{"pre_tokenizer", bytes}, {"decoder", bytes}, {"model", {{"ignore_merges", true}}}},
       " ab",
       {4, 0, 1},
       " ab"},
      // A byte's own token goes before "<0xXX>".
      {{{"pre_tokenizer", bytes},
        {"decoder", bytes},
        {"model", {{"byte_fallback", true}, {"vocab", {{"<0x61>", 6}, {"<0x78>", 7}}}}}},
       "ax",
       {0, 7},
       "a<0x78>"},
      // An empty text has no token.
      {{{"model", {{"type", "WordLevel"}, {"merges", nullptr}, {"unk_token", "c"}}}}, "", {}, ""},
      // Without a decoder spaces stand between tokens.
      {{{"pre_tokenizer", {{"type", "Whitespace"}}}}, "a bc", {0, 1, 2}, "a b c"},
  };
  for (const auto& one : cases) {
    const ScratchFolder folder;
    const std::string path = folder.put("t.json", small_bpe(one.changed));
    const auto tokenizer = make_tokenizer(posix_files(), path);
    EXPECT_EQ(tokenizer->encode(one.text), one.ids) << one.changed;
    EXPECT_EQ(tokenizer->decode(one.ids), one.decoded) << one.changed;
  }
  const ScratchFolder folder;
  Json vocab;
  for (int code = 0x21; code < 0x144; ++code)
    vocab[Json::parse(fmt::format("\"\\u{:04x}\"", code)).get<std::string>()] = code;
  vocab[" "] = 1;
  vocab["\n"] = 2;
  folder.put("merges.txt", "#version: 0.2\n");
  const std::string path = folder.put("vocab.json", vocab.dump());
  const Ids ids = {'a', 0x120, 'b', 0x10A};
  EXPECT_EQ(make_tokenizer(posix_files(), path)->encode("a b\n"), ids);
}

// Ids of the tokenizers package 0.23: a mark stands before the first word where the word begins
// with what the normalizer left of the text's first character.
TEST(TokenizerModels, a_mark_before_the_first_word_goes_by_the_text_s_first_character) {
  const auto sequence = [](const Json& steps) {
    return Json{{"type", "Sequence"}, {"normalizers", steps}};
  };
  const auto replace = [](const char* kind, const char* from, const char* to) {
    return Json{{"type", "Replace"}, {"pattern", {{kind, from}}}, {"content", to}};
  };
  const auto strip = [](bool left) {
    return Json{{"type", "Strip"}, {"strip_left", left}, {"strip_right", !left}};
  };
  const auto prepend = [](const char* text) {
    return Json{{"type", "Prepend"}, {"prepend", text}};
  };
  const Json accents = sequence({{{"type", "NFD"}}, {{"type", "StripAccents"}}});
  const struct {
    Json normalizer;
    const char* text;
    Ids ids;
  } cases[] = {
      {strip(true), "  abc", {1, 2, 3}},
      {strip(true), "abc", {0, 1, 2, 3}},
      {strip(false), " abc", {0, 1, 2, 3}},
      {replace("String", " ", ""), " abc", {1, 2, 3}},
      {replace("String", "x", ""), "xabc", {1, 2, 3}},
      {replace("String", "x", "y"), "xabc", {0, 5, 1, 2, 3}},
      {replace("String", "xy", "z"), "xyabc", {6, 1, 2, 3}},
      {replace("String", "xy", "z"), "abc", {0, 1, 2, 3}},
      {replace("Regex", "x+", "z"), "xabc", {0, 6, 1, 2, 3}},
      {replace("Regex", "x+", "z"), "xxabc", {6, 1, 2, 3}},
      {replace("Regex", "^", "z"), "abc", {0, 6, 1, 2, 3}},
      {prepend("zy"), "abc", {0, 6, 5, 1, 2, 3}},
      {sequence({prepend(" "), strip(true)}), " abc", {1, 2, 3}},
      {sequence({strip(true), prepend("z")}), " abc", {6, 1, 2, 3}},
      {sequence({prepend(" "), strip(true)}), "abc", {0, 1, 2, 3}},
      {sequence({prepend("z"), replace("String", "zx", "y")}), "xabc", {0, 5, 1, 2, 3}},
      {sequence({replace("String", "x", "yy"), replace("String", "yy", "z")}),
       "xabc",
       {0, 6, 1, 2, 3}},
      {accents, "\u0301abc", {1, 2, 3}},
      {accents, "\u00c1bc", {0, 7, 2, 3}},
      {{{"type", "BertNormalizer"}}, "\u0301abc", {1, 2, 3}},
      {{{"type", "Lowercase"}}, "Abc", {0, 1, 2, 3}},
  };
  const ScratchFolder folder;
  for (const auto& one : cases) {
    Json json = Json::parse(small_bpe({{"normalizer", one.normalizer},
                                       {"pre_tokenizer",
                                        {{"type", "Metaspace"},
                                         {"replacement", "\u2581"},
                                         {"prepend_scheme", "first"},
                                         {"split", true}}}}));
    json["model"]["vocab"] = {{"\u2581", 0}, {"a", 1}, {"b", 2}, {"c", 3},
                              {"x", 4},      {"y", 5}, {"z", 6}, {"A", 7}};
    const std::string path = folder.put("t.json", json.dump());
    EXPECT_EQ(make_tokenizer(posix_files(), path)->encode(one.text), one.ids)
        << one.normalizer << " " << one.text;
  }
}

TEST(TokenizerModels, steps_of_a_decoder_come_in_their_order_or_are_refused) {
  const auto step = [](const char* type, const Json& more = Json::object()) {
    Json json = {{"type", type}};
    json.update(more);
    return json;
  };
  const auto sequence = [](const Json& steps) {
    return Json{{"type", "Sequence"}, {"decoders", steps}};
  };
  const Json strip = step("Strip", {{"content", " "}, {"start", 1}, {"stop", 0}}),
             replace = step("Replace", {{"pattern", {{"String", "a"}}}, {"content", " "}}),
             fuse = step("Fuse"), metaspace = step("Metaspace", {{"replacement", "a"}}),
             never = step("Metaspace", {{"replacement", "a"}, {"prepend_scheme", "never"}});
  const auto folder = ScratchFolder();
  const auto tokenizer = [&](const Json& decoder) {
    return make_tokenizer(posix_files(), folder.put("t.json", small_bpe({{"decoder", decoder}})));
  };
  // No mark of the first token becomes a space, and one space of the text goes.
  const std::pair<Json, std::string> texts[] = {{metaspace, "bb b"},
                                                {never, " bb b"},
                                                {sequence({replace, fuse, strip}), "bb b"},
                                                {sequence({replace, fuse}), " bb b"}};
  for (const auto& [decoder, text] : texts)
    EXPECT_EQ(tokenizer(decoder)->decode(Ids{3, 1, 0, 1}), text) << decoder;
  EXPECT_EQ(tokenizer(metaspace)->decode(Ids{5, 0, 1}), "  b");
  const std::pair<Json, std::string> refused[] = {
      {sequence({replace, strip}), "decoder without Fuse before it 'Strip' is not supported"},
      {strip, "decoder without Fuse before it 'Strip' is not supported"},
      {sequence({fuse, replace}), "decoder behind Fuse 'Replace' is not supported"},
      {sequence({fuse, metaspace}), "decoder behind Fuse 'Metaspace' is not supported"},
      {sequence({metaspace, step("BPEDecoder")}),
       "decoder Metaspace beside 'BPEDecoder' is not supported"},
      {sequence({replace, step("ByteLevel")}),
       "decoder ByteLevel beside 'Metaspace or Replace' is not supported"}};
  for (const auto& one : refused)
    EXPECT_EQ(error_of([&] { tokenizer(one.first); }, folder.path()),
              "[tokenizer] DIR/t.json: " + one.second);
  const Json bytes = {{"decoder", fuse},
                      {"pre_tokenizer", {{"type", "ByteLevel"}, {"use_regex", true}}}};
  const std::string path = folder.put("t.json", small_bpe(bytes));
  EXPECT_EQ(error_of([&] { make_tokenizer(posix_files(), path); }, folder.path()),
            "[tokenizer] DIR/t.json: pre-tokenizer 'ByteLevel' with another decoder is not "
            "supported");
}

// A map whose places lead out of it.
TEST(CharacterMap, a_place_outside_is_no_string) {
  std::string bytes(4 + 8, '\0');
  bytes[0] = 8;
  bytes[6] = '\x7F';  // far away
  const auto map = CharacterMap::parse(bytes);
  ASSERT_TRUE(map);
  std::string out;
  map->append("abc", out);
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(CharacterMap::parse(bytes.substr(0, 9)));
  EXPECT_FALSE(CharacterMap::parse(""));
}

TEST(Unigram, scores_that_are_not_finite_are_refused) {
  EXPECT_EQ(error_of([] {
              Unigram({{"a", 0}, {"b", -INFINITY}}, {});
            }),
            "token 1: expected a finite score, got -inf");
}

}  // namespace
}  // namespace octet::text_tokenizer_models_test
