#include "cli/generate_setup.h"

#include "cli/model_folder.h"
#include "infer/model_texts.h"
#include "train/eval_scales.h"

namespace octet {

ChatPrompts& GenerateSetup::chat_prompts(const std::string& name) {
  if (chat) return *chat;
  chat = std::make_unique<ChatPrompts>(chat_templates(posix_files(), source, *tokenizer, name),
                                       *tokenizer);
  if (chat->end_token()) options.stop_tokens.push_back(*chat->end_token());
  if (!chat->end_text().empty()) options.stop_texts.push_back(chat->end_text());
  return *chat;
}

std::unique_ptr<TextModel> GenerateSetup::make_model(TextModelOptions wanted,
                                                     const TextMachine& machine) const {
  choose_sums(sums, source, wanted, machine);
  return make_text_model(source, wanted, machine);
}

GenerateSetup generate_setup(const GenerateFlags& flags, const GlobalOptions& options) {
  GenerateSetup setup;
  expect_keys_to_know(flags.model, flags.strict);
  const ModelPaths paths =
      model_paths(posix_files(), flags.model, flags.adapter, make_log(options));
  static_cast<GenerationSetup&>(setup) =
      setup_generation(posix_files(),
                       {.model = paths.model,
                        .adapter = paths.adapter,
                        .tokenizer = flags.tokenizer,
                        .recipe = flags.recipe,
                        .weights = flags.weights,
                        .unknown_keys = unknown_keys(flags.strict),
                        .nonfinite = nonfinite_weights(flags.allow_nonfinite),
                        .context = flags.context,
                        .about_sources = !flags.sources.empty()},
                       make_log(options));
  if (!flags.recipe.empty())
    setup.source.recipe_options = forward_options(setup.source, flags.recipe);
  calibrate_source(setup.source, flags.calib, options);
  setup.sums = flags.sums;
  setup.options.max_tokens = flags.max_tokens.value_or(200);
  setup.options.stop_texts = flags.stop;
  return setup;
}

}  // namespace octet
