// octet generate --sources: what a model that translates writes about each line of a file.
#include <algorithm>

#include "base/error.h"
#include "cli/generate_setup.h"
#include "cli/generation_speed.h"
#include "data/text_files.h"
#include "infer/translate.h"

namespace octet {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines = read_text_lines(posix_files(), path);
  if (!lines.empty()) return lines;
  throw Error(ErrorCode::bad_data, "[generate] {}: expected a line at least, got none", path);
}

void refuse_other_flags(const GenerateFlags& flags) {
  const auto refuse = [](const char* flag) {
    throw Error(ErrorCode::invalid_argument, "{}: expected it without --sources", flag);
  };
  if (flags.chat) refuse("--chat");
  if (!flags.prompt.empty()) refuse("--prompt");
  if (!flags.prompts.empty()) refuse("--prompts");
  if (!flags.stop.empty()) refuse("--stop");
  if (flags.context > 0) refuse("--context");
}

TranslateOptions options_of(const GenerateFlags& flags, const GenerateSetup& setup) {
  TranslateOptions options =
      translate_options(posix_files(), setup.source, setup.options.stop_tokens,
                        {.max_tokens = flags.max_tokens,
                         .n_beams = flags.beams,
                         .length_penalty = flags.length_penalty,
                         .early_stopping = flags.early_stopping,
                         .sampling = flags.sampling});
  if (options.beams.n_beams > 1 && !is_greedy(options.sampling)) {
    throw Error(ErrorCode::invalid_argument,
                "--beams: expected 1 with --temperature or --repetition-penalty, got {}",
                options.beams.n_beams);
  }
  return options;
}

std::string in_one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace

void run_sources(const GenerateFlags& flags, const GlobalOptions& options) {
  refuse_other_flags(flags);
  const std::vector<std::string> lines = lines_of(flags.sources);
  GenerateSetup setup = generate_setup(flags, options);
  const TranslateOptions how = options_of(flags, setup);
  const std::string prefix = flags.source_prefix.value_or(
      setup.source.run ? setup.source.run->data.source_prefix : std::string());
  const auto sources =
      encode_sources(*setup.tokenizer, lines, prefix, flags.sources, setup.source.spec);
  Backend backend = open_backend(options, {.same_rows = true});
  const int64_t n_sources = std::min(flags.batch, std::ssize(sources));
  const auto model = setup.make_model({.n_entries = n_sources * how.beams.n_beams,
                                       .capacity = how.rules.max_tokens,
                                       .n_sources = n_sources},
                                      text_machine(backend, make_log(options)));
  std::vector<Translation> all;
  GenerationSpeed speed;
  speed.time([&] {
    all = translate(*model, setup.source.spec, sources, how);
    int64_t n_tokens = 0;
    for (const Translation& one : all) n_tokens += std::ssize(one.tokens);
    return n_tokens;
  });
  OrderedJson rows = OrderedJson::array();
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string text = text_of(*setup.tokenizer, all[i], how);
    if (!options.json) {
      write_out(in_one_line(text) + "\n");
      continue;
    }
    OrderedJson row = {{"source", lines[i]},
                       {"text", text},
                       {"tokens", all[i].tokens.size()},
                       {"stop", enum_name(all[i].stop)}};
    row["ids"] = all[i].tokens;
    if (how.beams.n_beams > 1) row["score"] = all[i].score;
    rows.push_back(std::move(row));
  }
  if (options.json) write_out(json_text(rows));
  flush_output();
  speed.tell(make_log(options));
}

}  // namespace octet
