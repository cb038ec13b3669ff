#include "cli/commands.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/enum_option.h"
#include "cli/eval_recipe.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "data/numpy_header.h"
#include "infer/embed.h"
#include "infer/sentence_folder.h"
#include "nn/shape.h"
#include "text/padding.h"

namespace octet {
namespace {

struct EmbedFlags : ModelFlags {
  std::string texts, out, recipe;
  std::optional<Pooling> pooling;
  int64_t batch = 32, max_tokens = 0;
  bool keeps_length = false, overwrites = false;
};

// Options as the folder says, unless a flag says otherwise.
EmbedOptions embed_options(const EmbedFlags& flags, const ModelSource& source,
                           const GlobalOptions& options, const Log& log) {
  const std::string& folder = source.folder;
  const SentenceFolder said = read_sentence_folder(posix_files(), folder, flags.pooling);
  EmbedOptions result{.pooling = said.pooling,
                      .normalizes = said.normalizes && !flags.keeps_length,
                      .max_tokens = flags.max_tokens,
                      .cut = cut_side(posix_files(), source.tokenizer),
                      .width = said.width,
                      .batch = flags.batch,
                      .threads = options.threads,
                      .on_progress = count_painter(options, "", "texts")};
  if (flags.max_tokens == 0)
    result.max_tokens = max_tokens_of_folder(posix_files(), folder, longest_row(source.spec));
  if (!flags.pooling && !said.is_said) {
    log.info("{} has no modules.json: the mean over a text's tokens{}", folder,
             result.normalizes ? ", normalized" : "");
  }
  return result;
}

// Before anything is computed. What is no file, as a pipe, is written to.
void expect_no_file(const EmbedFlags& flags) {
  if (flags.overwrites || posix_files().kind(flags.out) != EntryKind::file) return;
  throw Error(ErrorCode::invalid_argument,
              "--out: expected a file that is not there, or --overwrite; '{}' is there", flags.out);
}

void write_matrix(const std::string& path, const Embeddings& rows) {
  const std::string header = numpy_header("<f4", {rows.n, rows.width});
  write_output(posix_files(), path, [&](FileWriter& file) {
    file.write(as_bytes(header));
    file.write(std::as_bytes(std::span(rows.values)));
  });
}

void run_embed(const EmbedFlags& flags, const GlobalOptions& options) {
  Files& files = posix_files();
  const Log log = make_log(options);
  expect_no_file(flags);
  ModelSource source = open_model_source(flags, log);
  expect_tokenizer(source);
  source =
      source_with_recipe(source, flags.recipe.empty() ? source.recipe : flags.recipe, options.sets);
  const EmbedOptions how = embed_options(flags, source, options, log);
  const auto tokenizer = make_tokenizer(files, source.tokenizer);
  const std::vector<std::string> texts = read_texts(files, flags.texts);
  Backend backend = open_backend(options);
  const auto began = std::chrono::steady_clock::now();
  const Embeddings rows = embed_texts(source, *tokenizer, texts, how, text_machine(backend, log));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  if (rows.n_truncated > 0) {
    log.warning("{} of {} texts lost their {}: the longest has {} tokens", rows.n_truncated, rows.n,
                how.cut == CutSide::end ? "ends" : "starts", rows.longest);
  }
  if (rows.n_padded_inside > 0)
    log.warning("{}", inner_padding_text(rows.n_padded_inside, rows.n, "texts", source.spec));
  write_matrix(flags.out, rows);
  print_table(options,
              {{"texts", "tokens", "truncated", "width", "pooling", "normalized", "seconds"},
               {cells(rows.n, rows.n_tokens, rows.n_truncated, rows.width, enum_name(how.pooling),
                      how.normalizes, fmt::format("{:.3f}", seconds.count()))}});
}

}  // namespace

void add_embed_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* embed = app.add_subcommand("embed", "texts as vectors, from an encoder");
  add_model_flags(*embed, *flags);
  embed->add_option("--texts,--data", flags->texts, "a text a line, or JSON lines with `text`")
      ->required();
  embed->add_option("--out", flags->out, "NumPy's f32 [texts, width]")
      ->required()
      ->type_name("OUT.npy");
  embed->add_flag("--overwrite", flags->overwrites, "replace the file that --out names");
  add_enum_option(*embed, "--pooling", flags->pooling,
                  "mean over a text's tokens, or its first token (cls); as the folder says "
                  "without it, else mean");
  embed->add_flag("--no-normalize", flags->keeps_length, "leave each vector as long as it is");
  embed
      ->add_option("--max-tokens", flags->max_tokens,
                   "of a text, whose end is cut off beyond; 0: as the folder or the model says")
      ->check(CLI::NonNegativeNumber);
  embed->add_option("--recipe", flags->recipe, "precision; the run's, or fp32 for a model folder");
  embed->add_option("--batch", flags->batch, "texts at a time")->check(CLI::PositiveNumber);
  add_nonfinite_flag(*embed, flags->allow_nonfinite);
  embed->callback([flags, &options] { run_embed(*flags, options); });
}

}  // namespace octet
