#include "infer/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "infer/batch_inputs.h"
#include "infer/beam_search.h"
#include "infer/evaluate.h"
#include "infer/model_texts.h"
#include "infer/prompt_file.h"
#include "infer/translate.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_generate_test {
namespace {

int32_t pick(const std::vector<float>& logits, const Sampling& sampling,
             const std::vector<int32_t>& text = {}) {
  return next_token(logits, text, 0, sampling);
}

// How often each token comes, of 4,000 seeds.
std::vector<int> counts(const std::vector<float>& logits, Sampling sampling) {
  std::vector<int> result(logits.size());
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    sampling.seed = seed;
    ++result[static_cast<size_t>(pick(logits, sampling))];
  }
  return result;
}

TEST(NextToken, is_the_most_probable_one_without_a_temperature) {
  EXPECT_EQ(pick({0.5f, 2, -1, 2}, {}), 1);
  EXPECT_EQ(pick({-3, -2, -1}, {}), 2);
}

// As transformers has it, which bans no end of a text.
TEST(TokenRules, ban_tokens_but_ends) {
  const std::vector<float> logits = {1, 2, 3, 4};
  const auto kept = logits_by({.ends = {3}, .banned = {1, 3, 9}}, logits, 0);
  EXPECT_EQ(kept, (std::vector<float>{1, -INFINITY, 3, 4}));
}

TEST(NextToken, repetition_makes_known_tokens_less_probable) {
  EXPECT_EQ(pick({1.5f, 2, 0}, {.repetition_penalty = 1.5}, {1}), 0);     // 2 / 1.5 < 1.5
  EXPECT_EQ(pick({-2, -1.5f, -9}, {.repetition_penalty = 1.5}, {1}), 0);  // -1.5 * 1.5 < -2
  EXPECT_EQ(pick({1.5f, 2, 0}, {.repetition_penalty = 1.2}, {1, 1, 1}), 1);
}

TEST(NextToken, comes_as_often_as_its_probability_says) {
  const float a = std::log(0.6f), b = std::log(0.3f), c = std::log(0.1f);
  const std::vector<int> n = counts({a, b, c}, {.temperature = 1});
  EXPECT_NEAR(n[0], 2400, 100);
  EXPECT_NEAR(n[1], 1200, 100);
  EXPECT_NEAR(n[2], 400, 60);
  // At temperature 1/2 probabilities are squared: 36 : 9 : 1.
  EXPECT_NEAR(counts({a, b, c}, {.temperature = 0.5})[0], 4000 * 36 / 46, 100);
}

