#include "cli/commands.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "base/error.h"
#include "cli/enum_option.h"
#include "cli/generate_setup.h"
#include "cli/generation_speed.h"
#include "infer/image_transforms.h"
#include "infer/picture_prompt.h"
#include "infer/prompt_file.h"

namespace octet {
namespace {

// Tells `speed` how long the model took.
std::vector<Completion> complete(const GenerateSetup& setup, const std::vector<Prompt>& prompts,
                                 int64_t batch, const GlobalOptions& options,
                                 GenerationSpeed& speed) {
  check_lengths(setup, prompts, setup.options.max_tokens);
  size_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.tokens.size());
  const int64_t wanted = static_cast<int64_t>(longest) + setup.options.max_tokens;
  Backend backend = open_backend(options, {.same_rows = true});
  const auto model =
      setup.make_model({.n_entries = std::min(batch, std::ssize(prompts)),
                        .capacity = std::max<int64_t>(1, std::min(setup.context, wanted)),
                        .picks = options.device != "cpu"},
                       text_machine(backend, make_log(options)));
  if (!setup.pictures.rows.empty()) model->read_pictures(0, setup.pictures);
  std::vector<Completion> completions;
  speed.time([&] {
    completions = generate(*model, *setup.tokenizer, prompts, setup.options);
    int64_t n_tokens = 0;
    for (const Completion& done : completions) n_tokens += std::ssize(done.tokens);
    return n_tokens;
  });
  return completions;
}

std::string said(const GenerateSetup& setup, const std::vector<int32_t>& tokens) {
  return setup.tokenizer->decode(without_ends(*setup.tokenizer, tokens));
}

// The prompt with its pictures, or as the question of a conversation; `begin`: what is shown of it.
PicturePrompt prompt_with_pictures(const GenerateFlags& flags, GenerateSetup& setup, const Log& log,
                                   std::string& begin) {
  ModelSpec& spec = setup.source.spec;
  if (!model_def(spec.kind).sees_pictures) {
    throw Error(ErrorCode::invalid_argument,
                "--image: expected a model that sees pictures (llava, idefics3), got {}",
                model_def(spec.kind).name);
  }
  spec.images = std::ssize(flags.images);
  const std::string mark = image_mark(*setup.tokenizer, spec);
  std::vector<int32_t> ids;
  if (flags.chat) {
    const ChatPrompts& chat = setup.chat_prompts(flags.chat_template);
    ids = chat.tokens(rendered_question(chat, flags.prompt, mark, flags.images.size()));
  } else {
    begin = with_marks(flags.prompt, mark, flags.images.size());
    ids = setup.tokenizer->prefix();
    setup.tokenizer->encode(begin, {.special = SpecialText::parse}, ids);
  }
  const PictureRowsOptions rows =
      picture_options(spec, evaluation_images(posix_files(), setup.source, log), *setup.tokenizer);
  PicturePrompt prompt = picture_prompt(posix_files(), rows, ids, flags.images);
  const int64_t n = std::ssize(prompt.prompt.tokens) + setup.options.max_tokens;
  if (n > setup.context) {
    throw Error(ErrorCode::invalid_argument,
                "--max-tokens: expected at most {} tokens with the prompt's {}, got {}",
                setup.context, prompt.prompt.tokens.size(), setup.options.max_tokens);
  }
  return prompt;
}

void run_prompt(const GenerateFlags& flags, const GlobalOptions& options) {
  GenerateSetup setup = generate_setup(flags, options);
  Prompt prompt;
  std::string begin;
  if (!flags.images.empty()) {
    PicturePrompt with_pictures = prompt_with_pictures(flags, setup, make_log(options), begin);
    prompt = std::move(with_pictures.prompt);
    setup.pictures = std::move(with_pictures.pictures);
  } else {
    prompt.tokens = prompt_tokens(*setup.tokenizer, flags.prompt);
    expect_no_pictures(setup.source.spec, prompt.tokens, "--prompt");
    begin = said(setup, prompt.tokens);
  }
  prompt.sampling = flags.sampling;
  bool has_begun = false;
  if (!options.json) {
    setup.options.on_text = [&](size_t, std::string_view text) {
      if (!has_begun) write_data(begin);
      has_begun = true;
      write_data(text);
      flush_output();
    };
  }
  GenerationSpeed speed;
  const Completion done = complete(setup, {prompt}, 1, options, speed).front();
  if (options.json) {
    write_out(json_text({{"prompt", flags.prompt},
                         {"text", begin + done.text},
                         {"tokens", done.tokens.size()},
                         {"completion", done.text},
                         {"stop", enum_name(done.stop)}}));
  } else {
    write_data(has_begun ? "\n" : begin + "\n");
  }
  flush_output();
  speed.tell(make_log(options));
}

// The prompts of the file as tokens, and what stands for each in the result.
struct FilePrompts {
  std::vector<Prompt> prompts;
  std::vector<OrderedJson> shown;
};

FilePrompts file_prompts(const GenerateFlags& flags, GenerateSetup& setup, const Log& log) {
  FilePrompts result;
  const std::vector<StoredPrompt> all = read_prompts(posix_files(), flags.prompts);
  const auto is_text = [](const StoredPrompt& one) { return one.context.is_null(); };
  if (flags.chat_template != "auto" && std::ranges::all_of(all, is_text)) {
    throw Error(ErrorCode::invalid_argument,
                "--template: expected a conversation among the prompts, got none in '{}'",
                flags.prompts);
  }
  constexpr std::array<std::string_view, 4> kResults = {"text", "completion", "tokens", "stop"};
  const auto is_result = [&](const std::string& key) {
    return std::ranges::find(kResults, key) != kResults.end();
  };
  std::map<std::string, int64_t> n_hidden;
  for (const StoredPrompt& stored : all) {
    Prompt prompt{.tokens = {}, .sampling = flags.sampling};
    if (stored.seed) prompt.sampling.seed = *stored.seed;
    OrderedJson shown = stored.context;
    if (stored.context.is_null()) {
      prompt.tokens = prompt_tokens(*setup.tokenizer, stored.text);
      shown = {{"prompt", stored.text}, {"text", said(setup, prompt.tokens)}};
    } else {
      const ChatPrompts& chat = setup.chat_prompts(flags.chat_template);
      shown["text"] = chat.render(stored.context);
      prompt.tokens = chat.tokens(shown["text"].get_ref<const std::string&>());
    }
    expect_no_pictures(setup.source.spec, prompt.tokens, "--prompts");
    if (stored.seed) shown["seed"] = *stored.seed;
    for (const auto& [key, value] : stored.others.items()) {
      is_result(key) ? void(++n_hidden[key]) : void(shown[key] = value);
    }
    result.prompts.push_back(std::move(prompt));
    result.shown.push_back(std::move(shown));
  }
  for (const auto& [key, n] : n_hidden)
    log.warning("[prompts] {} prompts have a key that is one of the result's: '{}'", n, key);
  return result;
}

// A JSON object a line, or with --json an array of them.
void run_prompts(const GenerateFlags& flags, const GlobalOptions& options) {
  GenerateSetup setup = generate_setup(flags, options);
  const FilePrompts file = file_prompts(flags, setup, make_log(options));
  GenerationSpeed speed;
  const auto completions = complete(setup, file.prompts, flags.batch, options, speed);
  OrderedJson rows = OrderedJson::array();
  for (size_t i = 0; i < completions.size(); ++i) {
    const Completion& done = completions[i];
    OrderedJson row = file.shown[i];
    row["text"] = row["text"].get<std::string>() + done.text;
    row["completion"] = done.text;
    row["tokens"] = done.tokens.size();
    row["stop"] = enum_name(done.stop);
    if (options.json) {
      rows.push_back(std::move(row));
    } else {
      write_out(json_line(row) + "\n");
    }
  }
  if (options.json) write_out(json_text(rows));
  flush_output();
  speed.tell(make_log(options));
}

// Flags of one way to ask, beside another.
void expect_read_flags(const GenerateFlags& flags, const CLI::App& generate) {
  const bool has_prompts = !flags.prompts.empty();
  const bool has_sources = !flags.sources.empty(), draws = flags.sampling.temperature > 0;
  constexpr const char* kDraws = "--temperature above 0";
  expect_flags_read(generate, {{"--image", !flags.prompt.empty(), "--prompt"},
                               {"--system", flags.chat, "--chat"},
                               {"--template", flags.chat || has_prompts, "--chat or --prompts"},
                               {"--batch", has_prompts || has_sources, "--prompts or --sources"},
                               {"--top-k", draws, kDraws},
                               {"--top-p", draws, kDraws},
                               {"--min-p", draws, kDraws}});
}

void run_generate(const GenerateFlags& given, const CLI::App& command,
                  const GlobalOptions& options) {
  GenerateFlags flags = given;
  flags.sampling.seed = static_cast<uint32_t>(options.seed.value_or(1));
  if (!flags.prompts.empty() && (flags.chat || !flags.prompt.empty())) {
    throw Error(ErrorCode::invalid_argument,
                "--prompts: expected it without --prompt and --chat, got {}",
                flags.chat ? "--chat" : "--prompt");
  }
  const bool translates =
      flags.beams > 0 || flags.length_penalty || flags.early_stopping || flags.source_prefix;
  if (translates && flags.sources.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--beams, --length-penalty, --early-stopping, --source-prefix: expected them with "
                "--sources, got none");
  }
  expect_read_flags(flags, command);
  if (!flags.images.empty()) {
    if (flags.prompts.empty() && flags.sources.empty() && flags.system.empty())
      return run_prompt(flags, options);
    throw Error(ErrorCode::invalid_argument,
                "--image: expected it with --prompt, got --prompts, --sources or --system");
  }
  if (!flags.sources.empty()) return run_sources(flags, options);
  if (flags.chat) return run_chat(flags, options);
  if (!flags.prompts.empty()) return run_prompts(flags, options);
  run_prompt(flags, options);
}

