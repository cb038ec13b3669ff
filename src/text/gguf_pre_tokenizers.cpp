#include "text/gguf_pre_tokenizers.h"

#include <algorithm>
#include <iterator>

#include "text/byte_level_json.h"
#include "text/word_pattern.h"

namespace octet {
namespace {

using Words = GgufPreTokenizer::Words;

// The first of rows with the same rule is the name that is written.
constexpr GgufPreTokenizer kPreTokenizers[] = {
    {"gpt-2", Words::gpt2},
    {"smollm", Words::single_digits},
    {"llama-bpe", Words::llama3, true, true},
    {"dbrx", Words::llama3},
    {"qwen2", Words::qwen2, false, false, true},
    {"stablelm2", Words::qwen2},
    {"default", Words::unnamed},
    {"mpt", Words::gpt2},
    {"olmo", Words::gpt2},
    {"phi-2", Words::gpt2},
    {"jais", Words::gpt2},
    {"gigachat", Words::gpt2},
    {"a.x-4.0", Words::gpt2},
    {"mellum", Words::gpt2},
    {"exaone4", Words::gpt2},
    {"trillion", Words::gpt2},
    {"granite-docling", Words::gpt2},
    {"starcoder", Words::single_digits},
    {"refact", Words::single_digits},
    {"command-r", Words::single_digits},
    {"codeshell", Words::single_digits},
    {"exaone", Words::single_digits},
    {"minerva-7b", Words::single_digits},
    {"llama3", Words::llama3, true, true},
    {"llama-v3", Words::llama3, true, true},
    {"falcon3", Words::llama3, true, true},
    {"falcon-h1", Words::llama3, true, true},
    {"pixtral", Words::llama3, true, true},
    {"midm-2.0", Words::llama3, true, true},
    {"lfm2", Words::llama3, true, true},
    {"glm4", Words::llama3, false, true},
    {"smaug-bpe", Words::llama3},
    {"deepseek-r1-qwen", Words::qwen2, false, false, true},
    {"kormo", Words::qwen2},
    {"megrez", Words::qwen2},
    {"bailingmoe", Words::qwen2},
    {"llada-moe", Words::qwen2},
    {"hunyuan", Words::qwen2},
    {"grok-2", Words::qwen2},
    {"solar-open", Words::qwen2}};

// One after the other, each within what the ones before it made.
constexpr std::string_view kUnnamedWords[] = {
    R"([\p{P}\$\+<=>\^~\|]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))", R"(\p{N}+)",
    "[0-9][0-9][0-9]"};

Json split_by(std::string_view regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

// The steps without what is a default or of offsets alone, so that equal rules are equal.
void add_steps(const Json& step, Json& steps) {
  if (step.is_null()) return;
  if (step.value("type", "") == "Sequence") {
    const char* key = step.contains("pretokenizers") ? "pretokenizers" : "normalizers";
    for (const Json& part : step.value(key, Json::array())) add_steps(part, steps);
    return;
  }
  Json bare = step;
  bare.erase("trim_offsets");
  for (const char* key : {"use_regex", "add_prefix_space"}) {
    if (bare.value("type", "") == "ByteLevel") bare[key] = bare.value(key, true);
  }
  steps.push_back(std::move(bare));
}

Json steps_of(const Json& step) {
  Json steps = Json::array();
  add_steps(step, steps);
  return steps;
}

}  // namespace

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  const auto* row = std::ranges::find(kPreTokenizers, name, &GgufPreTokenizer::name);
  return row == std::end(kPreTokenizers) ? nullptr : row;
}

Json pre_tokenizer_json(const GgufPreTokenizer& row) {
  Json steps = Json::array();
  const bool is_by_words = row.words == Words::gpt2 || row.words == Words::single_digits;
  if (row.words == Words::single_digits)
    steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (row.words == Words::llama3) steps.push_back(split_by(kCl100kWords));
  if (row.words == Words::qwen2) steps.push_back(split_by(kQwenWords));
  if (row.words == Words::unnamed) {
    for (const std::string_view regex : kUnnamedWords) steps.push_back(split_by(regex));
  }
  steps.push_back(byte_level_step(is_by_words));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

std::optional<std::string> gguf_pre_tokenizer_name(const Json& tokenizer) {
  const Json words = steps_of(tokenizer.value("pre_tokenizer", Json()));
  const Json normalizers = steps_of(tokenizer.value("normalizer", Json()));
  const Json nfc = Json::array({{{"type", "NFC"}}});
  const bool ignores_merges =
      tokenizer.value("model", Json::object()).value("ignore_merges", false);
  for (const GgufPreTokenizer& row : kPreTokenizers) {
    if (row.ignores_merges == ignores_merges && normalizers == (row.is_nfc ? nfc : Json::array()) &&
        words == steps_of(pre_tokenizer_json(row)))
      return std::string(row.name);
  }
  return std::nullopt;
}

}  // namespace octet
