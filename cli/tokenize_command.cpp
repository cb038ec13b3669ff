#include "cli/tokenize_command.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "base/error.h"
#include "cli/formats_io.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

struct TokenizeFlags {
  std::string tokenizer, pattern;
  bool ids = false, decode = false, no_special = false;
};

void run_ids(const Tokenizer& tokenizer, bool adds_special) {
  std::vector<int32_t> ids;
  if (adds_special) ids = tokenizer.prefix();
  tokenizer.encode(read_stdin(), {}, ids);
  if (adds_special) {
    for (const int32_t id : tokenizer.suffix()) ids.push_back(id);
  }
  std::string line;
  for (const int32_t id : ids) {
    if (!line.empty()) line += ' ';
    fmt::format_to(std::back_inserter(line), "{}", id);
  }
  write_out(line + "\n");
}

std::vector<int32_t> parse_ids(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<int32_t> ids;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return ids;
    const std::string_view word = text.substr(0, text.find_first_of(kSpace));
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw Error(ErrorCode::bad_data, "[tokenize] standard input: expected ids, got '{}'",
                  word.substr(0, 40));
    }
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

void run_tokenize(const TokenizeFlags& flags) {
  if (flags.ids == flags.decode) {
    throw Error(ErrorCode::invalid_argument, "octet tokenize: expected one of --ids and --decode");
  }
  const auto tokenizer = make_tokenizer(posix_files(), flags.tokenizer, {.pattern = flags.pattern});
  if (flags.ids) return run_ids(*tokenizer, !flags.no_special);
  const std::vector<int32_t> ids = parse_ids(read_stdin());
  write_out(tokenizer->decode(flags.no_special ? ids : without_ends(*tokenizer, ids)));
}

}  // namespace

void add_tokenize_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* tokenize = app.add_subcommand("tokenize", "text to token ids, and back");
  tokenize
      ->add_option("--tokenizer", flags->tokenizer,
                   "`bytes`, a tokenizer's file, or a model folder with one")
      ->required();
  tokenize->add_option("--pattern", flags->pattern,
                       "the words of a rank file that is not known: a regular expression");
  tokenize->add_flag("--ids", flags->ids, "standard input is one document: print its ids");
  tokenize->add_flag("--decode", flags->decode, "standard input is ids: print their bytes");
  tokenize->add_flag("--no-special", flags->no_special,
                     "neither add nor remove the special tokens around a text");
  tokenize->callback([flags] { run_tokenize(*flags); });
}

}  // namespace octet
