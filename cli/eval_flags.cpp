#include "cli/eval_flags.h"

#include "base/error.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

constexpr const char* kOfTasks = "evaluation tasks (hellaswag, mmlu, ...) in --tasks";
constexpr const char* kOfText = "text: --tasks nll or perplexity";
constexpr const char* kOfEncoder = "tasks, or a model whose rows have labels";

}  // namespace

void expect_read_flags(const CLI::App& eval, const EvalKind& of) {
  const bool are_files = of.are_spans || of.are_translations || of.are_pictures;
  const bool is_text = !of.are_tasks && !of.are_images && !are_files;
  const bool is_scored = is_text && !of.checks_generation;
  const char* windows = "--tasks spans:FILE, or questions of an encoder";
  expect_flags_read(
      eval,
      {{"--check-generation", is_text, kOfText},
       {"--task-data", of.are_tasks || of.are_images, kOfTasks},
       {"--shots", of.are_tasks, kOfTasks},
       {"--convention", of.are_tasks, kOfTasks},
       {"--requests", of.are_tasks, kOfTasks},
       {"--stride", of.are_spans || is_scored, windows},
       {"--limit", !of.checks_generation, kOfEncoder},
       {"--max-answer", of.are_spans, "--tasks spans:FILE"},
       {"--predictions", of.are_spans || of.are_pictures, "--tasks spans:FILE or vqa:FILE"},
       {"--beams", of.are_translations, "--tasks bleu:FILE or chrf:FILE"},
       {"--max-new-tokens", of.are_translations || of.are_pictures,
        "--tasks bleu:FILE, chrf:FILE or vqa:FILE"},
       {"--data", of.reads_data, "a task of text without a file of its own"},
       {"--calib", is_text || of.are_tasks, "text or evaluation tasks in --tasks"},
       {"--seq", is_text || of.are_tasks || of.are_spans, "text, questions or evaluation tasks"},
       {"--split-on", is_text || eval.count("--calib") > 0, kOfText},
       {"--max-documents", is_scored, kOfText},
       {"--max-tokens", is_text, kOfText},
       {"--per-document", is_scored, kOfText},
       {"--per-row", is_scored, kOfText},
       {"--raw-text", is_text, kOfText},
       {"--text-end", is_text, kOfText}});
}

void expect_rows_flags(const CLI::App& eval) {
  expect_flags_read(eval, {{"--calib", false, kOfText},
                           {"--split-on", false, kOfText},
                           {"--max-documents", false, kOfText},
                           {"--max-tokens", false, kOfText},
                           {"--per-document", false, kOfText},
                           {"--per-row", false, kOfText},
                           {"--raw-text", false, kOfText},
                           {"--text-end", false, kOfText},
                           {"--check-generation", false, kOfText}});
}

void expect_text_flags(const CLI::App& eval) {
  expect_flags_read(eval, {{"--limit", false, kOfEncoder}, {"--stride", false, kOfEncoder}});
}

void expect_files_beside(std::string_view flag, bool is_given) {
  if (!is_given) return;
  throw Error(ErrorCode::invalid_argument,
              "{}: expected --data beside it: a run reads its own data as in training", flag);
}

void expect_text_ends(const std::string& tokenizer, bool are_shards) {
  if (are_shards) {
    throw Error(ErrorCode::invalid_argument,
                "--text-end: expected text, got token shards, which are read as they are");
  }
  const auto made = make_tokenizer(posix_files(), tokenizer);
  if (!made->bos() && made->eos()) return;
  throw Error(
      ErrorCode::invalid_argument,
      "--text-end: expected a tokenizer whose texts training ends with a token, got '{}': {}",
      tokenizer, made->bos() ? "they begin with one" : "it names none");
}

void expect_json(bool is_there, const std::string& first) {
  if (is_there) return;
  throw Error(ErrorCode::invalid_argument,
              "--raw-text: expected a JSON file, got '{}', which is read as text in any case",
              first);
}

}  // namespace octet
