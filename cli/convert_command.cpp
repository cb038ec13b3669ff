#include "cli/commands.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/gguf.h"
#include "base/named_enum.h"
#include "base/remove_tree.h"
#include "cli/backend.h"
#include "cli/model_flags.h"
#include "cli/model_folder.h"
#include "infer/adapter_note.h"
#include "infer/add_tokens.h"
#include "infer/export.h"
#include "infer/export_gguf.h"
#include "infer/import_gguf.h"
#include "infer/logits_digest.h"

namespace octet {
namespace {

bool has_adapters(const Files& files, const ModelSource& source) {
  return !source.weights.adapter.empty() ||
         find_adapter_note(files, source.weights.path).has_value();
}

struct ConvertFlags {
  std::string from, to, dtype, adapter, new_tokens;
  std::optional<uint64_t> max_shard;
  bool strict = false, allow_nonfinite = false, adapter_only = false, fold_norms = false,
       merge = false, verify = false;
};

ModelSource source_of(Files& files, const ConvertFlags& flags, const Log& log) {
  ModelSource source = open_model_source({.model = flags.from,
                                          .tokenizer = "",
                                          .adapter = flags.adapter,
                                          .strict = flags.strict,
                                          .allow_nonfinite = flags.allow_nonfinite},
                                         log);
  if (flags.merge && !has_adapters(files, source)) {
    throw Error(ErrorCode::invalid_argument,
                "--merge: expected a model with adapters (--adapter DIR, or a run with lora.rank), "
                "got '{}'",
                flags.from);
  }
  if (flags.verify && !has_logits_digest(source.spec)) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] --verify: expected a model that writes text, got kind {}",
                model_def(source.spec.kind).name);
  }
  return source;
}

// A GGUF file is read as it is: what is said of a run or a folder does nothing with it.
void expect_of_gguf(const ConvertFlags& flags) {
  const std::pair<const char*, bool> others[] = {{"--adapter", !flags.adapter.empty()},
                                                 {"--merge", flags.merge},
                                                 {"--adapter-only", flags.adapter_only},
                                                 {"--fold-norms", flags.fold_norms},
                                                 {"--add-tokens", !flags.new_tokens.empty()}};
  for (const auto& [flag, is_given] : others) {
    if (!is_given) continue;
    throw Error(ErrorCode::invalid_argument,
                "{}: expected a run or a model folder, got the GGUF file '{}'", flag, flags.from);
  }
}

ExportResult converted(Files& files, const ConvertFlags& flags, const ExportOptions& how) {
  if (is_gguf_name(flags.from)) {
    expect_of_gguf(flags);
    expect_keys_to_know(flags.from, flags.strict);
    return import_gguf(files, flags.from, flags.to, how);
  }
  ModelSource source = source_of(files, flags, how.log);
  if (flags.fold_norms) source = with_folded_norms(std::move(source));
  return flags.adapter_only ? export_adapter(files, source, flags.to, how.log)
                            : export_model(files, source, flags.to, how);
}

// Throws where the flag's type is none of what is written.
template <typename E>
E dtype_of(const ConvertFlags& flags, std::string_view what) {
  if (flags.dtype.empty()) return E::as_stored;
  if (const std::optional<E> dtype = enum_from_name<E>(flags.dtype)) return *dtype;
  throw Error(ErrorCode::invalid_argument, "[convert] --dtype: {} is not a type of {}", flags.dtype,
              what);
}

ExportResult converted_to_gguf(Files& files, const ConvertFlags& flags, const ExportOptions& how) {
  const bool is_other = is_gguf_name(flags.from) || flags.adapter_only || flags.fold_norms;
  if (is_other) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] a GGUF file is made of a run or a model folder, without --adapter-only "
                "and --fold-norms");
  }
  if (!flags.new_tokens.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--add-tokens: expected a folder to write, got '{}': a GGUF file is made of that",
                flags.to);
  }
  if (flags.max_shard) {
    throw Error(ErrorCode::invalid_argument,
                "--max-shard: expected a folder to write, got '{}', which is one file", flags.to);
  }
  return export_gguf(files, source_of(files, flags, how.log), flags.to,
                     dtype_of<GgufDtype>(flags, "a GGUF file"), how.log);
}

// Digest; of a GGUF file that of what `octet convert` makes of it, in a folder that is gone behind.
std::string digest_of(Files& files, const ConvertFlags& flags, const GlobalOptions& options) {
  const Log log = make_log(options);
  std::optional<TemporaryTree> made;
  if (is_gguf_name(flags.to)) {
    made.emplace(files, flags.to + ".verify");
    import_gguf(files, flags.to, made->path(), {.log = log});
  }
  const std::string folder = made ? made->path() : flags.to;
  ModelSource source = find_model_source(files, folder, {}, unknown_keys(flags.strict));
  if (flags.allow_nonfinite) source.nonfinite = nonfinite_weights(true);
  const Backend backend = open_backend(options, {.same_rows = true});
  return logits_digest(source, text_machine(backend, log),
                       flags.dtype.empty() ? "as-stored" : flags.dtype);
}

