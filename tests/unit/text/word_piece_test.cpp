// Tokenizers of BERT's kind, made by tools/make_word_piece_goldens.py, against the package that
// made them.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/json.h"
#include "text/encode_texts.h"
#include "text/word_pieces.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::word_pieces {
namespace {

using Ids = std::vector<int32_t>;
using test::error_of;
using test::ScratchFolder;

const std::string kPieces = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/word_pieces/";
const std::string kShared = std::string(OCTET_TEST_DATA) + "/data/";

const Json& expected() {
  static const Json golden =
      parse_json(posix_files().read_text(kPieces + "expected.json"), "expected.json");
  return golden;
}

std::string text_of(const Json& index) {
  return expected().at("texts")[index.get<size_t>()].get<std::string>();
}

void expect_row(const EncodedTexts& encoded, const Json& row, const std::string& what) {
  EXPECT_EQ(encoded.ids, row.at("ids").get<Ids>()) << what;
  EXPECT_EQ(encoded.types, row.at("types").get<Ids>()) << what;
  EXPECT_EQ(encoded.special, row.at("special").get<std::vector<uint8_t>>()) << what;
}

class WordPiece : public testing::TestWithParam<std::string> {
 protected:
  const Json& golden() const { return expected().at("tokenizers").at(GetParam()); }
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer(posix_files(), kPieces + GetParam());
};

TEST_P(WordPiece, gives_the_ids_and_texts_of_the_package) {
  WordCache words;
  for (size_t i = 0; i < expected().at("texts").size(); ++i) {
    const std::string text = text_of(i);
    const Json& row = golden().at("single")[i];
    const Ids ids = tokenizer_->encode(text);
    EXPECT_EQ(ids, row.at("plain").get<Ids>()) << text;
    EXPECT_EQ(tokenizer_->encode(text, {.words = &words}), ids) << text;
    EXPECT_EQ(tokenizer_->encode(text, {.words = &words}), ids) << "a second time: " << text;
    EXPECT_EQ(tokenizer_->decode(ids), row.at("text").get<std::string>()) << text;
    const EncodedTexts whole = encode_texts(*tokenizer_, text);
    expect_row(whole, row, text);
    EXPECT_EQ(tokenizer_->decode(whole.ids), row.at("whole_text").get<std::string>()) << text;
    Ids around = tokenizer_->prefix();
    around.insert(around.end(), ids.begin(), ids.end());
    for (const int32_t id : tokenizer_->suffix()) around.push_back(id);
    EXPECT_EQ(around, whole.ids) << text;
  }
}

TEST_P(WordPiece, puts_two_texts_together_and_cuts_them_as_the_package_does) {
  for (const char* list : {"pairs", "cut"}) {
    for (const Json& row : golden().at(list)) {
      const std::string first = text_of(row.at("first"));
      const auto length = row.at("length").get<int64_t>();
      std::optional<std::string> second;
      if (row.contains("second")) second = text_of(row.at("second"));
      const Ids n_own = row.at("special").get<Ids>();
      // The package leaves texts whole where there is no room for its own tokens.
      if (length > 0 && std::ssize(n_own) > length) {
        EXPECT_NE(error_of([&] {
                    encode_texts(*tokenizer_, first, second, {.max_tokens = length});
                  }).find("expected room for"),
                  std::string::npos);
        continue;
      }
      expect_row(encode_texts(*tokenizer_, first, second, {.max_tokens = length}), row,
                 fmt::format("{} | {} at {}", first, second.value_or("-"), length));
    }
  }
}

// Number and checksum of ids, as the script has them.
std::pair<int64_t, int64_t> checksum(const Ids& ids) {
  int64_t value = std::ssize(ids);
  for (const int32_t id : ids) value = (value * 31 + id + 1) % ((int64_t{1} << 31) - 1);
  return {std::ssize(ids), value};
}

// Documents of whole lines, at least 20,000 bytes each.
Ids encode_documents(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  while (!text.empty()) {
    size_t end = 0;
    while (end < std::min<size_t>(text.size(), 20'000)) {
      end = std::min(text.find('\n', end), text.size() - 1) + 1;
    }
    tokenizer.encode(text.substr(0, end), {}, ids);
    text.remove_prefix(end);
  }
  return ids;
}

TEST_P(WordPiece, gives_the_ids_of_the_package_for_the_golden_texts) {
  for (const auto& [name, sums] : golden().at("golden").items()) {
    if (!posix_files().exists(kShared + name)) GTEST_SKIP() << "shared test data absent: " << name;
    const std::string text = posix_files().read_text(kShared + name);
    using Sum = std::pair<int64_t, int64_t>;
    EXPECT_EQ(checksum(tokenizer_->encode(text)), sums[0].get<Sum>()) << name;
    EXPECT_EQ(checksum(encode_documents(*tokenizer_, text)), sums[1].get<Sum>()) << name;
  }
}

TEST_P(WordPiece, a_megabyte_of_one_letter_is_no_special_case) {
  for (const std::string letter : {"e", " ", "\u00e9", ".", "7", "\u4e00"}) {
    std::string text;
    while (text.size() < 1'000'000) text += letter;
    for (const int32_t id : tokenizer_->encode(text)) ASSERT_LT(id, tokenizer_->vocab_size());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, WordPiece,
                         testing::Values("uncased.json", "cased.json", "accents.json", "steps.json",
                                         "bare.json", "odd_template.json", "roberta.json",
                                         "vocab.txt"),
                         [](const auto& row) {
                           const size_t dot = row.param.find('.');
                           return row.param.ends_with(".txt") ? "vocab_txt"
                                                              : row.param.substr(0, dot);
                         });

TEST(WordPieces, takes_the_longest_piece_and_all_of_a_word_or_none) {
  Vocabulary spelled;
  int32_t id = 0;
  for (const char* token : {"[UNK]", "un", "una", "##aff", "##ff", "##able", "##", "##\u00e9"}) {
    spelled.add(id++, token);
  }
  const auto encode = [&](std::string_view word, const WordPieceOptions& options) {
    Ids ids;
    WordPieces(spelled, options).encode(word, ids);
    return ids;
  };
  EXPECT_EQ(encode("unaffable", {}), (Ids{2, 4, 5}));  // not un ##aff ##able
  EXPECT_EQ(encode("un\u00e9", {}), (Ids{1, 7}));
  EXPECT_EQ(encode("unaffab", {}), Ids{0});
  EXPECT_EQ(encode("un\xC3", {}), Ids{0});
  EXPECT_EQ(encode("un", {.prefix = ""}), Ids{1});
  EXPECT_EQ(encode("unun", {.prefix = ""}), (Ids{1, 1}));
  EXPECT_EQ(encode("unaff", {.prefix = "@"}), Ids{0});  // no token begins with it
  EXPECT_EQ(encode("un\u00e9", {.max_chars = 3}), (Ids{1, 7}));
  EXPECT_EQ(encode("un\u00e9", {.max_chars = 2}), Ids{0});
  EXPECT_EQ(encode("un", {.max_chars = 0, .unknown = 5}), Ids{5});
}

// The definition, word for word: at each place the longest token that is there.
Ids pieces_by_definition(const std::map<std::string, int32_t>& tokens, std::string_view word,
                         const std::string& prefix) {
  Ids ids;
  for (size_t at = 0; at < word.size();) {
    size_t n = word.size() - at;
    const auto token = [&] {
      return tokens.find((at > 0 ? prefix : "") + std::string(word.substr(at, n)));
    };
    while (n > 0 && token() == tokens.end()) --n;
    if (n == 0) return {0};
    ids.push_back(token()->second);
    at += n;
  }
  return ids;
}

TEST(WordPieces, of_random_vocabularies_are_those_of_the_definition) {
  std::mt19937 random(3);
  int n_covered = 0;
  const auto letters = [&](size_t longest) {
    std::string text;
    for (size_t n = 1 + random() % longest; n > 0; --n) text += "ab#"[random() % 3];
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    const std::string prefix = std::vector<std::string>{"##", "#", "", "a"}[random() % 4];
    std::map<std::string, int32_t> tokens = {{"[UNK]", 0}};
    Vocabulary spelled;
    spelled.add(0, "[UNK]");
    for (size_t n = 1 + random() % 40; n > 0; --n) {
      const std::string token = (random() % 2 == 0 ? prefix : "") + letters(5);
      const auto id = static_cast<int32_t>(tokens.size());
      if (tokens.emplace(token, id).second) spelled.add(id, token);
    }
    const WordPieces pieces(spelled, {.prefix = prefix});
    for (int i = 0; i < 20; ++i) {
      const std::string word = letters(14);
      Ids ids;
      pieces.encode(word, ids);
      EXPECT_EQ(ids, pieces_by_definition(tokens, word, prefix)) << word;
      n_covered += ids.size() > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(n_covered, 1000);
}

// Rows of transformers 5.24: token types of a pair are asked for by a name, or by the class.
TEST(WordPieceTypes, are_those_that_the_folder_asks_for) {
  const std::pair<const char*, bool> rows[] = {
      {R"({})", true},
      {R"({"tokenizer_class": "BertTokenizer"})", true},
      {R"({"tokenizer_class": "BertTokenizerFast"})", true},
      {R"({"tokenizer_class": "ElectraTokenizer"})", true},
      {R"({"tokenizer_class": "DPRQuestionEncoderTokenizer"})", true},
      {R"({"tokenizer_class": "DistilBertTokenizer"})", false},
      {R"({"tokenizer_class": "PreTrainedTokenizerFast"})", false},
      {R"({"tokenizer_class": "TokenizersBackend"})", false},
      {R"({"tokenizer_class": "FunnelTokenizer"})", false},
      {R"({"tokenizer_class": "PreTrainedTokenizerFast",
           "model_input_names": ["input_ids", "token_type_ids"]})",
       true},
      {R"({"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids"]})", false},
      {R"({"model_input_names": []})", false},
  };
  for (const char* name : {"uncased.json", "vocab.txt"}) {
    for (const auto& [config, is_given] : rows) {
      const ScratchFolder folder;
      folder.put("tokenizer_config.json", config);
      const std::string file = std::string(name) == "vocab.txt" ? name : "tokenizer.json";
      const std::string path = folder.put(file, posix_files().read_text(kPieces + name));
      const EncodedTexts pair = encode_texts(*make_tokenizer(posix_files(), path), "a", "b");
      EXPECT_EQ(pair.types.back(), is_given ? 1 : 0) << name << config;
      EXPECT_EQ(pair.types.front(), 0);
    }
  }
  const ScratchFolder folder;
  folder.put("tokenizer_config.json", R"({"model_input_names": "input_ids"})");
  const std::string path = folder.put("vocab.txt", posix_files().read_text(kPieces + "vocab.txt"));
  EXPECT_EQ(error_of([&] { make_tokenizer(posix_files(), path); }, folder.path()),
            "[tokenizer] DIR/tokenizer_config.json: model_input_names: expected a list of names");
}

class BadPieces : public testing::Test {
 protected:
  std::string error_with(const std::string& pointer, const Json& value) {
    Json json = parse_json(posix_files().read_text(kPieces + "uncased.json"), "uncased.json");
    json[Json::json_pointer(pointer)] = value;
    return error("t.json", json.dump());
  }
  std::string error(const std::string& name, std::string_view bytes) {
    const std::string path = folder_.put(name, bytes);
    return error_of([&] { make_tokenizer(posix_files(), path)->encode("The text"); },
                    folder_.path());
  }
  ScratchFolder folder_;
};

TEST_F(BadPieces, are_one_line_that_names_the_part) {
  const std::string at = "[tokenizer] DIR/t.json: ";
  EXPECT_EQ(error_with("/model/vocab", Json::object()),
            at + "unk_token '[UNK]' is not in the vocabulary");
  EXPECT_EQ(error_with("/model/unk_token", "<unk>"),
            at + "unk_token '<unk>' is not in the vocabulary");
  EXPECT_EQ(error_with("/model/vocab/zzz", 3), at + "token 3: expected each id once, got two");
  EXPECT_EQ(error_with("/model/max_input_chars_per_word", int64_t{1} << 60),
            at + "expected max_input_chars_per_word from 0 to 1000, got 1152921504606846976");
  EXPECT_EQ(error_with("/model/max_input_chars_per_word", -1),
            at + "expected max_input_chars_per_word from 0 to 1000, got -1");
  EXPECT_EQ(error_with("/pre_tokenizer", {{"type", "ByteLevel"}}),
            at + "pre-tokenizer 'ByteLevel' with a model 'WordPiece' is not supported");
  EXPECT_EQ(error_with("/model/type", "Other"), at + "model 'Other' is not supported");
  EXPECT_EQ(error_with("/normalizer", {{"type", "Other"}}),
            at + "normalizer 'Other' is not supported");
  EXPECT_EQ(error_with("/pre_tokenizer", {{"type", "UnicodeScripts"}}),
            at + "pre-tokenizer 'UnicodeScripts' is not supported");
  EXPECT_EQ(error_with("/post_processor", {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}}),
            at + "expected a list 'cls'");
  EXPECT_EQ(
      error_with("/post_processor",
                 {{"type", "RobertaProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 9999}}}),
      at + "post-processor: expected 'cls' to be a token and its id from 0 to 420");
  EXPECT_EQ(error_with("/post_processor/pair/3/Sequence/id", "A"),
            at + "expected A and B once in the template of pairs, got 2 and 0");
  EXPECT_EQ(error_with("/post_processor/pair/3/Sequence/id", "C"),
            at + "template: expected a Sequence A or B, got 'C'");
  EXPECT_EQ(error_with("/post_processor/single/0/SpecialToken/type_id", -1),
            at + "template: expected a type_id from 0 to 2147483647, got -1");
  const Json post = parse_json(posix_files().read_text(kPieces + "uncased.json"), "uncased.json")
                        .at("post_processor");
  EXPECT_EQ(error_with("/post_processor", {{"type", "Sequence"}, {"processors", {post, post}}}),
            at + "expected one post-processor with special tokens, got 'TemplateProcessing' as "
                 "well");
}

TEST_F(BadPieces, of_a_list_are_one_line) {
  EXPECT_EQ(error("vocab.txt", "[UNK]\n[SEP]\na\n"),
            "[tokenizer] DIR/vocab.txt: expected the token '[CLS]', got none");
  const std::string good = "[UNK]\n[CLS]\n[SEP]\nthe\ntext\n";
  EXPECT_EQ(error("vocab.txt", good), "no error");
  EXPECT_EQ(error("vocab.txt", good + std::string(5000, 'z')),
            "[tokenizer] DIR/vocab.txt: token 5: expected at most 4096 bytes, got 5000");
}

// Nested files of JSON and of lines: whatever stands there, what is read can encode.
TEST_F(BadPieces, every_truncation_is_one_line) {
  const std::string whole = posix_files().read_text(kPieces + "uncased.json");
  for (size_t n = 0; n < whole.size(); n += 97) {
    const std::string line = error("cut", whole.substr(0, n));
    EXPECT_EQ(line.find('\n'), line.npos) << n;
    EXPECT_NE(line, "no error") << n;
  }
}

TEST_F(BadPieces, text_that_is_no_utf8_is_one_line_where_it_is_normalized) {
  for (const char* name : {"uncased.json", "accents.json", "steps.json", "odd_template.json"}) {
    const auto tokenizer = make_tokenizer(posix_files(), kPieces + name);
    EXPECT_EQ(error_of([&] { tokenizer->encode("ab\xff"); }),
              "[tokenizer] expected UTF-8, which this tokenizer normalizes, got byte 0xFF at 2");
  }
  const auto bare = make_tokenizer(posix_files(), kPieces + "bare.json");
  EXPECT_EQ(bare->encode("a \xff b"), bare->encode("a \u2603 b"));  // both are unknown
}

TEST(PieceList, of_two_equal_lines_the_later_counts_and_the_config_is_read) {
  const ScratchFolder folder;
  folder.put("vocab.txt", "[UNK]\r\n[CLS]\r\n[SEP]\r\nab\r\nAB\r\nab\r\n\u00e9\r\ne\r\n\u4e00");
  const auto ids = [&](const std::string& config) {
    if (!config.empty()) folder.put("tokenizer_config.json", config);
    return make_tokenizer(posix_files(), folder.path())->encode("AB \u00e9 \u4e00\u4e00");
  };
  EXPECT_EQ(ids(""), (Ids{5, 7, 8, 8}));
  EXPECT_EQ(ids(R"({"strip_accents": false})"), (Ids{5, 6, 8, 8}));
  EXPECT_EQ(ids(R"({"do_lower_case": false})"), (Ids{4, 6, 8, 8}));
  EXPECT_EQ(ids(R"({"tokenize_chinese_chars": false})"), (Ids{5, 7, 0}));
  folder.put("tokenizer_config.json", R"({"added_tokens_decoder": {"12": {"content": "<x>"}}})");
  const auto tokenizer = make_tokenizer(posix_files(), folder.path());
  EXPECT_EQ(tokenizer->vocab_size(), 13);
  EXPECT_EQ(tokenizer->encode("ab<x>"), (Ids{5, 12}));
  EXPECT_EQ(tokenizer->decode(Ids{12, 5, 12}), "<x> ab <x>");
}

TEST(EncodeTexts, a_tokenizer_without_a_template_of_pairs_takes_one_text) {
  const auto bytes = byte_tokenizer();
  EXPECT_EQ(encode_texts(*bytes, "ab").ids, (Ids{'a', 'b'}));
  EXPECT_EQ(encode_texts(*bytes, "abc", std::nullopt, {.max_tokens = 2}).ids, (Ids{'a', 'b'}));
  EXPECT_EQ(error_of([&] { encode_texts(*bytes, "a", "b"); }),
            "[tokenizer] expected a tokenizer with a template of pairs, got one without");
}

// As the package does with the direction "left".
TEST(EncodeTexts, may_cut_the_starts) {
  const ScratchFolder folder;
  folder.put("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd");
  const auto tokenizer = make_tokenizer(posix_files(), folder.path());
  const auto ids = [&](std::optional<std::string_view> second, int64_t n) {
    return encode_texts(*tokenizer, "a b c d", second, {.max_tokens = n, .cut = CutSide::start})
        .ids;
  };
  EXPECT_EQ(ids(std::nullopt, 4), (Ids{1, 5, 6, 2}));
  EXPECT_EQ(ids(std::nullopt, 6), (Ids{1, 3, 4, 5, 6, 2}));
  EXPECT_EQ(ids("b a", 7), (Ids{1, 5, 6, 2, 4, 3, 2}));
  EXPECT_EQ(ids("d b a", 6), (Ids{1, 5, 6, 2, 3, 2}));
}

}  // namespace
}  // namespace octet::word_pieces