TEST(NextToken, is_one_of_those_that_are_left) {
  const float a = std::log(0.5f), b = std::log(0.3f), c = std::log(0.15f), d = std::log(0.05f);
  const std::vector<float> logits = {d, b, a, c};
  const auto kept = [&](Sampling sampling) {
    sampling.temperature = 1;
    std::vector<int> ids;
    const std::vector<int> n = counts(logits, sampling);
    for (size_t i = 0; i < n.size(); ++i) {
      if (n[i] > 0) ids.push_back(static_cast<int>(i));
    }
    return ids;
  };
  using Ids = std::vector<int>;
  EXPECT_EQ(kept({}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept({.top_k = 2}), (Ids{1, 2}));
  EXPECT_EQ(kept({.top_p = 0.45}), (Ids{2}));
  EXPECT_EQ(kept({.top_p = 0.81}), (Ids{1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 0.25}), (Ids{1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 1}), (Ids{2}));
  // The first one alone has 5/8 of the first two.
  EXPECT_EQ(kept({.top_k = 2, .top_p = 0.6}), (Ids{2}));
}

TEST(NextToken, is_refused_where_a_logit_is_not_a_number) {
  EXPECT_EQ(test::error_of([] {
              pick({0, NAN}, {}, {1, 2});
            }),
            "[generate] expected finite logits, got NaN for token 2");
}

TEST(WrittenText, holds_back_what_may_become_a_stop_text) {
  const auto tokenizer = byte_tokenizer();
  const std::vector<int32_t> prompt = {'a', 'b'};
  const std::vector<std::string> stop = {"END", "###"};
  WrittenText text(*tokenizer, prompt, stop);
  size_t certain[] = {1, 1, 1, 4, 4, 4};
  for (size_t i = 0; const char c : std::string("xENxEN")) {
    EXPECT_FALSE(text.add(c));
    EXPECT_EQ(text.n_certain(), certain[i++]);
  }
  EXPECT_TRUE(text.add('D'));
  EXPECT_EQ(text.text(), "xENx");
  EXPECT_EQ(text.n_certain(), 4u);
}

TEST(WrittenText, shows_whole_characters) {
  const auto tokenizer = byte_tokenizer();
  WrittenText text(*tokenizer, {}, {});
  text.add(0xe2);
  text.add(0x82);
  EXPECT_EQ(text.n_certain(), 0u);
  text.add(0xac);
  EXPECT_EQ(text.n_certain(), 3u);
  text.add(0xc3);
  text.finish();
  EXPECT_EQ(text.n_certain(), 4u);
}

TEST(WrittenText, leaves_out_tokens_that_the_tokenizer_lacks) {
  const auto tokenizer = byte_tokenizer();
  WrittenText text(*tokenizer, {}, {});
  for (const int32_t token : {97, 256, 300, 98}) EXPECT_FALSE(text.add(token));
  EXPECT_EQ(text.text(), "ab");
}

class PromptFile : public testing::Test {
 protected:
  std::vector<StoredPrompt> read(const std::string& name, const std::string& text) {
    return read_prompts(posix_files(), scratch_.put(name, text));
  }
  const test::ScratchFolder scratch_;
};

TEST_F(PromptFile, has_a_prompt_a_line_or_json) {
  const auto texts = [&](const std::string& name, const std::string& text) {
    std::vector<std::string> result;
    for (const StoredPrompt& prompt : read(name, text)) result.push_back(prompt.text);
    return result;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts("p.txt", "one\r\n\n two \n[3"), (Texts{"one", " two ", "[3"}));
  EXPECT_EQ(texts("p.jsonl", "\"a\\nb\"\n{\"prompt\": \"c\", \"id\": 1}\n"), (Texts{"a\nb", "c"}));
  EXPECT_EQ(texts("q.txt", "[\"a\", \"b\"]"), (Texts{"a", "b"}));
  EXPECT_EQ(texts("p.txt", "\xEF\xBB\xBFone\ntwo"), (Texts{"one", "two"}));
  const auto with_seed = read("p.jsonl", R"({"prompt": "x", "seed": 9})");
  EXPECT_EQ(with_seed.front().seed, 9u);
  EXPECT_TRUE(read("p.jsonl", R"({"messages": []})").front().context["messages"].is_array());
}

TEST_F(PromptFile, keeps_other_keys_and_refuses_settings) {
  EXPECT_EQ(read("p.jsonl", R"({"id": 7, "prompt": "x", "tools": [], "note": null})")
                .front()
                .others.dump(),
            R"({"id":7,"tools":[]})");
  EXPECT_EQ(read("p.jsonl", R"({"messages": [], "seed": 1, "id": 7})").front().others.dump(),
            R"({"id":7})");
  const auto fault = [&](const std::string& record) {
    const std::string text = test::error_of([&] { read("p.jsonl", record); });
    return text.substr(text.find(":1: ") + 4);
  };
  EXPECT_EQ(fault(R"({"prompt": "x", "max_tokens": 1})"),
            "expected settings as flags, which hold for all prompts, got 'max_tokens'");
  EXPECT_EQ(fault(R"({"messages": [], "stop": ["a"]})"),
            "expected settings as flags, which hold for all prompts, got 'stop'");
  EXPECT_EQ(fault(R"({"prompt": "x", "images": ["a.png"]})"),
            "expected prompts of text, got 'images'");
  EXPECT_EQ(fault(R"({"prompt": "x", "tools": [1]})"),
            "expected 'tools' beside messages, got it beside a prompt");
  EXPECT_EQ(fault(R"({"prompt": "x", "messages": []})"),
            "expected the key prompt or messages, got both");
}

// A broken object is no text.
TEST_F(PromptFile, of_a_json_that_is_broken_is_an_error) {
  EXPECT_THROW(read("p.txt", "{\"prompt\": \"a\n{\"prompt\": \"b\"}\n"), Error);
  EXPECT_THROW(read("p.txt", "[{\"prompt\": \"a\"}, {\"prompt\":\n"), Error);
  EXPECT_EQ(read("p.txt", "[\n\"a\",\n\"b\"]\n").size(), 2u);
  EXPECT_EQ(read("p.txt", "{{a}} is text\n").front().text, "{{a}} is text");
}

TEST_F(PromptFile, says_which_line_is_wrong) {
  const std::string where = "[prompts] " + (scratch_ / "bad.jsonl");
  EXPECT_EQ(test::error_of([&] { read("bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": 1}\n"); }),
            where + ":2: expected the key prompt with a text, or messages, got neither");
  EXPECT_EQ(test::error_of([&] { read("bad.jsonl", "{\"prompt\": \"a\", \"seed\": -1}"); }),
            where + ":1: expected seed: an integer from 0 to 4294967295, got -1");
  EXPECT_EQ(test::error_of([&] { read("bad.jsonl", "\n"); }),
            where + ": expected at least one prompt, got none");
}

class StopTokens : public testing::Test {
 protected:
  void write(const char* name, const std::string& text) { scratch_.put(name, text); }
  std::vector<int32_t> ids() {
    ModelSource source;
    source.folder = folder_;
    return stop_tokens(posix_files(), source, *byte_tokenizer());
  }
  const test::ScratchFolder scratch_;
  const std::string folder_ = scratch_.path();
};

TEST_F(StopTokens, are_those_of_generation_config_before_those_of_config) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ids(), Ids{});
  write("config.json", R"({"eos_token_id": 5})");
  EXPECT_EQ(ids(), Ids{5});
  write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(ids(), Ids{5});
  write("generation_config.json", R"({"eos_token_id": [9, 7, 9]})");
  EXPECT_EQ(ids(), (Ids{7, 9}));
  write("generation_config.json", R"({"eos_token_id": ["x"]})");
  EXPECT_EQ(test::error_of([&] { ids(); }),
            "[model] " + folder_ +
                "/generation_config.json: eos_token_id: expected a token's id or a list of such, "
                "got \"x\"");
}

// Keys that transformers' generate() would follow, and the program's flags decide.
TEST_F(StopTokens, other_keys_of_generation_config_are_told_where_they_would_change_a_text) {
  const auto told = [&](const std::string& text) {
    write("generation_config.json", text);
    std::string line;
    ModelSource source;
    source.folder = folder_;
    tell_unused_decoding(posix_files(), source,
                         Log([&](LogLevel, const std::string& one) { line = one; }));
    const size_t at = line.find("not used: ");
    return at == line.npos ? line : line.substr(at + 10);
  };
  const std::string end = "; the command says how tokens are chosen";
  EXPECT_EQ(told(R"({"eos_token_id": 5, "do_sample": false, "temperature": 0.6, "top_k": 50,
                     "repetition_penalty": 1, "max_length": null, "use_cache": false})"),
            "");
  EXPECT_EQ(told(R"({"do_sample": true, "temperature": 0.6, "top_k": 0, "top_p": 0.9})"),
            "'do_sample' true, 'temperature' 0.6, 'top_p' 0.9" + end);
  EXPECT_EQ(told(R"({"temperature": "hot", "foo_penalty": 3, "_from_model_config": true})"),
            "'temperature' \"hot\", 'foo_penalty' 3" + end);
  const std::pair<const char*, const char*> cases[] = {
      {"repetition_penalty", "1.1"}, {"no_repeat_ngram_size", "3"},
      {"min_length", "5"},           {"num_beams", "4"},
      {"max_new_tokens", "4"},       {"guidance_scale", "3.0"},
      {"forced_eos_token_id", "7"},  {"min_new_tokens", "5"},
      {"token_healing", "true"},     {"encoder_no_repeat_ngram_size", "2"}};
  for (const auto& [key, value] : cases)
    EXPECT_EQ(told(fmt::format("{{\"{}\": {}}}", key, value)),
              fmt::format("'{}' {}{}", key, value, end));
  for (const char* key : {"suppress_tokens", "begin_suppress_tokens", "bad_words_ids",
                          "sequence_bias", "stop_strings", "exponential_decay_length_penalty"})
    EXPECT_EQ(told(fmt::format("{{\"{}\": [3]}}", key)), fmt::format("'{}'{}", key, end));
}

