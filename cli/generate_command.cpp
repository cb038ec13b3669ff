#include "cli/generate_command.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/strict_flag.h"
#include "infer/generate.h"
#include "infer/model_source.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

struct GenerateFlags {
  std::string model, prompt, tokenizer, recipe;
  int64_t max_tokens = 200;
  double temperature = 0;
  bool strict = false;
};

GenerateOptions generate_options(const GenerateFlags& flags, const GlobalOptions& options,
                                 const ModelSource& source, const Tokenizer& tokenizer) {
  GenerateOptions generate;
  generate.max_tokens = flags.max_tokens;
  generate.context = source.seq;
  generate.temperature = flags.temperature;
  generate.seed = options.seed.value_or(1);
  if (tokenizer.eos()) generate.stop.push_back(*tokenizer.eos());
  if (tokenizer.bos()) generate.stop.push_back(*tokenizer.bos());  // the next document
  return generate;
}

void print_result(const GlobalOptions& options, const GenerateFlags& flags, const std::string& text,
                  size_t n_tokens) {
  if (!options.json) {
    write_data(text + "\n");
    return;
  }
  const nlohmann::ordered_json json = {
      {"prompt", flags.prompt}, {"text", text}, {"tokens", n_tokens}};
  write_out(json_text(json));
}

void run_generate(const GenerateFlags& flags, const GlobalOptions& options) {
  Files& files = posix_files();
  ModelSource source =
      find_model_source(files, flags.model, make_log(options), unknown_keys(flags.strict));
  if (!flags.tokenizer.empty()) source.tokenizer = flags.tokenizer;
  if (!flags.recipe.empty()) source.recipe = flags.recipe;
  if (source.tokenizer.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--tokenizer: expected `bytes` or a tokenizer's file, got none: '{}' does not say",
                flags.model);
  }
  const auto tokenizer = make_tokenizer(files, source.tokenizer);
  std::vector<int32_t> tokens = tokenizer->prefix();
  tokenizer->encode(flags.prompt, {}, tokens);
  if (tokens.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--prompt: expected some text, got none: the tokenizer has no token to begin with");
  }
  const int64_t n_left = source.seq - static_cast<int64_t>(tokens.size());
  if (source.spec.rope_scaling == RopeScaling::dynamic && flags.max_tokens > n_left) {
    throw Error(ErrorCode::invalid_argument,
                "--max-tokens: expected at most {} tokens with the prompt's {}, as dynamic "
                "rope_scaling is fixed at that length, got {}",
                source.seq, tokens.size(), flags.max_tokens);
  }
  const GenerateOptions generate_with = generate_options(flags, options, source, *tokenizer);
  Backend backend = open_backend(options);
  Inference model(source.spec, source.recipe,
                  generation_functions(static_cast<int64_t>(tokens.size()), generate_with),
                  *backend.device, *backend.catalogue);
  model.load(WeightReader(files, source.weights, source.spec));
  const std::vector<int32_t> added = generate(model, tokens, generate_with);
  tokens.insert(tokens.end(), added.begin(), added.end());
  print_result(options, flags, tokenizer->decode(without_ends(*tokenizer, tokens)), added.size());
}

}  // namespace

void add_generate_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* generate = app.add_subcommand("generate", "text from a model");
  generate->add_option("--model", flags->model, "a run, one of its checkpoints, or a model folder")
      ->required();
  generate->add_option("--prompt", flags->prompt, "the text to go on from");
  generate->add_option("--max-tokens", flags->max_tokens, "new tokens at most")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}));
  generate->add_option("--temperature", flags->temperature, "0: always the most probable token")
      ->check(CLI::NonNegativeNumber);
  generate->add_option("--tokenizer", flags->tokenizer,
                       "`bytes`, a tokenizer's file, or a model folder with one");
  generate->add_option("--recipe", flags->recipe,
                       "precision; the run's, or fp32 for a model folder");
  add_strict_flag(*generate, flags->strict);
  generate->callback([flags, &options] { run_generate(*flags, options); });
}

}  // namespace octet