void run_convert(const ConvertFlags& flags, const CLI::App& command, const GlobalOptions& options) {
  if (options.device == "cuda")
    expect_flags_read(command, {{"--device", flags.verify, "--verify"}});
  ExportOptions how{.max_shard = flags.max_shard.value_or(ExportOptions{}.max_shard),
                    .nonfinite = nonfinite_weights(flags.allow_nonfinite),
                    .log = make_log(options)};
  const bool is_file = is_gguf_name(flags.to);
  if (!flags.new_tokens.empty()) how.added = read_new_tokens(posix_files(), flags.new_tokens);
  if (!is_file) how.dtype = dtype_of<ExportDtype>(flags, "a model folder");
  const ExportResult result =
      is_file ? converted_to_gguf(posix_files(), flags, how) : converted(posix_files(), flags, how);
  if (flags.verify) {
    const std::string digest = digest_of(posix_files(), flags, options);
    write_atomically(posix_files(),
                     is_file ? flags.to + "." + kVerifyFile : join_path(flags.to, kVerifyFile),
                     digest);
  }
  print_table(options, {{is_file ? "file" : "folder", "tensors", "bytes", "shards"},
                        {cells(flags.to, result.n_tensors, result.n_bytes, result.n_shards)}});
}

// Flags of what is written, besides its types.
void add_content_flags(CLI::App& convert, CLI::Option& adapters, ConvertFlags& flags) {
  convert
      .add_flag("--merge", flags.merge,
                "write adapters merged into the weights, as without it; beside a model without "
                "adapters an error")
      ->excludes(&adapters);
  convert
      .add_option("--add-tokens", flags.new_tokens,
                  "add these tokens behind the vocabulary, one a line, none special; of a .jsonl "
                  "file an object a line: content, special, lstrip, rstrip, single_word, "
                  "normalized; their rows are the mean of the others")
      ->type_name("FILE")
      ->excludes(&adapters);
  convert.add_flag("--fold-norms", flags.fold_norms,
                   "of a folder of a convolutional network: write convolutions that hold the "
                   "batch norms behind them");
  convert
      .add_flag("--verify", flags.verify,
                "write octet_verify.json: logits of fixed rows, which python -m "
                "octet.check_folder repeats with other programs")
      ->excludes(&adapters);
}

}  // namespace

void add_convert_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* convert =
      app.add_subcommand("convert",
                         "write a run, a model folder or a GGUF file as a Hugging Face model "
                         "folder, or a run or a folder as a GGUF file");
  convert
      ->add_option(
          "from,--model", flags->from,
          "a run, one of its checkpoints, a model folder, an adapter's folder (PEFT), or a "
          ".gguf file")
      ->required()
      ->type_name("RUN|DIR|FILE");
  convert
      ->add_option(
          "to,--out", flags->to,
          "the folder to write, or a GGUF file where it ends with .gguf: a name that is free")
      ->required()
      ->type_name("DIR|FILE");
  CLI::Option* dtype =
      convert
          ->add_option(
              "--dtype", flags->dtype,
              "of the weights; without it as they are stored (a run's: its compute copy); "
              "hif8: which Octet alone reads; as-base: of a run that began with a folder of "
              "FP8 weights in that folder's form; f16 and q8_0: of a GGUF file")
          ->check(
              one_of({"bf16", "f32", "fp8-block", "fp8-tensor", "hif8", "as-base", "f16", "q8_0"}));
  CLI::Option* shard = convert
                           ->add_option("--max-shard", flags->max_shard,
                                        "bytes of a file of the folder at most, as 5GB or 500MiB")
                           ->transform(CLI::AsSizeValue(true))
                           ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 60));
  CLI::Option* adapters = convert->add_flag(
      "--adapter-only", flags->adapter_only,
      "of a run with lora.rank its adapters alone, as PEFT stores them; without it they are "
      "merged into the weights");
  adapters->excludes(dtype)->excludes(shard);
  add_adapter_flag(*convert, flags->adapter);
  add_content_flags(*convert, *adapters, *flags);
  add_strict_flag(*convert, flags->strict);
  add_nonfinite_flag(*convert, flags->allow_nonfinite);
  convert->callback([flags, convert, &options] { run_convert(*flags, *convert, options); });
}

}  // namespace octet
