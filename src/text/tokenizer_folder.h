// Token settings of the JSON files beside a vocabulary: tokenizer_config.json, and of older folders
// added_tokens.json and special_tokens_map.json. Source: transformers' from_pretrained.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "text/word_tokenizer.h"

namespace octet {

// Keys of tokenizer_config.json and special_tokens_map.json.
inline constexpr const char* kSpecialTokenNames[] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

struct TokenizerFolder {
  bool has_files = false;
  bool has_config = false;             // tokenizer_config.json, or T5's class by config.json
  bool config_lists_special = false;   // additional_special_tokens, by either name
  std::string tokenizer_class = {};    // "" where it is not said
  std::vector<AddedToken> added = {};  // by id
  std::vector<AddedToken> named = {};  // special tokens without an id of their own
  std::optional<std::string> bos = {}, eos = {}, pad = {}, unknown = {};
  std::optional<bool> adds_bos = {}, adds_eos = {}, is_legacy = {}, adds_prefix_space = {};
  std::optional<std::vector<std::string>> input_names = {};  // model_input_names
  std::string truncation_side = {};                          // "" where it is not said
  std::optional<int64_t> extra_ids = {};  // of T5's classes: how many of <extra_id_0>, ...
  std::optional<bool> makes_lower_case = {}, spaces_ideographs = {}, strips_accents = {};  // BERT's
};

// "<extra_id_3>": in the place of a span that is left out.
std::string sentinel_text(int64_t i);
// How many a folder's class of transformers puts behind the pieces of a SentencePiece model; 0 of
// other classes than T5's.
int64_t n_sentinels(const TokenizerFolder& folder);

// One that a file describes by its text and flags; `is_special`: where it does not say.
AddedToken read_added_token(const JsonObject& entry, bool is_special);

// Throws Error{bad_data}, "[tokenizer] FILE: ..." or "[json] FILE: ...".
TokenizerFolder read_tokenizer_folder(const Files& files, const std::string& folder);

// What such files say and a tokenizer.json beside them does not.
struct BesideJson {
  // Named tokens that it has nowhere: transformers adds them behind all others, and reads them
  // whole.
  std::vector<std::string> tokens = {};
  // Llama's classes of transformers 5 make the words' steps anew by `legacy`: true puts a space
  // before each part of a text, false before the first alone. True where a tokenizer.json, which is
  // read as it is, says the other.
  bool contradicts_legacy = false;
};
BesideJson read_beside_json(const Files& files, const std::string& folder);

// Whether transformers gives a model the token types of a text: as model_input_names says, or
// without it the class. True where neither is said, as BERT's classes do.
bool gives_token_types(const TokenizerFolder& folder);
// The same template with all types 0.
TextTemplate without_types(TextTemplate around);

// Adds the tokens to a vocabulary's own, which `id_of` looks up as the file spells them (-1: none),
// and sets bos, eos, prefix and suffix. Special tokens without an id that the vocabulary lacks are
// left out: no text and no template of the model can mean them.
void add_folder_tokens(TokenizerParts& parts, const TokenizerFolder& folder,
                       const std::function<int32_t(std::string_view)>& id_of);

}  // namespace octet
