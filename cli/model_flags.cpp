#include "cli/model_flags.h"

#include "base/error.h"
#include "cli/model_folder.h"

namespace octet {

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--model", flags.model,
                  "a run, one of its checkpoints, a model folder, or org/name of the hub's local "
                  "cache")
      ->required();
  command.add_option("--tokenizer", flags.tokenizer,
                     "`bytes`, a tokenizer's file, or a model folder with one");
  add_strict_flag(command, flags.strict);
}

void add_strict_flag(CLI::App& command, bool& strict) {
  command.add_flag("--strict", strict,
                   "a key of config.json that is not known is an error, not a warning");
}

void add_nonfinite_flag(CLI::App& command, bool& allow_nonfinite) {
  command.add_flag("--allow-nonfinite", allow_nonfinite,
                   "read weights that are NaN or Inf, which are refused without it");
}

UnknownKeys unknown_keys(bool strict) {
  return strict ? UnknownKeys::are_errors : UnknownKeys::are_warnings;
}

ModelSource open_model_source(const ModelFlags& flags, const Log& log) {
  const std::string path = model_path(posix_files(), flags.model);
  ModelSource source = find_model_source(posix_files(), path, log, unknown_keys(flags.strict));
  if (flags.allow_nonfinite) source.nonfinite = NonfiniteWeights::allowed;
  if (!flags.tokenizer.empty()) source.tokenizer = flags.tokenizer;
  return source;
}

void expect_tokenizer(const ModelSource& source) {
  if (!source.tokenizer.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "--tokenizer: expected `bytes` or a tokenizer's file, got none: '{}' does not say",
              source.folder);
}

}  // namespace octet
