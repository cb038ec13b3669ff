// Flags of a run without a configuration file, of `octet train --model` and `octet plan --model`:
// the model, the data, and short names of the keys that are set most. All but the model are also
// said over a configuration file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/common.h"
#include "config/load.h"
#include "train/finetune.h"

namespace octet {

// A flag that stands for a key: --lr for optim.lr.
struct KeyFlag {
  const char* flag;
  const char* key;
  const char* help;
  bool is_of_plans = true;  // whether a plan without data depends on it
  std::string value = {};   // empty: not given
};

struct FinetuneFlags {
  std::string config;        // a configuration file in place of the model
  FinetuneOptions finetune;  // its model is as it was typed until configuration_of()
  std::string adapter;       // likewise; lora.adapter
  std::vector<KeyFlag> keys = {
      {"--lr", "optim.lr", "learning rate", false},
      {"--epochs", "train.epochs", "passes over the data", false},
      {"--batch", "train.batch", "rows of a step and device"},
      {"--seq", "model.seq", "tokens of a row"},
      {"--lora-rank", "lora.rank", "trains adapters of this rank; 0: all weights"},
      {"--loss", "train.loss",
       "what is minimized: dpo, ipo, simpo or orpo of chosen and rejected answers"},
  };
};

// Who needs data: `plan` reads them where they are named.
enum class NeedsData : uint8_t { no, yes };

// CONFIG, --model, --data, --recipe and the keys' flags; --out where data are needed.
void add_finetune_flags(CLI::App& command, FinetuneFlags& flags, NeedsData needs);

// Throws Error{invalid_argument} where one of `sets` (--set) is of the key that this flag stands
// for: `flag` as it was typed, "--ranks 2".
void expect_no_set(std::string_view flag, std::string_view key,
                   const std::vector<std::string>& sets);

// `sets` and the keys' flags behind them; beside a file also --data, --recipe and --out. Throws
// Error{invalid_argument} that names both where a flag and a set are of the same key.
std::vector<std::string> sets_with_flags(const FinetuneFlags& flags, std::vector<std::string> sets);

// Configuration of the file, or of the model by a fine-tuner's defaults. Throws
// Error{invalid_argument} for neither or both, else as load_config() and finetune_config() do.
LoadedConfig configuration_of(const FinetuneFlags& flags, const std::vector<std::string>& sets,
                              NeedsData needs, const Log& log = {});

}  // namespace octet
