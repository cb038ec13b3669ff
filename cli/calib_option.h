// --calib of commands that run a model forward: what scales of edges are measured on.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "data/token_cache.h"
#include "data/token_stream.h"
#include "infer/model_source.h"

namespace octet {

struct CalibFlags {
  std::vector<std::string> files;
  std::string split_on = {};   // text between documents
  int64_t batch = 8, seq = 0;  // of the rows that are measured; seq 0: the model's, at most 1,024
};

void add_calib_option(CLI::App& command, CalibFlags& flags);

// Text, folders or token shards in the model's tokens.
struct ModelTextOptions {
  std::string split_on = {};                     // text between documents
  std::optional<TokenCacheOptions> cached = {};  // tokenized once, and kept there
  DocumentEnd end = DocumentEnd::eos;
};
TokenStream open_model_text(const ModelSource& source, const std::vector<std::string>& paths,
                            const Log& log, const ModelTextOptions& text = {});

// source.recipe_options with the edge scales that its recipe is to have: measured on the files, or
// those of a run whose config.yaml is given; without files the run's own, where the source is one.
void calibrate_source(ModelSource& source, const CalibFlags& flags, const GlobalOptions& options);

}  // namespace octet
