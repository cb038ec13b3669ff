#include "infer/export_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/gguf.h"
#include "base/json.h"
#include "data/dataset.h"
#include "data/row_source.h"
#include "infer/import_gguf.h"
#include "text/byte_alphabet.h"
#include "text/byte_level_json.h"
#include "text/gguf_vocabulary.h"
#include "text/padding.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace octet {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// True if a run's texts were its bytes: of arrays and shards nothing says what their ids are.
bool is_of_bytes(const Files& files, const ModelSource& source) {
  const std::vector<std::string>& data = source.run->data.train;
  const auto is_shard = [](const std::string& path) {
    return path.ends_with(".bin") || path.ends_with(".npy");
  };
  return source.tokenizer == "bytes" && source.spec.vocab >= 256 && !are_arrays(data) &&
         std::ranges::none_of(data, is_shard) && (data.empty() || !are_token_shards(files, data));
}

// A BPE without merges, whose words do not matter.
std::string byte_tokenizer_json() {
  const ByteAlphabet alphabet;
  Json vocab = Json::object();
  for (int32_t code = 0; code < 0x180; ++code) {
    std::string character;
    append_utf8(character, code);
    if (const auto bytes = alphabet.bytes_of(character))
      vocab[character] = static_cast<unsigned char>(bytes->front());
  }
  CHECK(vocab.size() == 256);
  return byte_level_json({.vocab = std::move(vocab)}).dump(1) + "\n";
}

void put_gguf_tokenizer(Files& files, const std::string& path, const std::string& folder) {
  // Nothing is asked of its tensors, which may be of types that no weights are read from.
  const std::string bytes = read_gguf_header(files, path);
  const GgufHeader header(bytes, "tokenizer", path, GgufHeader::Tensors::skipped);
  write_atomically(files, join_path(folder, kTokenizer),
                   gguf_tokenizer_json(header).dump(1) + "\n");
  write_atomically(files, join_path(folder, kTokenizerConfig),
                   gguf_tokenizer_config(header).dump(1) + "\n");
}

}  // namespace

void put_tokenizer(Files& files, const ModelSource& source, const std::string& folder,
                   const Log& log) {
  if (!source.run || !model_def(source.spec.kind).reads_text) return;
  const std::string config = join_path(folder, kTokenizerConfig);
  const auto put_class = [&](const char* name, const char* key, bool value) {
    Json json = Json::object();
    json["tokenizer_class"] = name;
    json[key] = value;
    write_atomically(files, config, json.dump(2) + "\n");
  };
  if (const auto found = find_tokenizer(files, folder)) {
    if (file_name(*found) == "vocab.txt" && !files.exists(config))
      put_class("BertTokenizer", "do_lower_case", true);
  } else if (is_of_bytes(files, source)) {
    write_atomically(files, join_path(folder, kTokenizer), byte_tokenizer_json());
    put_class("PreTrainedTokenizerFast", "clean_up_tokenization_spaces", false);
  } else if (is_gguf_name(source.tokenizer) && files.exists(source.tokenizer)) {
    put_gguf_tokenizer(files, source.tokenizer, folder);
  } else if (source.tokenizer != "bytes" && !source.tokenizer.empty()) {
    log.warning("[convert] '{}' is not written: the folder has no tokenizer", source.tokenizer);
  }
}

bool has_own_tokenizer(const ModelSource& source) {
  if (!source.run || source.run->model.path.empty()) return source.run.has_value();
  // Bytes have no such tokens, so that the folder's stay what its users know.
  if (source.tokenizer.empty() || source.tokenizer == "bytes") return false;
  if (!model_def(source.spec.kind).reads_text) return false;
  std::string model = source.run->model.path;
  while (model.size() > 1 && model.ends_with('/')) model.pop_back();
  return source.tokenizer != model && parent_path(source.tokenizer) != model;
}

Json ids_of_tokenizer(const Files& files, const ModelSource& source) {
  Json ids = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", nullptr}};
  if (source.tokenizer.empty()) return ids;
  if (source.tokenizer != "bytes" && !files.exists(source.tokenizer)) return ids;
  const auto tokenizer = make_tokenizer(files, source.tokenizer);
  if (tokenizer->bos()) ids["bos_token_id"] = *tokenizer->bos();
  if (tokenizer->eos()) ids["eos_token_id"] = *tokenizer->eos();
  if (const auto pad = padding_id(files, source.tokenizer, *tokenizer)) ids["pad_token_id"] = *pad;
  return ids;
}

}  // namespace octet
