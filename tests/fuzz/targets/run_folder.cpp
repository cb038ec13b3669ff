#include <sstream>

#include "fuzz/fuzz_targets.h"
#include "fuzz/memory_files.h"
#include "fuzz/sections.h"
#include "io/checkpoint.h"
#include "io/checkpoint_marker.h"
#include "train/step_report.h"

namespace octet::fuzz {
namespace {

const std::string kCheckpoints = "run/ckpt";
const std::string kCheckpoint = kCheckpoints + "/step-000004";

std::string small_tensors(const std::string& name) {
  static const std::vector<std::byte> data(8, std::byte{0x3c});
  MemoryFiles files;
  const TensorSource source = span_source(tensor_decl(name, Dtype::f32, {2}), data);
  write_safetensors(*files.create("a"), std::span(&source, 1), {});
  return files.bytes("a");
}

// A whole checkpoint but for what the sections say.
void put_checkpoint(MemoryFiles& files, const std::map<std::string, std::string>& sections) {
  Manifest manifest;
  manifest.step = manifest.attempted = 4;
  manifest.recipe = "fp32";
  const std::map<std::string, std::string> usual = {
      {"model.safetensors", small_tensors("weight")},
      {"optim.safetensors", small_tensors("adam_m:weight")},
      {"manifest.json", manifest_to_json(manifest)}};
  Marker marker;
  for (const auto& file : usual) {
    const auto given = sections.find(file.first);
    const std::string& text = given == sections.end() ? file.second : given->second;
    marker[file.first] = write_marked(files, kCheckpoint + "/" + file.first,
                                      [&](FileWriter& out) { out.write(as_bytes(text)); });
  }
  const auto given = sections.find("COMPLETE");
  files.create(kCheckpoint + "/COMPLETE")
      ->write(as_bytes(given == sections.end() ? marker_to_json(marker) : given->second));
}

void read_metrics(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto report = parse_metrics(line);
    if (!report) continue;
    expect(report->step >= 1, "steps from 1 on");
    const auto again = parse_metrics(metrics_json(*report));
    expect(again.has_value() && again->step == report->step, "the same step");
  }
}

}  // namespace

void run_folder(std::string_view bytes) {
  const auto sections = sections_of(bytes);
  is_refused([&] {
    MemoryFiles files;
    put_checkpoint(files, sections);
    const Checkpoints checkpoints(files, kCheckpoints);
    const auto newest = checkpoints.newest();
    if (!newest) return;
    expect(newest->path == kCheckpoint, "the folder that was written");
    expect(newest->manifest.step == 4, "the step of the folder's name");
    for (const auto* file : {&newest->model, &newest->optim}) {
      for (const StoredTensor& tensor : file->tensors()) file->read(tensor.name);
    }
    const std::string once = manifest_to_json(newest->manifest);
    expect(manifest_to_json(parse_manifest(once, "b")) == once, "the same manifest");
  });
  if (const auto metrics = sections.find("metrics.jsonl"); metrics != sections.end())
    read_metrics(metrics->second);
}

}  // namespace octet::fuzz