void add_source_flags(CLI::App& generate, GenerateFlags& flags) {
  generate.add_option(
      "--sources", flags.sources,
      "a file whose lines a model that translates (t5, mt5, marian, lstm_seq2seq) reads: writes a "
      "line about each");
  generate
      .add_option("--beams", flags.beams,
                  "with --sources: beams of a search; 1: none; 0: as the model's files say, else "
                  "none")
      ->check(CLI::Range(0, 64));
  generate
      .add_option("--length-penalty", flags.length_penalty,
                  "of beams: sums of log probabilities are divided by this power of the length; "
                  "as the model's files say, else 1")
      ->check(CLI::Range(-100.0, 100.0));
  add_enum_option(generate, "--early-stopping", flags.early_stopping,
                  "whether a search ends with as many texts as beams (yes), or when no beam may "
                  "become better (no, never)");
  generate.add_option("--source-prefix", flags.source_prefix,
                      "a text before each source; the run's where it is not given");
}

void add_sampling_flags(CLI::App& generate, Sampling& sampling) {
  generate.add_option("--temperature", sampling.temperature, "0: always the most probable token")
      ->check(CLI::NonNegativeNumber);
  generate.add_option("--top-k", sampling.top_k, "so many most probable tokens; 0: all")
      ->check(CLI::NonNegativeNumber);
  generate
      .add_option("--top-p", sampling.top_p,
                  "the most probable tokens up to this sum of probabilities")
      ->check(CLI::Range(1e-6, 1.0));
  generate
      .add_option("--min-p", sampling.min_p,
                  "tokens of at least this share of the highest probability")
      ->check(CLI::Range(0.0, 1.0));
  generate
      .add_option("--repetition-penalty", sampling.repetition_penalty,
                  "above 1: tokens that the text holds become less probable")
      ->check(CLI::Range(1e-6, 1e6));
}

}  // namespace