TEST_F(StopTokens, a_translation_begins_and_ends_where_its_folder_says) {
  ModelSource source;
  source.folder = folder_;
  source.spec.kind = ModelKind::marian;
  source.spec.vocab = 256;
  source.spec.start_token = 7;
  source.spec.max_positions = 64;
  const auto defaults = [&](const std::string& text) {
    write("generation_config.json", text);
    return decoding_defaults(posix_files(), source);
  };
  const auto n_tokens = [&](const std::string& text, std::optional<int64_t> asked = {}) {
    return max_new_tokens(asked, defaults(text), source.spec);
  };
  EXPECT_EQ(defaults(R"({"bos_token_id": 5})").start, 5);
  EXPECT_EQ(defaults(R"({"bos_token_id": 5, "decoder_start_token_id": 6})").start, 6);
  EXPECT_EQ(defaults("{}").start, 7);
  EXPECT_EQ(n_tokens(R"({"max_length": 6})"), 5);
  EXPECT_EQ(n_tokens(R"({"max_length": 6, "max_new_tokens": 4})"), 4);
  EXPECT_EQ(n_tokens(R"({"max_length": 6})", 9), 9);
  EXPECT_EQ(n_tokens("{}"), 64);
  EXPECT_EQ(test::error_of([&] { n_tokens("{}", 65); }),
            "[generate] expected 1 to 64 new tokens at most, got 65");
}

