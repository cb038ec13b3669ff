// JSON files beside a vocabulary, made by tools/make_added_token_goldens.py, against transformers.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "text/padding.h"
#include "text/tokenizer.h"
#include "text/tokenizer_folder.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::text_folders_test {
namespace {

using test::error_of;
using test::ScratchFolder;
using Ids = std::vector<int32_t>;

const std::string kTinyFolders = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

std::string fixture(const std::string& name) {
  return posix_files().read_text(kTinyFolders + name);
}

void put_vocabulary(const ScratchFolder& folder, const std::string& name) {
  if (name != "vocab.json") {
    folder.put("tokenizer.model", fixture(name));
    return;
  }
  folder.put(name, fixture(name));
  folder.put("merges.txt", fixture("merges.txt"));
}

Ids with_ends(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids = tokenizer.prefix();
  tokenizer.encode(text, {}, ids);
  for (const int32_t id : tokenizer.suffix()) ids.push_back(id);
  return ids;
}

TEST(TokenizerFolder, gives_the_ids_of_transformers) {
  const Json golden = parse_json(fixture("folders.json"), "folders.json");
  const auto texts = golden.at("texts").get<std::vector<std::string>>();
  for (size_t i = 0; i < golden.at("cases").size(); ++i) {
    const Json& entry = golden.at("cases")[i];
    const ScratchFolder folder;
    put_vocabulary(folder, entry.at("vocabulary"));
    for (const auto& [name, value] : entry.at("files").items()) folder.put(name, value.dump());
    const auto tokenizer = make_tokenizer(posix_files(), folder.path());
    EXPECT_EQ(tokenizer->eos(), entry.at("eos").get<int32_t>()) << i;
    for (size_t k = 0; k < texts.size(); ++k) {
      EXPECT_EQ(with_ends(*tokenizer, texts[k]), entry.at("ids")[k].get<Ids>())
          << "case " << i << ": " << entry.at("files").dump() << ", text '" << texts[k] << "'";
    }
  }
}

// A tokenizer.json beside which the other file says lower case, accents or a first space otherwise.
TEST(TokenizerFolder, takes_the_word_of_tokenizer_config_as_its_class_does) {
  const Json golden = parse_json(fixture("configs.json"), "configs.json");
  const auto texts = golden.at("texts").get<std::vector<std::string>>();
  for (const Json& entry : golden.at("cases")) {
    const ScratchFolder folder;
    folder.put("tokenizer.json", fixture("../" + entry.at("tokenizer").get<std::string>()));
    folder.put("tokenizer_config.json", entry.at("config").dump());
    const auto tokenizer = make_tokenizer(posix_files(), folder.path());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(with_ends(*tokenizer, texts[i]), entry.at("ids")[i].get<Ids>())
          << entry.at("tokenizer") << entry.at("config") << ", text '" << texts[i] << "'";
    }
  }
}

