#include "infer/generation_setup.h"

#include "base/error.h"
#include "infer/loaded_rms.h"
#include "infer/model_texts.h"
#include "infer/translate.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

// Recipes of eight bits measure scales over the whole batch: a text would depend on those beside
// it.
std::string generation_recipe(const ModelSource& source, const GenerationRequest& request,
                              const Log& log) {
  const std::string& name = request.recipe.empty() ? source.recipe : request.recipe;
  if (!find_recipe(name).linears.quantized) return name;
  if (request.recipe.empty()) return "bf16";
  if (!measures_batches(find_recipe(name))) return name;
  log.warning("--recipe {}: scales are measured over a batch, so a text depends on those beside it",
              name);
  return name;
}

}  // namespace

GenerationSetup setup_generation(Files& files, const GenerationRequest& request, const Log& log) {
  GenerationSetup setup;
  ModelSource& source = setup.source =
      find_model_source(files, request.model, log, request.unknown_keys);
  if (!request.adapter.empty())
    source = with_adapter(files, std::move(source), request.adapter, log);
  const ModelDef& def = model_def(source.spec.kind);
  if (!request.about_sources) {
    if (def.translates) expect_text(source.spec);  // encoders give vectors (octet serve)
  } else if (!def.translates) {
    throw Error(
        ErrorCode::invalid_argument,
        "--sources: expected a model that translates (t5, mt5, marian, lstm_seq2seq), got {}",
        def.name);
  }
  if (request.nonfinite == NonfiniteWeights::allowed) source.nonfinite = request.nonfinite;
  if (!request.tokenizer.empty()) {
    source.tokenizer = request.tokenizer;
    tell_beside_tokenizer(files, request.tokenizer, log, request.unknown_keys);
  }
  source.recipe = generation_recipe(source, request, log);
  source.stored = request.weights;
  if (source.tokenizer.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--tokenizer: expected `bytes` or a tokenizer's file, got none: '{}' does not say",
                request.model);
  }
  setup.tokenizer = make_tokenizer(files, source.tokenizer);
  if (request.context > source.seq) {
    throw Error(ErrorCode::invalid_argument, "--context: expected at most the model's {}, got {}",
                source.seq, request.context);
  }
  setup.context = request.context > 0 ? request.context : source.seq;
  setup.options.stop_tokens = stop_tokens(files, source, *setup.tokenizer);
  tell_unused_decoding(files, source, log);
  return setup;
}

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> tokens = tokenizer.prefix();
  tokenizer.encode(text, {}, tokens);
  if (tokens.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--prompt: expected some text, got none: the tokenizer has no token to begin with");
  }
  return tokens;
}

void check_lengths(const GenerationSetup& setup, const std::vector<Prompt>& prompts,
                   int64_t max_tokens) {
  if (setup.source.spec.rope_scaling != RopeScaling::dynamic) return;
  for (const Prompt& prompt : prompts) {
    if (max_tokens <= setup.context - std::ssize(prompt.tokens)) continue;
    throw Error(ErrorCode::invalid_argument,
                "--max-tokens: expected at most {} tokens with the prompt's {}, as dynamic "
                "rope_scaling is fixed at that length, got {}",
                setup.context, prompt.tokens.size(), max_tokens);
  }
}

}  // namespace octet
