// Prompts of a file. JSON, where its first value is one that a prompt can be, an array of such, or
// its name ends in .jsonl: each a text, or an object with the key `prompt`, or `messages` (a
// conversation as chat templates take it, with `tools`, a list or its JSON as text, `documents` and
// `kwargs` where there are any), and where it has one `seed`; other keys are kept as they are, but
// settings of a generation, which hold for all prompts, are refused. Else plain text: a prompt a
// line, empty lines left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/ordered_json.h"

namespace octet {

struct StoredPrompt {
  std::string text;     // empty where there are messages
  OrderedJson context;  // what a chat template takes, or null
  std::optional<uint32_t> seed = {};
  int64_t line = 1;
  OrderedJson others = OrderedJson::object();  // keys of the object that nothing is made of
};

// Throws Error{bad_data}, "[prompts] FILE:LINE: ...".
std::vector<StoredPrompt> read_prompts(const Files& files, const std::string& path);

}  // namespace octet
