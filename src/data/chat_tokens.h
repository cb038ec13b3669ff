// A conversation as tokens, and which of them are trained: what the assistant said, and the token
// that ends its turn.
//
// The template's text becomes tokens as a whole. Where the assistant begins and ends to speak must
// be an end of a token: the tokens of the text up to there are the first ones of the whole. Where
// they are not, the parts become tokens apart, as they do when an answer is generated; `is_apart`
// says so. Behind an answer the token that ends the turn is trained even where the template leaves
// it outside of its spans; white space behind that token is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "data/chat_answers.h"
#include "data/chat_records.h"
#include "text/chat_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/word_cache.h"

namespace octet {

// Special tokens of a model's folder that a tokenizer does not have as tokens of their own.
struct SplitToken {
  std::string text;
  std::string where;  // the file that says that it is a token
  size_t n_tokens = 0;
};

// Split tokens of tokenizer_config.json, special_tokens_map.json and added_tokens.json of these
// folders; paths that are none are left out. None for the byte tokenizer. Throws Error{bad_data}
// for a file that is no JSON.
std::vector<SplitToken> split_tokens(const Files& files, const std::vector<std::string>& folders,
                                     const Tokenizer& tokenizer);

struct MaskedTokens {
  std::vector<int32_t> ids = {};
  std::vector<uint8_t> is_trained = {};
  bool is_apart = false;
};

// The end put behind a text that is trained whole, or whose last answer the template ends with
// nothing, where it does not end so itself.
enum class TextEnd { none, eos };

struct EncodedRecord {
  std::vector<MaskedTokens> samples = {};  // at least one
  bool are_apart = false;                  // a sample for each answer
  std::string prompt_end = {};             // as in AnswerTexts
  std::vector<LeftOutAnswer> left_out = {};
  std::vector<std::string> unread = {};  // keys that the template makes nothing of
};

// The clock that a template may ask for stands still, so that tokens do not change with the day.
// Immutable; may be used from several threads.
class ChatEncoder {
 public:
  // Types of a message's content that a template takes.
  enum class Contents : uint8_t { texts, both, parts_alone };

  ChatEncoder(const Tokenizer& tokenizer, const ChatTemplates& templates,
              TextEnd text_end = TextEnd::none);
  // With those of find_chat_templates().
  ChatEncoder(const Files& files, const Tokenizer& tokenizer, const std::string& name,
              const std::string& model, TextEnd text_end = TextEnd::none)
      : ChatEncoder(tokenizer, find_chat_templates(files, tokenizer, {name, model, ""}), text_end) {
  }

  // Throws Error{bad_data} where the template refuses, where what the assistant said cannot be
  // told, and where nothing, everything, or no end of a turn would be trained; DataRefusal where a
  // text holds a special token of the model that the tokenizer would split.
  EncodedRecord encode(const ChatRecord& record, WordCache& words) const;

  // Texts that hold one of these are refused.
  void refuse_split_tokens(std::vector<SplitToken> tokens) { split_tokens_ = std::move(tokens); }

  const std::string& template_name() const { return name_; }
  // One id as people read it: text, or the name of a special token.
  std::string text_of(int32_t id) const { return tokenizer_.decode(std::span(&id, 1)); }

 private:
  MaskedTokens encode_text(const std::string& text, WordCache& words) const;
  MaskedTokens encode_answers(const AnswerText& answers, const OrderedJson& messages,
                              WordCache& words) const;
  void check_special_tokens(const std::string& text) const;
  MaskedTokens encode_parts(const std::string& text, const ByteSpans& spans,
                            WordCache& words) const;
  void end_turns(MaskedTokens& tokens) const;
  bool is_special(int32_t id) const;

  const Tokenizer& tokenizer_;
  TextEnd text_end_;
  std::string name_;
  ChatTemplate plain_, with_tools_;
  std::tm clock_ = {};
  Contents plain_contents_ = Contents::texts, tools_contents_ = Contents::texts;
  std::vector<SplitToken> split_tokens_;
  std::vector<int32_t> turn_begins_;  // the tokens of the generation prompt
};

// Contents for a template, by what it makes of a probe: whether it takes a list of parts, which it
// joins in its own way, and whether it takes nothing else.
ChatEncoder::Contents contents_of(const ChatTemplate& chat, const std::tm& clock);

}  // namespace octet
