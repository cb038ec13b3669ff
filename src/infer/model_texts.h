// How a model's texts begin and end: its chat template, the special tokens that it is told, and the
// tokens that end an answer. Generation, evaluation and export ask here; a run answers with what it
// was trained with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "config/run_config.h"
#include "infer/model_source.h"
#include "text/chat_source.h"
#include "text/tokenizer.h"

namespace octet {

// Query of a run's chat template; a run that is trained on text speaks as its model did.
ChatQuery chat_query(const RunConfig& config);

// `name` is auto, or what a user wants in its place (ChatQuery::name). Throws Error{bad_data} where
// the template cannot be read, or is in a folder that is gone.
ChatTemplates chat_templates(const Files& files, const ModelSource& source,
                             const Tokenizer& tokenizer, const std::string& name = "auto");
// Without a tokenizer at hand: it is read where it is asked for.
ChatTemplates chat_templates(const Files& files, const ModelSource& source);

// True if a run has a template of its own: conversations were its data.
bool is_trained_on_chat(const ModelSource& source);

// eos_token_id of generation_config.json (an id or a list), where it says none that of config.json;
// and the tokenizer's end of a text. As in transformers, what begins a text does not end one.
// Without repetition. Throws Error{bad_data} where a file is no JSON object or an id is none.
std::vector<int32_t> stop_tokens(const Files& files, const ModelSource& source,
                                 const Tokenizer& tokenizer);

// The same of the model that a run trains, before it has a folder.
std::vector<int32_t> stop_tokens(const Files& files, const RunConfig& config,
                                 const Tokenizer& tokenizer);

// Writes into a run's folder what it does not want to ask its model's folder for later: the
// templates and tokens (chat.json) and generation_config.json.
bool has_model_texts(const Files& files, const std::string& run);
void keep_model_texts(Files& files, const RunConfig& config, const Log& log);

}  // namespace octet
