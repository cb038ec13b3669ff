#include "cli/commands.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/parse_text.h"
#include "cli/formats_io.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "data/tokenize.h"
#include "infer/model_source.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

struct TokenizeFlags {
  std::string tokenizer, pattern, out, separator, text_key = "text";
  std::vector<std::string> files;
  int64_t shard_tokens = int64_t{1} << 24;
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
    const auto id = parse_number<int32_t>(word);
    if (!id) {
      throw Error(ErrorCode::bad_data, "[tokenize] standard input: expected ids, got '{}'",
                  word.substr(0, 40));
    }
    ids.push_back(*id);
    text.remove_prefix(word.size());
  }
}

// A line on the terminal, painted again after each batch.
class Painter {
 public:
  explicit Painter(const GlobalOptions& options) : is_on_(shows_progress(options)) {}
  ~Painter() {
    if (is_painted_) clear_line();
  }
  Painter(const Painter&) = delete;
  Painter& operator=(const Painter&) = delete;

  void paint(const TokenizeReport& report) {
    if (!is_on_) return;
    clear_line();
    write_err(fmt::format("file {} of {}: {} documents, {} tokens", report.n_files,
                          report.n_files_in_all, report.n_documents, report.n_tokens));
    is_painted_ = true;
  }

 private:
  bool is_on_, is_painted_ = false;
};

double bytes_per_token(const TokenizeReport& report) {
  const auto n_tokens = static_cast<double>(std::max<int64_t>(report.n_tokens, 1));
  return static_cast<double>(report.n_bytes) / n_tokens;
}

void print_report(const GlobalOptions& options, const TokenizeReport& report, double seconds) {
  if (options.json) {
    const OrderedJson json = {{"files", report.n_files},
                              {"documents", report.n_documents},
                              {"tokens", report.n_tokens},
                              {"bytes", report.n_bytes},
                              {"bytes_per_token", bytes_per_token(report)},
                              {"shards", report.n_shards},
                              {"dropped", report.dropped},
                              {"seconds", seconds},
                              {"encode_seconds", report.encode_seconds}};
    return write_out(json.dump(2) + "\n");
  }
  write_line("{} files, {} documents, {} tokens in {} shards; {:.3f} bytes a token", report.n_files,
             report.n_documents, report.n_tokens, report.n_shards, bytes_per_token(report));
  for (const auto& [why, n] : report.dropped) {
    write_line("dropped {} documents: {}", n, why);
  }
}

void run_shards(const TokenizeFlags& flags, const GlobalOptions& options,
                const Tokenizer& tokenizer) {
  if (flags.files.empty()) {
    throw Error(ErrorCode::invalid_argument, "[tokenize] expected files for --out, got none");
  }
  TokenizeOptions tokenize;
  tokenize.paths = flags.files;
  tokenize.out = flags.out;
  tokenize.documents.separator = flags.separator;
  tokenize.documents.text_key = flags.text_key;
  tokenize.shard_tokens = flags.shard_tokens;
  tokenize.adds_special = !flags.no_special;
  tokenize.threads = options.threads;
  StopDeferral deferral;
  deferral.begin();  // what is whole of the shards stays, to go on from
  const std::atomic<int>& signal = stop_wish();
  const auto began = std::chrono::steady_clock::now();
  TokenizeReport report;
  {
    Painter painter(options);
    report = tokenize_files(posix_files(), tokenizer, tokenize,
                            {.on_progress = [&](const TokenizeReport& now) { painter.paint(now); },
                             .stops = [&] { return signal.load() != 0; }});
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began;
  for (const std::string& problem : report.problems) make_log(options).warning("{}", problem);
  print_report(options, report, time.count());
  if (!report.is_done) throw ExitStatus{128 + signal.load()};
  if (report.n_documents > 0) return;
  throw Error(ErrorCode::bad_data, "[tokenize] expected a document at least, got none of {} files",
              report.n_files);
}

void run_tokenize(const TokenizeFlags& flags, const CLI::App& command,
                  const GlobalOptions& options) {
  const int n_modes = flags.ids + flags.decode + !flags.out.empty();
  if (n_modes != 1) {
    throw Error(ErrorCode::invalid_argument,
                "[tokenize] expected one of --ids, --decode and --out");
  }
  const bool writes = !flags.out.empty();
  expect_flags_read(command, {{"files", writes, "--out"},
                              {"--separator", writes, "--out"},
                              {"--text-key", writes, "--out"},
                              {"--shard-tokens", writes, "--out"}});
  const auto tokenizer = make_tokenizer(posix_files(), flags.tokenizer, {.pattern = flags.pattern});
  tell_beside_tokenizer(posix_files(), flags.tokenizer, make_log(options));
  if (!flags.out.empty()) return run_shards(flags, options, *tokenizer);
  if (flags.ids) return run_ids(*tokenizer, !flags.no_special);
  const std::vector<int32_t> ids = parse_ids(read_stdin());
  write_data(tokenizer->decode(flags.no_special ? ids : without_ends(*tokenizer, ids)));
}

}  // namespace

void add_tokenize_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* tokenize = app.add_subcommand("tokenize", "text to token ids and back, and to shards");
  tokenize
      ->add_option("--tokenizer", flags->tokenizer,
                   "`bytes`, a tokenizer's file, or a model folder with one")
      ->required();
  tokenize->add_option("--pattern", flags->pattern,
                       "the words of tiktoken's ranks or of a vocab.json: a regular expression");
  tokenize->add_flag("--ids", flags->ids, "standard input is one document: print its ids");
  tokenize->add_flag("--decode", flags->decode, "standard input is ids: print their bytes");
  tokenize->add_flag("--no-special", flags->no_special,
                     "neither add nor remove the special tokens around a text");
  tokenize->add_option("files", flags->files, "text, JSON lines (.gz, .xz, .zst), and folders");
  tokenize->add_option("--out", flags->out, "folder for shards of the files; goes on where it was");
  tokenize->add_option("--separator,--split-on", flags->separator,
                       "text between the documents of a file; without it a file is a document");
  tokenize->add_option("--text-key", flags->text_key, "the text's key in JSON lines");
  tokenize
      ->add_option("--shard-tokens", flags->shard_tokens, "tokens after which a shard is closed")
      ->check(CLI::PositiveNumber);
  tokenize->callback([flags, tokenize, &options] { run_tokenize(*flags, *tokenize, options); });
}

}  // namespace octet
