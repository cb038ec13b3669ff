#include "cli/model_flags.h"

#include "base/error.h"
#include "base/gguf.h"
#include "cli/model_folder.h"
#include "infer/import_gguf.h"

namespace octet {

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option(
          "--model", flags.model,
          "a run, one of its checkpoints, a model folder, a .gguf file, an adapter's folder "
          "(PEFT) whose base is there, or org/name of the hub's local cache")
      ->required();
  add_adapter_flag(command, flags.adapter);
  command.add_option("--tokenizer", flags.tokenizer,
                     "`bytes`, a tokenizer's file, or a model folder with one");
  add_strict_flag(command, flags.strict);
}

void add_adapter_flag(CLI::App& command, std::string& adapter) {
  command
      .add_option("--adapter", adapter,
                  "an adapter's folder (PEFT: adapter_config.json) that is read with the model")
      ->type_name("DIR");
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

void expect_keys_to_know(const std::string& model, bool strict) {
  if (!strict || !is_gguf_name(model)) return;
  throw Error(ErrorCode::invalid_argument,
              "--strict: expected a model folder, whose config.json it is about, got the GGUF file "
              "'{}', of whose model no key is ignored",
              model);
}

ModelSource open_model_source(const ModelFlags& flags, const Log& log) {
  expect_keys_to_know(flags.model, flags.strict);
  const ModelPaths paths = model_paths(posix_files(), flags.model, flags.adapter, log);
  ModelSource source =
      find_model_source(posix_files(), paths.model, log, unknown_keys(flags.strict));
  if (!paths.adapter.empty())
    source = with_adapter(posix_files(), std::move(source), paths.adapter, log);
  if (flags.allow_nonfinite) source.nonfinite = NonfiniteWeights::allowed;
  if (!flags.tokenizer.empty()) {
    source.tokenizer = flags.tokenizer;
    tell_beside_tokenizer(posix_files(), flags.tokenizer, log, unknown_keys(flags.strict));
  }
  return source;
}

void expect_tokenizer(const ModelSource& source) {
  if (!source.tokenizer.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "--tokenizer: expected `bytes` or a tokenizer's file, got none: '{}' does not say",
              source.folder);
}

}  // namespace octet
