// Which flags of `octet eval` what it is asked for reads; others are refused by name.
#pragma once

#include "cli/common.h"

namespace octet {

// reads_data: a task of text, or of rows, that has no file of its own.
struct EvalKind {
  bool reads_data = false, are_tasks = false, are_images = false, are_spans = false,
       are_translations = false, are_pictures = false, checks_generation = false;
};

// All throw Error{invalid_argument} for the first flag that nothing reads. Of flags that say how a
// task is done:
void expect_read_flags(const CLI::App& eval, const EvalKind& of);
// Flags of rows of an encoder, which are no text, or have labels:
void expect_rows_flags(const CLI::App& eval);
// Flags of a model that writes text:
void expect_text_flags(const CLI::App& eval);

// Of a run's own data: flags that are about files.
void expect_files_beside(std::string_view flag, bool is_given);
// Of --text-end: texts that training ends with a token.
void expect_text_ends(const std::string& tokenizer, bool are_shards);

// Of --raw-text: files that would be records without it.
void expect_json(bool is_there, const std::string& first);

}  // namespace octet
