// Conversations with pictures, as models that see pictures (ModelDef::sees_pictures) train on them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "config/load.h"
#include "config/run_config.h"
#include "data/row_source.h"
#include "nn/model.h"
#include "text/tokenizer.h"
#include "train/run_inputs.h"

namespace octet {

// True if a run reads conversations of such a model. Text files are read as those of other models.
bool reads_pictures(const Files& files, const RunConfig& config, const ModelSpec& spec);

// Puts what the folder that the run starts from says of pictures (size, stretch, filter, mean and
// std) into the keys of data.images that nobody has written: its rows, its evaluations and its
// exports then have the same. Throws Error{bad_data} naming the key that is not understood.
void settle_pictures(const Files& files, LoadedConfig& loaded, const ModelSpec& spec,
                     const Log& log);

class PictureTexts {
 public:
  // Throws as run_tokenizer() does, and Error{invalid_argument} for keys of rows that share more
  // than one conversation. All must outlive it.
  PictureTexts(const Files& files, const RunConfig& config, const ModelSpec& spec,
               const RunInputs& inputs, const Log& log);

  // Throws as read_run_chat() and picture_rows() do.
  std::shared_ptr<const RowSource> open(const std::vector<std::string>& paths) const;

 private:
  const Files& files_;
  const RunConfig& config_;
  const ModelSpec& spec_;
  const RunInputs& inputs_;
  Log log_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace octet
