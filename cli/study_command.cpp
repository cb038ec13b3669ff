#include "cli/commands.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "cli/backend.h"
#include "cli/calib_option.h"
#include "cli/model_flags.h"
#include "cli/study_files.h"
#include "formats/arrays.h"
#include "infer/weights.h"
#include "io/checkpoint.h"
#include "ir/states.h"
#include "ptq/ptq.h"
#include "study/formats.h"
#include "study/groups.h"
#include "study/states.h"

namespace octet {
namespace {

struct StudyFlags : ModelFlags {
  std::string out;
  std::string run;  // states
  StatesStudyOptions states = {};
  int64_t samples = int64_t{1} << 20;  // formats
  std::vector<std::string> text;       // activations, with ModelFlags
  std::string baseline = "tensor";
  int64_t rows = 4, seq = 0;
  std::string file;                  // tensors
  std::vector<std::string> folders;  // report
};

std::vector<float> read_f32(const SafetensorsReader& reader, const std::string& name) {
  const StoredTensor* tensor = reader.find(name);
  if (tensor == nullptr || tensor->dtype != Dtype::f32) {
    throw Error(ErrorCode::bad_data, "{}: expected '{}' in f32, got {}", reader.path(), name,
                tensor == nullptr ? "no such tensor" : "another type");
  }
  return decode_values(Dtype::f32, reader.read(name));
}

// Prints the table; with --out writes files as well.
void finish(const Study& study, const StudyFlags& flags, const GlobalOptions& options) {
  if (!flags.out.empty()) write_study(posix_files(), study, flags.out);
  const Table table{study.table.columns, study.table.rows};
  const bool is_whole = options.json || options.wide;
  print_table(options, is_whole ? table : short_table(table.columns, table.rows));
  finish_output();
}

void run_states(const StudyFlags& flags, const GlobalOptions& options) {
  const Log log = make_log(options);
  const Checkpoints checkpoints(posix_files(), join_path(flags.run, "ckpt"), log);
  const auto newest = checkpoints.newest();
  if (!newest) {
    throw Error(ErrorCode::bad_data, "[study] '{}': expected a run with a whole checkpoint",
                flags.run);
  }
  const SafetensorsReader& optim = newest->optim;
  size_t i = 0;
  int64_t n_tensors = 0, n_elems = 0;
  const auto next = [&]() -> std::optional<StatesOfTensor> {
    for (; i < optim.tensors().size(); ++i) {
      const StoredTensor& tensor = optim.tensors()[i];
      const auto [use, parameter] = state_key(tensor.name, tensor.dtype.value_or(Dtype::u8));
      if (use != StateUse::moment1) continue;
      ++i;
      StatesOfTensor states{parameter, read_f32(optim, tensor.name),
                            read_f32(optim, state_name(StateUse::moment2, parameter))};
      if (states.m.empty() || states.m.size() != states.v.size()) {
        throw Error(ErrorCode::bad_data, "{}: expected as many values of m as of v of '{}'",
                    optim.path(), parameter);
      }
      ++n_tensors;
      n_elems += std::ssize(states.m);
      return states;
    }
    if (n_tensors == 0) {
      throw Error(ErrorCode::bad_data, "[study] '{}': expected moments ({}NAME), got none",
                  newest->path, state_def(StateUse::moment1).prefix);
    }
    return std::nullopt;
  };
  const Study study = study_states(next, flags.states);
  log.info("{}: {} tensors, {} elements", newest->path, n_tensors, n_elems);
  finish(study, flags, options);
}

void run_formats(const StudyFlags& flags, const GlobalOptions& options) {
  finish(study_formats(flags.samples), flags, options);
}

void run_activations(const StudyFlags& flags, const GlobalOptions& options) {
  const Log log = make_log(options);
  ModelSource source = open_model_source(flags, log);
  constexpr int64_t kLongest = 512;
  const int64_t seq = flags.seq > 0 ? flags.seq : std::min(source.seq, kLongest);
  if (!source.run) source.spec.rope_seq = seq;
  const TokenStream stream = open_model_text(source, flags.text, log);
  const std::vector<Batch> rows = calibration_rows(stream, flags.rows, seq);
  int64_t n_rows = 0;
  for (const Batch& batch : rows) n_rows += batch.batch;
  if (n_rows < flags.rows)
    log.warning("--rows: expected {} rows of {} tokens, got {}: going on with these", flags.rows,
                seq, n_rows);
  const WeightReader weights(posix_files(), source.weights, source.spec, source.nonfinite);
  Backend backend = open_backend(options);
  finish(study_activations(
             source.spec, rows, [&](const std::string& name) { return weights.read(name); },
             backend, flags.baseline),
         flags, options);
}

void run_tensors(const StudyFlags& flags, const GlobalOptions& options) {
  const Study study = study_tensors(SafetensorsReader::open(posix_files(), flags.file));
  constexpr size_t kMaxNamed = 5;
  const std::span<const std::string> left_out = study.left_out;
  if (!left_out.empty()) {
    make_log(options).warning("[study] {}: {} tensors have no row ({}{})", flags.file,
                              left_out.size(),
                              fmt::join(left_out.first(std::min(left_out.size(), kMaxNamed)), ", "),
                              left_out.size() > kMaxNamed ? ", ..." : "");
  }
  finish(study, flags, options);
}

void run_report(const StudyFlags& flags, const GlobalOptions& options) {
  write_study_page(posix_files(), flags.folders, flags.out);
  print_table(options, {{"page", "studies"},
                        {cells(join_path(flags.out, "index.html"), flags.folders.size())}});
}

using Flags = std::shared_ptr<StudyFlags>;

CLI::App* add_study(CLI::App& study, const Flags& flags, const char* name, const char* help) {
  CLI::App* command = study.add_subcommand(name, help);
  command->add_option("--out", flags->out, "a folder for tables (CSV) and figures (SVG)");
  return command;
}

void add_states(CLI::App& study, const Flags& flags, GlobalOptions& options) {
  CLI::App* states =
      add_study(study, flags, "states",
                "mean square error of m / (sqrt(v) + eps) when a run's f32 moments are stored in "
                "eight bits: rows by the format of m, columns by that of v");
  states->alias("optimizer-states");
  states->add_option("run", flags->run, "a run whose moments are f32")
      ->required()
      ->type_name("RUN");
  states->add_option("--group", flags->states.group, "elements of a group")
      ->check(CLI::Range(1, 1 << 20));
  states->add_option("--eps", flags->states.eps, "epsilon of the optimizer")
      ->check(as_key("optim.eps"));
  states->callback([flags, &options] { run_states(*flags, options); });
}

void add_activations(CLI::App& study, const Flags& flags, GlobalOptions& options) {
  CLI::App* activations = add_study(study, flags, "activations",
                                    "signal to noise of the inputs of norms in E4M3: one scale "
                                    "for the tensor, for groups of a row, for blocks");
  add_model_flags(*activations, *flags);
  activations->add_option("--data", flags->text, "text, folders or token shards")
      ->required()
      ->delimiter(',');
  activations
      ->add_option("--baseline", flags->baseline,
                   "the grouping that the others are compared with, norm by norm")
      ->check(one_of(activation_groupings()));
  activations->add_option("--rows", flags->rows, "sequences")->check(CLI::Range(1, 64));
  activations->add_option("--seq", flags->seq, "tokens of each; 0: the model's, at most 512")
      ->check(CLI::NonNegativeNumber);
  activations->callback([flags, &options] { run_activations(*flags, options); });
}

}  // namespace

void add_study_command(CLI::App& app, GlobalOptions& options) {
  CLI::App* study = app.add_subcommand("study", "error studies");
  study->require_subcommand(1);
  const auto flags = std::make_shared<StudyFlags>();
  add_states(*study, flags, options);
  CLI::App* formats =
      add_study(*study, flags, "formats", "signal to noise of normal numbers of every size");
  formats->add_option("--samples", flags->samples, "normal numbers for each figure")
      ->check(CLI::Range(1, 1 << 26));
  formats->callback([flags, &options] { run_formats(*flags, options); });
  add_activations(*study, flags, options);
  CLI::App* tensors =
      add_study(*study, flags, "tensors", "tensors of a file: range, signal to noise by format");
  tensors->add_option("file", flags->file, "a safetensors file")->required()->type_name("FILE");
  tensors->callback([flags, &options] { run_tensors(*flags, options); });
  CLI::App* report = study->add_subcommand("report", "one page of what studies wrote");
  report->add_option("folders", flags->folders, "the --out of studies")
      ->required()
      ->type_name("DIR");
  report->add_option("--out", flags->out, "the page's folder")->required();
  report->callback([flags, &options] { run_report(*flags, options); });
}

}  // namespace octet