TEST(TokenizerFolder, two_files_that_contradict_each_other_are_an_error) {
  const auto error = [](const std::string& config) {
    const ScratchFolder folder;
    folder.put("tokenizer.json", fixture("../word_pieces/uncased.json"));
    folder.put("tokenizer_config.json", config);
    return error_of([&] { (void)make_tokenizer(posix_files(), folder.path()); });
  };
  EXPECT_EQ(error(R"({"tokenizer_class": "BertTokenizer", "cls_token": "[CLS]"})"), "no error");
  EXPECT_NE(
      error(R"({"tokenizer_class": "BertTokenizer", "cls_token": "[MASK]"})").find("cls_token"),
      std::string::npos);
  EXPECT_NE(error(R"({"sep_token": {"content": "[MASK]"}})").find("sep_token"), std::string::npos);
  EXPECT_NE(
      error(R"({"unk_token": "[MASK]"})").find("unk_token: expected tokenizer.json's '[UNK]'"),
      std::string::npos);
  EXPECT_EQ(error(R"({"unk_token": {"content": "[UNK]"}})"), "no error");
  EXPECT_EQ(error(R"({"tokenizer_class": "TokenizersBackend", "unk_token": "[MASK]"})"),
            "no error");
  EXPECT_NE(error(R"({"split_special_tokens": true})").find("split_special_tokens"),
            std::string::npos);
  EXPECT_NE(error(R"({"do_lower_case": "no"})").find("do_lower_case"), std::string::npos);
  const Json never = {{"type", "Metaspace"},
                      {"replacement", "\u2581"},
                      {"split", false},
                      {"prepend_scheme", "never"}};
  for (const Json& step : {never, Json()}) {
    const ScratchFolder folder;
    Json json = parse_json(fixture("llama.json"), "llama.json");
    json["normalizer"] = nullptr;
    json["pre_tokenizer"] = step;
    folder.put("tokenizer.json", json.dump());
    folder.put("tokenizer_config.json",
               R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": true})");
    EXPECT_NE(error_of([&] {
                (void)make_tokenizer(posix_files(), folder.path());
              }).find("add_prefix_space: expected tokenizer.json's false, got true"),
              std::string::npos)
        << step;
  }
}

// The first space of Llama's classes, wherever the file has the steps that put and strip it.
TEST(TokenizerFolder, without_a_first_space_texts_are_what_they_were) {
  const Json prepend = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  const Json spaces = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const Json nested = {
      {"type", "Sequence"},
      {"normalizers", {{{"type", "Sequence"}, {"normalizers", Json::array({prepend})}}, spaces}}};
  const Json metaspace = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};
  const Json file = parse_json(fixture("llama.json"), "llama.json");
  for (const auto& [normalizer, decoder] :
       {std::pair(nested, file.at("decoder")), std::pair(file.at("normalizer"), metaspace)}) {
    const ScratchFolder folder;
    Json json = file;
    json["normalizer"] = normalizer, json["decoder"] = decoder;
    folder.put("tokenizer.json", json.dump());
    folder.put("tokenizer_config.json",
               R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})");
    const auto tokenizer = make_tokenizer(posix_files(), folder.path());
    Ids ids, with_space;
    tokenizer->encode("the cat", {}, ids);
    tokenizer->encode(" the cat", {}, with_space);
    EXPECT_NE(ids, with_space) << normalizer;
    EXPECT_EQ(tokenizer->decode(ids), "the cat") << decoder;
    EXPECT_EQ(tokenizer->decode(with_space), " the cat") << decoder;
  }
}

TEST(TokenizerFolder, words_are_named_by_files_without_a_configuration) {
  for (const auto& [name, text] : {std::pair("special_tokens_map.json", R"({"pad_token": "in"})"),
                                   std::pair("added_tokens.json", R"({"in": 84})")}) {
    const ScratchFolder folder;
    folder.put("tokenizer.json", fixture("gpt2.json"));
    const auto bare = make_tokenizer(posix_files(), folder.path());
    folder.put(name, text);
    const auto named = make_tokenizer(posix_files(), folder.path());
    Ids before, ids;
    bare->encode("xin in", {}, before);
    named->encode("xin in", {}, ids);
    EXPECT_NE(ids, before) << name;
  }
  const ScratchFolder folder;
  folder.put("tokenizer.json", "[1]");
  EXPECT_EQ(read_beside_json(posix_files(), folder.path()).tokens, std::vector<std::string>());
}

// Made by tools/make_slow_folder_goldens.py.
TEST(TokenizerFolder, of_slow_classes_find_the_users_pieces_as_these_do) {
  const Json golden = parse_json(fixture("slow_folders.json"), "slow_folders.json");
  const auto texts = golden.at("texts").get<std::vector<std::string>>();
  for (const Json& entry : golden.at("cases")) {
    const ScratchFolder folder;
    put_vocabulary(folder, "sp_user.model");
    for (const auto& [name, value] : entry.at("files").items()) folder.put(name, value.dump());
    const auto tokenizer = make_tokenizer(posix_files(), folder.path());
    EXPECT_TRUE(tokenizer->special_id("<|im_start|>").has_value());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(with_ends(*tokenizer, texts[i]), entry.at("ids")[i].get<Ids>())
          << entry.at("files").dump() << ", text '" << texts[i] << "'";
    }
  }
}

