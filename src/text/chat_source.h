// The chat templates of a model and the special tokens that they are told. Training, generation,
// export and `octet chat render` all find them here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace octet {

struct ChatQuery {
  // chatml, plain, a file or folder as find_chat_template takes it, or auto: that of `model` where
  // it has one, else chatml for a tokenizer that has its tokens, else plain.
  std::string name = "auto";
  std::string model = {};      // a folder; "": none
  std::string tokenizer = {};  // as make_tokenizer takes it; "": not a file
};

struct ChatTemplates {
  std::string name;                      // what was chosen
  ChatTemplateSource plain, with_tools;  // for conversations without and with tools
};

// Whatever the template's source, special tokens are the tokenizer's: those of its folder's
// tokenizer_config.json and special_tokens_map.json, else those beside the template. bos_token and
// eos_token that these do not mention are the tokenizer's own, unless the template is a folder's
// whose files speak of such tokens: there transformers has none. Throws Error{bad_data} for a
// template that is there and cannot be read.
ChatTemplates find_chat_templates(const Files& files, const Tokenizer& tokenizer,
                                  const ChatQuery& query);

// The file names that a folder's tokenizer has. "" where `path` has one of them, or is of a kind
// that has no name of its own in a folder of weights; else the one that it would have.
std::string tokenizer_name_in_folders(const std::string& path);
std::span<const std::string_view> tokenizer_file_names();  // those names

// The folder whose other files belong to this tokenizer; nothing for one that has another name
// there, and for "bytes".
std::optional<std::string> folder_of_tokenizer(const Files& files, const std::string& path);

// Both templates and their tokens in one JSON object, which find_chat_template reads too.
std::string stored_text(const ChatTemplates& templates);
ChatTemplates read_stored_templates(const Files& files, const std::string& path);

}  // namespace octet