void add_generate_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* generate = app.add_subcommand("generate", "text from a model");
  add_model_flags(*generate, *flags);
  generate->add_option("--prompt", flags->prompt, "the text to go on from");
  generate->add_option("--prompts", flags->prompts,
                       "a file of prompts: JSON values, or one a line (docs/generation.md)");
  generate
      ->add_option("--image", flags->images,
                   "a picture that the prompt is about, a PNG or JPEG file; may be repeated "
                   "(docs/vision_language.md)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_source_flags(*generate, *flags);
  generate->add_option("--batch", flags->batch, "prompts or sources at a time")
      ->check(CLI::Range(1, 4096));
  generate->add_flag("--chat", flags->chat,
                     "a conversation on standard input, a line a message, by the chat template");
  generate->add_option("--template", flags->chat_template,
                       "a chat template: a file, chatml or plain; auto: the model's");
  generate->add_option("--system", flags->system, "what --chat tells the model first");
  generate->add_option("--max-tokens", flags->max_tokens, "new tokens at most")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}));
  add_sampling_flags(*generate, flags->sampling);
  generate->add_option("--stop", flags->stop, "a text that ends the answer; may be repeated")
      ->check([](const std::string& text) {
        return text.empty() ? std::string("expected a text, got an empty one") : std::string();
      })
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  generate
      ->add_option("--context", flags->context,
                   "most tokens of a text; 0: the model's (4096 at most with --chat)")
      ->check(CLI::NonNegativeNumber);
  generate->add_option("--recipe", flags->recipe,
                       "precision; the run's if it has no 8-bit operands, else bf16; fp32 for a "
                       "model folder");
  add_calib_option(*generate, flags->calib);
  add_enum_option(*generate, "--weights", flags->weights,
                  "what the layers' matrices are kept as; auto: the recipe's type. E4M3 takes "
                  "half the memory of BF16, and on a GPU about half the time of a text's token");
  add_enum_option(*generate, "--sums", flags->sums,
                  "how a GPU's GEMMs add: by their rows (auto), or always by the kernel of few "
                  "rows, in 16 bits or in FP8 (docs/generation.md)");
  add_arithmetic_option(*generate, options);
  add_nonfinite_flag(*generate, flags->allow_nonfinite);
  generate->callback([flags, generate, &options] { run_generate(*flags, *generate, options); });
}

}  // namespace octet
