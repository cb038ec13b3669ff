#include "text/padding.h"

#include <vector>

#include "base/gguf.h"
#include "base/json.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer_files.h"
#include "text/tokenizer_folder.h"

namespace octet {
namespace {

std::optional<int32_t> special_of(const Tokenizer& tokenizer,
                                  const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (const auto id = tokenizer.special_id(text)) return id;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int32_t> padding_id(const Files& files, const std::string& path,
                                  const Tokenizer& tokenizer) {
  if (path == "bytes") return std::nullopt;
  const std::string file = files.is_directory(path) ? find_tokenizer(files, path).value() : path;
  const std::vector<std::string> usual = {"[PAD]", "<pad>", "<|pad|>", "<|padding|>"};
  if (is_gguf_name(file)) {  // which says all of itself
    const std::string bytes = read_gguf_header(files, file);
    const GgufHeader header(bytes, "tokenizer", file, GgufHeader::Tensors::skipped);
    const Json ids = gguf_generation_config(header);
    return ids.contains("pad_token_id") ? ids["pad_token_id"].get<int32_t>()
                                        : special_of(tokenizer, usual);
  }
  const TokenizerFolder folder = read_tokenizer_folder(files, parent_path(file));
  if (folder.pad) return special_of(tokenizer, {*folder.pad});
  if (file.ends_with(".json")) {
    const Json json = parse_json(files.read_text(file), file);
    const Json padding = json.value("padding", Json());
    if (padding.is_object()) {
      const int64_t id = JsonObject(padding, file).integer("pad_id"), n = tokenizer.vocab_size();
      if (id < 0 || id >= n)
        bad_tokenizer(file, "padding: expected a pad_id from 0 to {}, got {}", n - 1, id);
      return static_cast<int32_t>(id);
    }
  }
  return special_of(tokenizer, usual);
}

CutSide cut_side(const Files& files, const std::string& path) {
  if (path == "bytes") return CutSide::end;
  const std::string file = files.is_directory(path) ? find_tokenizer(files, path).value() : path;
  if (file.ends_with(".gguf")) return CutSide::end;
  const std::string folder = parent_path(file);
  std::string said = read_tokenizer_folder(files, folder).truncation_side;
  std::string where = join_path(folder, "tokenizer_config.json") + ": truncation_side";
  if (said.empty() && file.ends_with(".json")) {
    const Json truncation = parse_json(files.read_text(file), file).value("truncation", Json());
    if (truncation.is_object()) said = JsonObject(truncation, file).string_or("direction", "");
    where = file + ": direction";
  }
  if (said.empty() || said == "right" || said == "Right") return CutSide::end;
  if (said == "left" || said == "Left") return CutSide::start;
  bad_tokenizer(where, "expected right or left, got '{}'", said);
}

}  // namespace octet