TEST(TokenizerFolder, added_tokens_have_their_texts) {
  const ScratchFolder folder;
  put_vocabulary(folder, "sp_bpe.model");
  const auto bare = make_tokenizer(posix_files(), folder.path());
  const int64_t n = bare->vocab_size();
  EXPECT_EQ(bare->special_id("<|im_end|>"), std::nullopt);
  folder.put("added_tokens.json", fmt::format(R"({{"<|im_end|>": {}, "<pad>": {}}})", n, n + 1));
  const auto tokenizer = make_tokenizer(posix_files(), folder.path());
  EXPECT_EQ(tokenizer->vocab_size(), n + 2);
  EXPECT_EQ(tokenizer->special_id("<|im_end|>"), n);
  const std::string text = "<s>the<|im_end|> end<pad>";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("<|im_end|><pad>")), "<|im_end|><pad>");
  EXPECT_EQ(tokenizer->encode(text).front(), *bare->bos());
  EXPECT_EQ(bare->encode("<s>the").size(), bare->encode("<s>the").size());
  EXPECT_NE(bare->encode(text).front(), *bare->bos());  // as before
}

TEST(TokenizerFolder, a_placeholder_may_be_named_anew) {
  const ScratchFolder folder;
  put_vocabulary(folder, "sp_bpe.model");
  const auto bare = make_tokenizer(posix_files(), folder.path());
  const int64_t id = bare->vocab_size() - 1;
  folder.put("tokenizer_config.json",
             fmt::format(R"({{"added_tokens_decoder": {{"{}": {{"content": "<|tool|>"}}}}}})", id));
  const auto tokenizer = make_tokenizer(posix_files(), folder.path());
  EXPECT_EQ(tokenizer->vocab_size(), bare->vocab_size());
  EXPECT_EQ(tokenizer->encode("<|tool|>"), Ids{static_cast<int32_t>(id)});
  EXPECT_EQ(tokenizer->decode(Ids{static_cast<int32_t>(id)}), "<|tool|>");
}

// Ids of transformers 5.24.
TEST(TokenizerFolder, of_t5_has_sentinels_behind_its_pieces) {
  const ScratchFolder folder;
  folder.put("spiece.model", fixture("sp_unigram.model"));
  const std::string text = "a <extra_id_0> b <extra_id_1>  c <extra_id_4>x";
  const auto ids = [&](const std::string& more) {
    folder.put("tokenizer_config.json", R"({"eos_token": "</s>")" + more + "}");
    return make_tokenizer(posix_files(), folder.path())->encode(text);
  };
  const std::string t5 = R"(, "tokenizer_class": "T5Tokenizer")";
  EXPECT_EQ(ids(t5), (Ids{268, 659, 416, 658, 493, 655, 259, 318}));
  EXPECT_EQ(ids(t5 + R"(, "extra_ids": 5)"), (Ids{268, 564, 416, 563, 493, 560, 259, 318}));
  EXPECT_EQ(ids(t5 + R"(, "extra_ids": 0)"), ids(""));
  const std::string named = R"(, "added_tokens_decoder": {"563": {"content": "<extra_id_0>"}})";
  EXPECT_EQ(ids(t5 + R"(, "extra_ids": 5)" + named)[1], 563);
  EXPECT_EQ(ids(", \"tokenizer_class\": \"T5TokenizerFast\", \"extra_ids\": 5")[1], 564);
  EXPECT_EQ(
      error_of([&] { ids(t5 + R"(, "extra_ids": -1)"); }, folder.path()),
      "[tokenizer] DIR/tokenizer_config.json: extra_ids: expected a number from 0 to 1024, got "
      "-1");
  // The class is also said by config.json, or by its type of model.
  const Ids five{268, 564, 416, 563, 493, 560, 259, 318}, all = ids(t5);
  folder.put("config.json", R"({"model_type": "t5"})");
  EXPECT_EQ(ids(""), all);
  EXPECT_EQ(ids(R"(, "extra_ids": 5)"), five);
  posix_files().remove(folder / "tokenizer_config.json");
  EXPECT_EQ(make_tokenizer(posix_files(), folder.path())->encode(text), all);
  folder.put("config.json", R"({"model_type": "bart", "tokenizer_class": "T5Tokenizer"})");
  EXPECT_EQ(make_tokenizer(posix_files(), folder.path())->encode(text), all);
  posix_files().remove(folder / "config.json");
  folder.put("tokenizer_config.json", "{}");
  // A tokenizer.json beside it has the template and all tokens.
  folder.put("tokenizer.json", fixture("pairs.json"));
  EXPECT_EQ(find_tokenizer(posix_files(), folder.path()), folder / "tokenizer.json");
}

