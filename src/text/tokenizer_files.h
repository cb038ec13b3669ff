// One reader for each kind of tokenizer file. Each throws Error{bad_data}, "[tokenizer] PATH: ...".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "text/tokenizer.h"
#include "text/word_tokenizer.h"

namespace octet {

// A file, or what `files` has of it.
struct TokenizerFile {
  const Files& files;
  std::string path;
  std::string bytes;
};

template <typename... Args>
[[noreturn]] void bad_tokenizer(const std::string& path, fmt::format_string<Args...> format,
                                Args&&... args) {
  throw Error(ErrorCode::bad_data, "[tokenizer] {}: {}", path,
              fmt::format(format, std::forward<Args>(args)...));
}

// Vocabulary::add, whose errors are of the file.
void add_token(const std::string& path, Vocabulary& vocabulary, int64_t id, std::string_view token);
// Hugging Face's tokenizer.json: a BPE of bytes, or of characters with bytes to fall back on;
// WordPiece, Unigram or WordLevel. `config` instead of the tokenizer_config.json beside it.
std::unique_ptr<Tokenizer> read_tokenizer_json(const TokenizerFile& file, const Json& json,
                                               const Json* config = nullptr);
// A tokenizer.json with what the tokenizer_config.json beside it says otherwise, as far as the
// class that it names listens to it. Throws where the two contradict each other.
Json with_config(const TokenizerFile& file, Json json);

// vocab.json or encoder.json, with merges.txt or vocab.bpe beside it: GPT-2's files.
std::unique_ptr<Tokenizer> read_vocab_and_merges(const TokenizerFile& file, const Json& vocab,
                                                 const TokenizerOptions& options);

// tiktoken: a line a token, its bytes in base64 and its rank, which is its id.
bool is_rank_file(std::string_view bytes);
std::unique_ptr<Tokenizer> read_rank_file(const TokenizerFile& file,
                                          const TokenizerOptions& options);

// BERT's vocab.txt: WordPiece, a line a token, its number the id; "[UNK]" is one of them.
bool is_piece_list(std::string_view bytes);
std::unique_ptr<Tokenizer> read_piece_list(const TokenizerFile& file);

// SentencePiece: BPE and Unigram.
bool is_sentencepiece_model(std::string_view bytes);
std::unique_ptr<Tokenizer> read_sentencepiece_model(const TokenizerFile& file);

// vocab.json of a Marian model, with source.spm and target.spm beside it.
bool is_marian_vocabulary(const TokenizerFile& file);
std::unique_ptr<Tokenizer> read_marian_tokenizer(const TokenizerFile& file, const Json& vocab);

// The vocabulary of a GGUF file (text/gguf_vocabulary.h).
std::unique_ptr<Tokenizer> read_gguf_vocabulary(const TokenizerFile& file);

// llama2.c's tokenizer.bin: i32 longest token; then per token f32 score, i32 length, bytes. Ids 0,
// 1, 2 are <unk>, <s> (bos), </s> (eos); "<0xXX>" tokens stand for single bytes, ids 3 to 258.
// Encoding: a space before non-empty text, then the neighbours whose joined token has the highest
// score are merged. Source: sentencepiece's BPE as llama2.c runs it.
std::unique_ptr<Tokenizer> read_llama2c_tokenizer(const TokenizerFile& file);

// The words and special tokens that belong to a vocabulary of bytes without a description, by how
// many tokens it was trained to: those of GPT-2, cl100k, Llama 3 and Qwen. Sets the normalizer
// (Qwen has NFC), the pattern, the special tokens and the ids around a text. Throws where neither
// the vocabulary nor the options say what a word is.
enum class UnknownVocabulary { is_gpt2, is_an_error };
void describe_by_size(TokenizerParts& parts, const TokenizerOptions& options,
                      UnknownVocabulary unknown);

// The "type" of a step of tokenizer.json; `part` is for errors.
std::string json_type(const std::string& path, std::string_view part, const Json& json);
const Json& json_list(const std::string& path, const Json& json, const std::string& key);

// The parts of tokenizer.json that are lists of steps.
struct DecodeRules {
  bool bytes_of_tokens = false;      // "<0xXX>" is a byte
  bool characters_of_bytes = false;  // each character stands for one (text/byte_alphabet.h)
  std::string word_suffix = {};      // that becomes a space, but of the last token nothing
  Normalizer replaced = {};
  bool strips_space = false;
  std::string first_mark = {};               // of which the first token has none
  bool is_fused = false;                     // steps behind it read the whole text
  std::optional<PieceSpacing> spacing = {};  // and nothing else
};
Normalizer read_normalizer(const std::string& path, const Json& json);
// Sets symbols and words.
void read_pre_tokenizer(const std::string& path, const Json& json, TokenizerParts& parts);
// Sets what stands around texts: around, prefix and suffix.
void read_post_processor(const std::string& path, const Json& json, TokenizerParts& parts);
DecodeRules read_decoder(const std::string& path, const Json& json);
std::shared_ptr<const Regex> read_pattern(const std::string& path, std::string_view pattern);

}  // namespace octet
