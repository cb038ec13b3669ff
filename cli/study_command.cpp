#include "cli/study_command.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "io/checkpoint.h"
#include "ir/states.h"
#include "math/state_error.h"

namespace octet {
namespace {

constexpr std::array kKinds = {MomentKind{Dtype::e4m3, false}, MomentKind{Dtype::e4m3, true},
                               MomentKind{Dtype::e5m2, false}, MomentKind{Dtype::e5m2, true}};

struct StudyFlags {
  std::string run;
  int64_t group = 128;
  double eps = 1e-8;
};

std::vector<float> read_f32(const SafetensorsReader& reader, const std::string& name) {
  const StoredTensor* tensor = reader.find(name);
  if (tensor == nullptr || tensor->dtype != Dtype::f32) {
    throw Error(ErrorCode::bad_data, "{}: expected '{}' in f32, got {}", reader.path(), name,
                tensor == nullptr ? "no such tensor" : "another type");
  }
  const std::vector<std::byte> bytes = reader.read(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The mean over all elements of all tensors, from each tensor's own.
struct Errors {
  std::vector<double> mse = std::vector<double>(kKinds.size() * kKinds.size(), 0.0);
  int64_t n_elems = 0;
  int n_tensors = 0;
};

Errors measure(const SafetensorsReader& optim, const StudyFlags& flags) {
  Errors errors;
  for (const StoredTensor& tensor : optim.tensors()) {
    const auto [use, parameter] = state_key(tensor.name, tensor.dtype.value_or(Dtype::u8));
    if (use != StateUse::moment1) continue;
    const std::vector<float> m = read_f32(optim, tensor.name);
    const std::vector<float> v = read_f32(optim, state_name(StateUse::moment2, parameter));
    const StateErrorTable table =
        state_error_table(m, v, kKinds, {.group = flags.group, .eps = flags.eps});
    const auto n = static_cast<int64_t>(m.size());
    for (size_t i = 0; i < table.mse.size(); ++i) {
      errors.mse[i] += table.mse[i] * static_cast<double>(n);
    }
    errors.n_elems += n;
    ++errors.n_tensors;
  }
  for (double& value : errors.mse)
    value /= static_cast<double>(std::max<int64_t>(errors.n_elems, 1));
  return errors;
}

std::string kind_name(const MomentKind& kind) {
  return fmt::format("{}{}", dtype_name(kind.dtype), kind.expand ? "+x" : "");
}

void run_states(const StudyFlags& flags, const GlobalOptions& options) {
  const Log log = make_log(options);
  const Checkpoints checkpoints(posix_files(), join_path(flags.run, "ckpt"), log);
  const auto newest = checkpoints.newest();
  if (!newest) {
    throw Error(ErrorCode::bad_data, "[study] '{}': expected a run with a whole checkpoint",
                flags.run);
  }
  const Errors errors = measure(newest->optim, flags);
  if (errors.n_tensors == 0) {
    throw Error(ErrorCode::bad_data, "[study] '{}': expected moments ({}NAME), got none",
                newest->path, state_def(StateUse::moment1).prefix);
  }
  log.info("{}: {} tensors, {} elements", newest->path, errors.n_tensors, errors.n_elems);
  Table table{{"m \\ v"}, {}};
  for (const MomentKind& kind : kKinds) table.columns.push_back(kind_name(kind));
  for (size_t i = 0; i < kKinds.size(); ++i) {
    std::vector<std::string> row = {kind_name(kKinds[i])};
    for (size_t j = 0; j < kKinds.size(); ++j) {
      row.push_back(fmt::format("{:.4g}", errors.mse[i * kKinds.size() + j]));
    }
    table.rows.push_back(std::move(row));
  }
  print_table(options, table);
  finish_output();
}

}  // namespace

void add_study_command(CLI::App& app, GlobalOptions& options) {
  CLI::App* study = app.add_subcommand("study", "error studies");
  study->require_subcommand(1);
  auto flags = std::make_shared<StudyFlags>();
  CLI::App* states = study->add_subcommand(
      "states",
      "mean square error of m / (sqrt(v) + eps) when a run's f32 moments are stored in "
      "eight bits: rows by the format of m, columns by that of v");
  states->add_option("run", flags->run, "a run whose moments are f32")
      ->required()
      ->type_name("RUN");
  states->add_option("--group", flags->group, "elements of a group")->check(CLI::Range(1, 1 << 20));
  states->add_option("--eps", flags->eps, "epsilon of the optimizer")->check(as_key("optim.eps"));
  states->callback([flags, &options] { run_states(*flags, options); });
}

}  // namespace octet
