// The regular expressions that known tokenizers cut text into words with. Each is one list of
// alternatives; the first that matches counts. They match at every position of valid UTF-8, so that
// words are adjacent and cover the text.
// Sources: GPT-2's encoder, tiktoken's cl100k_base (Llama 3's as well), Qwen's tokenizer.
#pragma once

#include <string_view>

namespace octet {

inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kCl100kWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwenWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The expression that `text` names (gpt2, cl100k, llama3, qwen), else `text` itself.
constexpr std::string_view word_expression(std::string_view text) {
  if (text == "gpt2") return kGpt2Words;
  if (text == "cl100k" || text == "llama3") return kCl100kWords;
  return text == "qwen" ? kQwenWords : text;
}

}  // namespace octet