// Texts of tokenizers 0.23.
TEST(TokenizerFolder, an_added_token_decodes_as_it_is_looked_for) {
  const ScratchFolder folder;
  folder.put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nFOO\n");
  folder.put("tokenizer_config.json",
             R"({"tokenizer_class": "BertTokenizer", "added_tokens_decoder": {
      "6": {"content": "FOO", "normalized": true}, "7": {"content": "FooBar", "normalized": true},
      "8": {"content": "Raw \u00c9", "normalized": false}}})");
  EXPECT_EQ(make_tokenizer(posix_files(), folder.path())->decode(Ids{5, 7, 6, 8}),
            "a foobar foo Raw \u00c9");
  const ScratchFolder other;
  other.put("tokenizer.json", R"({"normalizer": {"type": "Lowercase"},
      "pre_tokenizer": {"type": "Whitespace"},
      "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": false},
      "model": {"type": "WordLevel", "unk_token": "u", "vocab": {"u": 0, "FOO": 1}},
      "added_tokens": [{"id": 1, "content": "FOO", "normalized": true},
                       {"id": 2, "content": "Bar", "normalized": true}]})");
  EXPECT_EQ(make_tokenizer(posix_files(), other.path())->decode(Ids{1, 2}), "foo bar");
}

TEST(CutSide, is_the_configs_or_else_the_tokenizers) {
  const ScratchFolder folder;
  const auto side = [&](const char* config, const char* direction) {
    Json json = parse_json(fixture("pairs.json"), "pairs.json");
    json["truncation"] = {{"direction", direction}, {"max_length", 6}};
    const std::string path = folder.put("tokenizer.json", json.dump());
    folder.put("tokenizer_config.json", config);
    EXPECT_EQ(cut_side(posix_files(), path), cut_side(posix_files(), folder.path()));
    return cut_side(posix_files(), path);
  };
  EXPECT_EQ(side("{}", "Right"), CutSide::end);
  EXPECT_EQ(side("{}", "Left"), CutSide::start);
  EXPECT_EQ(side(R"({"truncation_side": "right"})", "Left"), CutSide::end);
  EXPECT_EQ(side(R"({"truncation_side": "left"})", "Right"), CutSide::start);
  EXPECT_EQ(cut_side(posix_files(), "bytes"), CutSide::end);
  EXPECT_EQ(error_of([&] { side(R"({"truncation_side": "up"})", "Left"); }, folder.path()),
            "[tokenizer] DIR/tokenizer_config.json: truncation_side: expected right or left, got "
            "'up'");
}

