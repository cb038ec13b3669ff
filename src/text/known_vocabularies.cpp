#include "text/tokenizer_files.h"
#include "text/word_pattern.h"

namespace octet {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

void add_special(TokenizerParts& parts, int64_t id, std::string_view content) {
  if (const int32_t known = parts.surfaces.find(content); known >= 0) id = known;
  if (!parts.surfaces.has(id)) parts.surfaces.add(id, content);
  parts.added.push_back(
      {.id = static_cast<int32_t>(id), .content = std::string(content), .special = true});
}

// Source: the special tokens of Llama 3's tokenizer; the 256 ids behind the trained ones.
void add_llama3_specials(TokenizerParts& parts) {
  constexpr std::string_view kNames[] = {
      "<|begin_of_text|>",   "<|end_of_text|>",   {}, {},          {}, {},
      "<|start_header_id|>", "<|end_header_id|>", {}, "<|eot_id|>"};
  int n_reserved = 0;
  for (int64_t i = 0; i < 256; ++i) {
    const bool is_named = i < std::ssize(kNames) && !kNames[i].empty();
    add_special(parts, 128000 + i,
                is_named ? std::string(kNames[i])
                         : fmt::format("<|reserved_special_token_{}|>", n_reserved++));
  }
  parts.bos = 128000;
  parts.eos = 128001;
  parts.prefix = {128000};
}

void add_qwen_specials(TokenizerParts& parts) {
  add_special(parts, 151643, kEndOfText);
  add_special(parts, 151644, "<|im_start|>");
  add_special(parts, 151645, "<|im_end|>");
  parts.eos = 151643;
  parts.normalizer.add(std::make_shared<const UnicodeNormalizer>(NormalForm::nfc));
}

void add_cl100k_specials(TokenizerParts& parts) {
  add_special(parts, 100257, kEndOfText);
  add_special(parts, 100258, "<|fim_prefix|>");
  add_special(parts, 100259, "<|fim_middle|>");
  add_special(parts, 100260, "<|fim_suffix|>");
  add_special(parts, 100276, "<|endofprompt|>");
  parts.eos = 100257;
}

struct Family {
  int64_t n_tokens;  // trained, without special tokens
  std::string_view pattern;
  std::string_view first_special;                    // has the id n_tokens
  void (*add_specials)(TokenizerParts& parts) = {};  // null: the end of a text alone
};

constexpr Family kFamilies[] = {
    {50256, kGpt2Words, kEndOfText},
    {100256, kCl100kWords, {}, add_cl100k_specials},
    {128000, kCl100kWords, "<|begin_of_text|>", add_llama3_specials},
    {151643, kQwenWords, kEndOfText, add_qwen_specials},
};

// A vocabulary may list its special tokens as well.
const Family* family_of(int64_t n_tokens, const Vocabulary& vocabulary) {
  for (const Family& family : kFamilies) {
    const bool has_special = n_tokens > family.n_tokens && !family.first_special.empty() &&
                             vocabulary.find(family.first_special) == family.n_tokens;
    if (n_tokens == family.n_tokens || has_special) return &family;
  }
  return nullptr;
}

}  // namespace

void describe_by_size(TokenizerParts& parts, const TokenizerOptions& options,
                      UnknownVocabulary unknown) {
  const int64_t n_tokens = parts.vocabulary.size();
  const Family* family = family_of(n_tokens, parts.vocabulary);
  std::string_view pattern;
  if (!options.pattern.empty()) {
    pattern = word_expression(options.pattern);
  } else if (family != nullptr) {
    pattern = family->pattern;
  } else if (unknown == UnknownVocabulary::is_gpt2) {
    pattern = kGpt2Words;
  } else {
    bad_tokenizer(parts.name,
                  "expected --pattern, or a vocabulary of 50256, 100256, 128000 or 151643 tokens "
                  "whose pattern is known, got {}",
                  n_tokens);
  }
  parts.words.add(SplitMatches{read_pattern(parts.name, pattern), {}});
  if (family != nullptr && family->add_specials != nullptr) {
    family->add_specials(parts);
  } else if (family != nullptr || parts.surfaces.find(kEndOfText) >= 0) {
    add_special(parts, family != nullptr ? family->n_tokens : n_tokens, kEndOfText);
    parts.eos = parts.added.back().id;
  }
  parts.silence_ends();
}

}  // namespace octet
