// Prompts with pictures, of models that see them (ModelDef::sees_pictures).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "config/run_config.h"
#include "data/picture_rows.h"
#include "infer/chat_prompts.h"
#include "infer/generate.h"
#include "infer/text_model.h"
#include "text/tokenizer.h"

namespace octet {

// The text of a picture's token, which stands for a picture in conversations. Throws
// Error{invalid_argument} where the tokenizer splits it.
std::string image_mark(const Tokenizer& tokenizer, const ModelSpec& spec);

// How a model's pictures stand in its rows; without the labels.
PictureRowsOptions picture_options(const ModelSpec& spec, const ImagesConfig& images,
                                   const Tokenizer& tokenizer);

// Most tokens of a row that stand for its pictures, with those around them; 0 of a model that sees
// none.
int64_t picture_tokens(const ModelSpec& spec);

struct PicturePrompt {
  Prompt prompt;
  EntryPictures pictures;
};

// The text with a mark (image_mark()) for each of so many pictures: its own, or where it has none
// before it, a line each. Throws Error{invalid_argument} for another number of marks.
std::string with_marks(const std::string& text, const std::string& mark, size_t n_pictures);
// Messages whose contents are texts with so many marks, by a template that takes texts or lists of
// parts; and such a text as the question of a conversation.
std::string rendered_messages(const ChatPrompts& chat, OrderedJson messages,
                              const std::string& mark, size_t n_pictures);
std::string rendered_question(const ChatPrompts& chat, const std::string& text,
                              const std::string& mark, size_t n_pictures);

// Tokens with one for each of so many pictures, by picture_options(), and what is read of these
// files. Both throw Error{invalid_argument} for more pictures than the model has room for
// (ModelSpec::images), and Error{bad_data} for another number of such tokens, the second also for a
// file that is no picture.
PlacedTokens placed_prompt(const PictureRowsOptions& options, const std::vector<int32_t>& ids,
                           int64_t n_pictures);
PicturePrompt picture_prompt(const Files& files, const PictureRowsOptions& options,
                             const std::vector<int32_t>& ids,
                             const std::vector<std::string>& pictures);

// Throws Error{invalid_argument} "WHAT: ..." where tokens of a prompt that has no pictures hold one
// that stands for a picture.
void expect_no_pictures(const ModelSpec& spec, std::span<const int32_t> ids, std::string_view what);

// Inputs of a call over a cache from the entries' pictures, whose tokens are those of `places`: the
// arrays of picture_inputs() in the batch, where one stands in the place of a picture's.
void add_pictures(const ModelSpec& model, std::span<const EntryPictures> entries,
                  const PositionRule& places, Batch& batch);

}  // namespace octet
