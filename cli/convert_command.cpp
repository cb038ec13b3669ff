#include "cli/commands.h"

#include <memory>

#include "base/error.h"
#include "base/named_enum.h"
#include "cli/model_flags.h"
#include "cli/model_folder.h"
#include "infer/adapter_note.h"
#include "infer/export.h"
#include "infer/import_gguf.h"

namespace octet {
namespace {

bool has_adapters(const Files& files, const ModelSource& source) {
  return !source.weights.adapter.empty() ||
         find_adapter_note(files, source.weights.path).has_value();
}

struct ConvertFlags {
  std::string from, to, dtype, adapter;
  uint64_t max_shard = ExportOptions{}.max_shard;
  bool strict = false, allow_nonfinite = false, adapter_only = false, fold_norms = false,
       merge = false;
};

ExportResult converted(Files& files, const ConvertFlags& flags, const ExportOptions& how) {
  if (is_gguf_name(flags.from) && !flags.adapter_only)
    return import_gguf(files, flags.from, flags.to, how);
  const ModelPaths paths = model_paths(files, flags.from, flags.adapter);
  ModelSource source = find_model_source(files, paths.model, how.log, unknown_keys(flags.strict));
  if (!paths.adapter.empty())
    source = with_adapter(files, std::move(source), paths.adapter, how.log);
  if (flags.allow_nonfinite) source.nonfinite = how.nonfinite;
  if (flags.merge && !has_adapters(files, source)) {
    throw Error(ErrorCode::invalid_argument,
                "--merge: expected a model with adapters (--adapter DIR, or a run with lora.rank), "
                "got '{}'",
                flags.from);
  }
  if (flags.fold_norms) source = with_folded_norms(std::move(source));
  return flags.adapter_only ? export_adapter(files, source, flags.to, how.log)
                            : export_model(files, source, flags.to, how);
}

void run_convert(const ConvertFlags& flags, const GlobalOptions& options) {
  ExportOptions how{.max_shard = flags.max_shard,
                    .nonfinite = nonfinite_weights(flags.allow_nonfinite),
                    .log = make_log(options)};
  if (!flags.dtype.empty()) how.dtype = enum_from_name<ExportDtype>(flags.dtype).value();
  const ExportResult result = converted(posix_files(), flags, how);
  print_table(options, {{"folder", "tensors", "bytes", "shards"},
                        {cells(flags.to, result.n_tensors, result.n_bytes, result.n_shards)}});
}

}  // namespace

void add_convert_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* convert =
      app.add_subcommand("convert",
                         "write a run, a model folder or a GGUF file as a Hugging Face model "
                         "folder");
  convert
      ->add_option(
          "from", flags->from,
          "a run, one of its checkpoints, a model folder, an adapter's folder (PEFT), or a "
          ".gguf file")
      ->required()
      ->type_name("RUN|DIR|FILE");
  convert->add_option("to", flags->to, "the folder to write: a name that is free")
      ->required()
      ->type_name("DIR");
  CLI::Option* dtype =
      convert
          ->add_option("--dtype", flags->dtype,
                       "of the weights; without it as they are stored (a run's: its compute copy); "
                       "hif8: which Octet alone reads")
          ->check(one_of({"bf16", "f32", "fp8-block", "fp8-tensor", "hif8"}));
  convert->add_option("--max-shard", flags->max_shard, "bytes of a file at most, as 5GB or 500MiB")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 60));
  convert
      ->add_flag(
          "--adapter-only", flags->adapter_only,
          "of a run with lora.rank its adapters alone, as PEFT stores them; without it they are "
          "merged into the weights")
      ->excludes(dtype);
  add_adapter_flag(*convert, flags->adapter);
  convert->add_flag("--merge", flags->merge,
                    "write adapters merged into the weights, as without it; beside a model without "
                    "adapters an error");
  convert->add_flag("--fold-norms", flags->fold_norms,
                    "of a folder of kind resnet: write convolutions that hold the batch norms "
                    "behind them");
  add_strict_flag(*convert, flags->strict);
  add_nonfinite_flag(*convert, flags->allow_nonfinite);
  convert->callback([flags, &options] { run_convert(*flags, options); });
}

}  // namespace octet
