#include <algorithm>
#include <cstring>

#include "fuzz/fuzz_targets.h"
#include "fuzz/memory_files.h"
#include "fuzz/sections.h"
#include "infer/export.h"
#include "infer/weights.h"
#include "io/model_files.h"
#include "nn/hf_names.h"

namespace octet::fuzz {
namespace {

const std::string kFolder = "m", kOut = "m/out";
constexpr size_t kDataBytes = 640;  // of each file of tensors whose header is not followed by data

// A section of a name that ends with .safetensors is a header alone: the length before it and the
// data behind it are made.
std::string file_of(const std::string& name, const std::string& text) {
  if (!name.ends_with(".safetensors")) return text;
  const uint64_t n_header = text.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &n_header, 8);
  file += text;
  for (size_t i = 0; i < kDataBytes; ++i) file += static_cast<char>(i * 37 % 128);
  return file;
}

// Small enough that a folder is gone through many times a second.
bool is_small(const ModelSpec& spec) {
  return spec.layers <= 8 && std::max({spec.hidden, spec.ffn, spec.vocab, spec.max_positions,
                                       spec.heads * spec.head_dim}) <= 512;
}

// Whatever is read can be written, and holds the same bytes then.
void expect_same_tensors(const Files& files, const ModelFiles& model, const ModelSpec& spec) {
  const ModelFiles again = ModelFiles::open(files, kOut);
  for (const std::string& stored : model.names()) {
    const auto name = parameter_name(spec, stored);
    if (!name) continue;
    expect(again.at(*name).shape == model.at(stored).shape, "the same shape");
    expect(again.at(*name).stored == model.at(stored).stored, "the same dtype");
    expect(again.read(*name) == model.read(stored), "the same bytes");
  }
}

}  // namespace

// A folder of a model, its files in sections: refused, or read to the last weight, and written.
void model_folder(std::string_view bytes) {
  is_refused([&] {
    MemoryFiles files;
    for (const auto& [name, text] : sections_of(bytes)) {
      files.create(join_path(kFolder, name))->write(as_bytes(file_of(name, text)));
    }
    const ModelFiles model = ModelFiles::open(files, kFolder);
    for (const std::string& name : model.names()) model.read(name);
    const ModelSource source = find_model_source(files, kFolder);
    if (!is_small(source.spec)) return;
    const WeightReader weights(files, kFolder, source.spec);
    for (const ParameterSpec& parameter : model_parameters(source.spec)) {
      const auto n = static_cast<size_t>(n_elems(parameter.shape));
      expect(weights.read(parameter.name).size() == n, "a value for each element");
    }
    export_model(files, source, kOut, {});
    expect_same_tensors(files, model, source.spec);
  });
}

}  // namespace octet::fuzz