TEST_F(StopTokens, a_translation_has_no_spaces_before_punctuation_where_its_folder_says_so) {
  const std::string text = "it 's a , b . I 'm , don n't ' x ' ?";
  Translation translation;
  translation.tokens.assign(text.begin(), text.end());
  const auto written = [&] {
    ModelSource source;
    source.folder = folder_;
    source.tokenizer = folder_;
    source.spec.vocab = 256;
    TranslateOptions options;
    options.cleans_spaces = decoding_defaults(posix_files(), source).cleans_spaces;
    return text_of(*byte_tokenizer(), translation, options);
  };
  const std::string cleaned = "it's a, b. I'm, donn't'x '?";
  EXPECT_EQ(written(), text);
  write("tokenizer_config.json", R"({"clean_up_tokenization_spaces": true})");
  EXPECT_EQ(written(), cleaned);
  write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  EXPECT_EQ(written(), cleaned);
  write("tokenizer.json", R"({"model": {"type": "BPE"}})");
  EXPECT_EQ(written(), text);
}

TEST(TranslatedText, has_no_special_tokens) {
  const auto tokenizer =
      make_tokenizer(posix_files(), OCTET_SOURCE_DIR "/tests/fixtures/tokenizer_models/t5.json");
  Translation translation;
  translation.tokens = tokenizer->encode("the<pad> train<extra_id_0></s>");
  EXPECT_NE(tokenizer->decode(translation.tokens).find("<pad>"), std::string::npos);
  EXPECT_EQ(text_of(*tokenizer, translation, {}), "the train");
}

// As in transformers: a text goes on behind what begins one.
TEST_F(StopTokens, are_ends_and_no_beginnings) {
  ModelSource source;
  source.folder = folder_;
  const auto tokenizer =
      make_tokenizer(posix_files(), OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/sp_bpe.model");
  ASSERT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(stop_tokens(posix_files(), source, *tokenizer), std::vector<int32_t>{2});
  write("generation_config.json", R"({"eos_token_id": 1})");
  EXPECT_EQ(stop_tokens(posix_files(), source, *tokenizer), (std::vector<int32_t>{1, 2}));
}

TEST(PaddedRow, has_no_labels) {
  const std::vector<int32_t> tokens = {3, 4, 5};
  const Batch batch = padded_row(tokens, 5);
  EXPECT_EQ(batch.ints("tokens"), (std::vector<int32_t>{3, 4, 5, 0, 0}));
  EXPECT_EQ(batch.n_labels(), 0);
}

TEST(Documents, are_cut_and_counted_as_asked) {
  const auto tokenizer = byte_tokenizer();
  TextBuilder builder(*tokenizer);
  for (const char* text : {"abc", "defgh", "i"}) builder.add_document(text);
  const TokenStream stream({builder.build()});
  using Documents = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(documents_of(stream, {}),
            (Documents{{'a', 'b', 'c'}, {'d', 'e', 'f', 'g', 'h'}, {'i'}}));
  EXPECT_EQ(documents_of(stream, {.max_documents = 2, .max_tokens = 2}),
            (Documents{{'a', 'b'}, {'d', 'e'}}));
}

}  // namespace
}  // namespace octet::infer_generate_test