TEST(MarianFolder, finds_the_special_tokens_that_its_files_name) {
  const ScratchFolder folder;
  folder.put("source.spm", fixture("sp_unigram.model"));
  folder.put("target.spm", fixture("sp_bpe.model"));
  const std::string path =
      folder.put("vocab.json", R"({"</s>": 0, "<unk>": 1, "<pad>": 2, ">>fra<<": 3})");
  const auto encoded = [&](const char* config) {
    folder.put("tokenizer_config.json", config);
    return make_tokenizer(posix_files(), path)->encode("a >>fra<< b");
  };
  EXPECT_EQ(std::ranges::count(encoded("{}"), 3), 0);
  const char* named = R"({"additional_special_tokens": [">>fra<<", ">>xxx<<"]})";
  EXPECT_EQ(std::ranges::count(encoded(named), 3), 1);
  const auto tokenizer = make_tokenizer(posix_files(), path);
  EXPECT_EQ(tokenizer->special_ids(), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(tokenizer->decode(Ids{3, 2}), "");
  EXPECT_EQ(error_of([&] { encoded(R"({"unk_token": "</s>"})"); }, folder.path()),
            "[tokenizer] DIR/tokenizer_config.json: expected the special token '<unk>', got "
            "'</s>'");
}

TEST(TokenizerFolder, faults_are_named) {
  const ScratchFolder folder;
  put_vocabulary(folder, "vocab.json");
  const auto error = [&](const std::string& name, const std::string& text) {
    const std::string path = folder.put(name, text);
    const std::string line =
        error_of([&] { make_tokenizer(posix_files(), folder.path()); }, folder.path());
    std::filesystem::remove(path);
    return line;
  };
  EXPECT_EQ(error("added_tokens.json", R"({"<a>": "x"})"),
            "[tokenizer] DIR/added_tokens.json: token '<a>': expected an id");
  EXPECT_EQ(error("added_tokens.json", R"({"<a>": -1})"),
            "[tokenizer] DIR/added_tokens.json: added token '<a>': expected an id from 0 to "
            "2097151, got -1");
  EXPECT_EQ(error("added_tokens.json", "[1]"),
            "[json] DIR/added_tokens.json: expected an object, got array");
  EXPECT_EQ(error("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})"),
            "[tokenizer] DIR/tokenizer_config.json: added_tokens_decoder: expected ids with "
            "tokens, got 'x'");
  EXPECT_EQ(error("special_tokens_map.json", R"({"eos_token": {"lstrip": true}})"),
            "[json] DIR/special_tokens_map.json: expected key 'content', got none");
}

TEST(Padding, of_a_tokenizer_json_is_one_of_its_ids) {
  const ScratchFolder folder;
  const auto padding = [&](int64_t id) {
    Json json = Json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}})");
    json["model"]["merges"] = Json::array();
    json["padding"]["pad_id"] = id;
    const std::string path = folder.put("tokenizer.json", json.dump());
    return padding_id(posix_files(), path, *make_tokenizer(posix_files(), path));
  };
  EXPECT_EQ(padding(1), 1);
  for (const int64_t id : {int64_t{-1}, int64_t{2}, int64_t{1} << 32}) {
    EXPECT_EQ(error_of([&] { padding(id); }, folder.path()),
              fmt::format("[tokenizer] DIR/tokenizer.json: padding: expected a pad_id from 0 to 1, "
                          "got {}",
                          id));
  }
}

TEST(GitLfsPointer, is_named) {
  const ScratchFolder folder;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12\n";
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    const std::string path = folder.put(name, pointer);
    EXPECT_EQ(error_of([&] { make_tokenizer(posix_files(), path); }, folder.path()),
              fmt::format("[tokenizer] DIR/{}: expected a tokenizer, got a git-lfs pointer (`git "
                          "lfs pull` fetches the file)",
                          name));
  }
  EXPECT_EQ(error_of([&] { parse_json(pointer, "config.json"); }),
            "[json] config.json: expected JSON, got a git-lfs pointer (`git lfs pull` fetches the "
            "file)");
}

}  // namespace
}  // namespace octet::text_folders_test
