#include "cli/commands.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "cli/eval_tasks.h"
#include "cli/shown_table.h"
#include "infer/tasks/evaluations.h"
#include "io/checkpoint.h"
#include "io/model_files.h"
#include "ir/types.h"
#include "train/edge_telemetry.h"

namespace octet {
namespace {

const std::vector<std::string> kTensorColumns = {"file", "tensor", "dtype", "shape", "bytes"};

std::vector<std::string> tensor_row(const std::string& file, const StoredTensor& tensor) {
  const auto dtype = tensor.dtype ? dtype_name(*tensor.dtype) : safe_dtype_name(tensor.stored);
  return cells(file, tensor.name, dtype, to_string(tensor.shape), tensor.n_bytes());
}

void add_file(const SafetensorsReader& reader, Table& table) {
  for (const StoredTensor& tensor : reader.tensors()) {
    table.rows.push_back(tensor_row(file_name(reader.path()), tensor));
  }
}

// A value as lines: "  key: value", and what an object holds below it, in one more step. Keys with
// dots are of a configuration, whose sections stand once.
std::string indented(const std::string& key, const OrderedJson& value, size_t depth) {
  const std::string before(2 * depth, ' ');
  if (!value.is_object() || value.empty()) {
    return fmt::format("{}{}: {}\n", before, key,
                       value.is_string() ? value.get<std::string>() : value.dump());
  }
  std::string text = fmt::format("{}{}:\n", before, key), section;
  for (const auto& item : value.items()) {
    const size_t dot = item.key().find('.');
    const std::string of = dot == std::string::npos ? "" : item.key().substr(0, dot);
    if (!of.empty() && of != section) text += fmt::format("{}  {}:\n", before, of);
    section = of;
    const std::string name = of.empty() ? item.key() : item.key().substr(dot + 1);
    text += indented(name, item.value(), depth + (of.empty() ? 1 : 2));
  }
  return text;
}

// Findings beside a run's checkpoints.
struct RunFindings {
  std::vector<OrderedJson> evaluations = {};
  Table edges = {};
};

// Other checkpoints and the manifest as text; with --json one object with all.
void print_checkpoint(const GlobalOptions& options, const std::vector<CheckpointEntry>& entries,
                      const LoadedCheckpoint& loaded, const RunFindings& found) {
  Table tensors{kTensorColumns, {}};
  add_file(loaded.model, tensors);
  add_file(loaded.optim, tensors);
  const auto manifest = OrderedJson::parse(manifest_to_json(loaded.manifest));
  if (options.json) {
    OrderedJson json = {{"checkpoint", loaded.path}, {"manifest", manifest}};
    for (const CheckpointEntry& entry : entries) {
      json["checkpoints"].push_back({{"step", entry.step},
                                     {"path", entry.path},
                                     {"whole", entry.is_whole()},
                                     {"problem", entry.problem}});
    }
    if (!found.evaluations.empty()) json["evaluations"] = found.evaluations;
    json["tensors"] = table_json(tensors);
    if (!found.edges.rows.empty()) json["edges"] = table_json(found.edges);
    write_out(json_text(json));
    return;
  }
  Table list{{"checkpoint", "step", "state"}, {}};
  for (const CheckpointEntry& entry : entries) {
    list.rows.push_back(cells(entry.path, entry.step, entry.is_whole() ? "whole" : entry.problem));
  }
  write_out(shown_text(options, list) + "\n");
  write_out("manifest of " + loaded.path + "\n");
  for (const auto& item : manifest.items()) {
    if (item.key() != "tensors") write_out(indented(item.key(), item.value(), 1));
  }
  write_out("\n");
  const auto show = [&](const Table& table) {
    if (!table.rows.empty()) write_out(shown_text(options, table) + "\n");
  };
  if (!found.evaluations.empty()) show(evaluation_table(found.evaluations));
  show(found.edges);
  write_out(shown_text(options, tensors));
}

constexpr size_t kMaxEdges = 12;

// Edges of the last sample of telemetry, the worst first, for programs all of them; nothing where
// there is none.
Table edge_table(Files& files, const std::string& run, const GlobalOptions& options) {
  const bool all = options.json;
  Table table{
      {"edge", "step", "dtype", "rms", "amax", "zeros", "saturated", "SNR dB", "drift", "rescale"},
      {}};
  for (const auto& [step, edge] : newest_edges(files, join_path(run, "telemetry.jsonl"))) {
    if (!all && table.rows.size() == kMaxEdges) break;
    const int rescale = edge.rescale();
    table.rows.push_back(cells(
        edge.edge, step, dtype_name(edge.dtype), fmt::format("{:.3g}", edge.rms),
        fmt::format("{:.3g}", edge.amax), fmt::format("{:.4f}", edge.zeros),
        fmt::format("{:.6f}", edge.saturated), edge.snr ? fmt::format("{:.1f}", *edge.snr) : "",
        std::isfinite(edge.drift()) ? fmt::format("{:+.1f}", edge.drift()) : "",
        rescale == 0   ? ""
        : options.json ? fmt::to_string(std::ldexp(1.0, rescale))
                       : fmt::format("2^{}", rescale)));
  }
  return table;
}

void run_inspect(const std::string& path, const GlobalOptions& options) {
  Files& files = posix_files();
  if (!files.exists(path)) {
    throw Error(ErrorCode::bad_data,
                "[inspect] '{}': expected a run, a checkpoint, a model folder or a .safetensors "
                "file, got no such path",
                path);
  }
  const Log log = make_log(options);
  const std::string folder = join_path(path, "ckpt");
  if (files.exists(folder)) {
    const Checkpoints checkpoints(files, folder, log);
    if (const auto newest = checkpoints.newest()) {
      return print_checkpoint(options, checkpoints.list(), *newest,
                              {.evaluations = read_evaluations(files, path),
                               .edges = edge_table(files, path, options)});
    }
    throw Error(ErrorCode::bad_data, "[inspect] '{}': expected a whole checkpoint, got none",
                folder);
  }
  if (files.exists(join_path(path, "COMPLETE"))) {
    const Checkpoints checkpoints(files, parent_path(path), log);
    return print_checkpoint(options, {}, checkpoints.load(path), {});
  }
  Table table{kTensorColumns, {}};
  if (files.is_directory(path)) {
    const ModelFiles model = ModelFiles::open(files, path);
    for (const std::string& name : model.names()) {
      table.rows.push_back(tensor_row(file_name(path), model.at(name)));
    }
  } else {
    // JSON's brace stands behind eight bytes of a length.
    std::array<char, 9> first = {};
    const auto reader = files.open(path);
    if (reader->size() >= first.size()) reader->read_at(0, first);
    if (!path.ends_with(".safetensors") && first[8] != '{') {
      throw Error(ErrorCode::bad_data,
                  "[inspect] '{}': expected a run, a checkpoint, a model folder or a .safetensors "
                  "file, got another file",
                  path);
    }
    add_file(SafetensorsReader::open(files, path), table);
  }
  print_table(options, table);
}

}  // namespace

void add_inspect_command(CLI::App& app, GlobalOptions& options) {
  auto path = std::make_shared<std::string>();
  CLI::App* inspect =
      app.add_subcommand("inspect", "list what a run, a checkpoint or a file of tensors holds");
  inspect->add_option("path", *path, "a run, a checkpoint, a model folder or a .safetensors file")
      ->required()
      ->type_name("RUN|FILE");
  inspect->callback([path, &options] { run_inspect(*path, options); });
}

}  // namespace octet
