// A run's way from its configuration to what trainers are made of: data open, everything settled
// that depends on it.
#pragma once

#include "base/files.h"
#include "comm/group.h"
#include "config/load.h"
#include "data/dataset.h"
#include "infer/model_source.h"
#include "nn/model.h"
#include "train/run_folder.h"
#include "train/run_setup.h"

namespace octet {

struct OpenRun {
  LoadedConfig loaded;
  Dataset data;
  ModelSpec spec;
};

struct OpenRunOptions {
  RunDataOptions data = {};
  UnknownKeys unknown_keys = UnknownKeys::are_warnings;  // of the folder at model.path
  // The configuration is of finetune_config: its keys that depend on the data become settled.
  bool fits_to_data = false;
  // A run that goes on keeps a model.seq beyond the model's positions, which a new one is refused.
  bool resumes = false;
  // Ranks that are processes of their own: the first tokenizes, the others read what it has kept.
  // nullptr where this process is all of them.
  Group* processes = nullptr;
};

// Throws as model_from_config, tell_unknown_keys, expect_base (of lora.adapter), open_run_data and
// settle_length do, and Error{invalid_argument} where train.batch is not whole samples, or too few
// for a loss.
OpenRun open_run(Files& files, LoadedConfig loaded, const OpenRunOptions& options = {});

// Takes what a run that goes on keeps from its newest checkpoint; before open_run.
void keep_what_resumes(Files& files, LoadedConfig& loaded, const Log& log);

}  // namespace octet
