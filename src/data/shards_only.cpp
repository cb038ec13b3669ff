#include "data/shards_only.h"

#include <algorithm>

#include "base/error.h"
#include "data/shards.h"
#include "data/text_files.h"
#include "data/tokenize.h"

namespace octet {
namespace {

class NoTokenizer : public Tokenizer {
 public:
  explicit NoTokenizer(int64_t vocab) : vocab_(vocab) {}
  int64_t vocab_size() const override { return vocab_; }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  std::optional<int32_t> eos() const override { return std::nullopt; }
  void encode(std::string_view, const EncodeTextOptions&, std::vector<int32_t>&) const override {
    refuse();
  }
  std::string token_bytes(int32_t) const override { refuse(); }
  std::string decode(std::span<const int32_t>) const override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::invalid_argument, "[data] expected token shards, got text");
  }

  int64_t vocab_;
};

// Beside shards stand the ends of their documents and what made them.
bool belongs_to_shards(const std::string& path) {
  return is_shard_name(path) || path.ends_with(".ends") || file_name(path) == kTokenizeManifest;
}

}  // namespace

bool are_token_shards(const Files& files, std::span<const std::string> paths) {
  return std::ranges::all_of(paths, [&](const std::string& path) {
    if (!files.exists(path)) return false;
    if (!files.is_directory(path)) return is_shard_name(path);
    const auto inner = files_under(files, path).paths;
    return std::ranges::all_of(inner, belongs_to_shards);
  });
}

std::unique_ptr<Tokenizer> no_tokenizer(int64_t vocab) {
  return std::make_unique<NoTokenizer>(vocab);
}

}  // namespace octet
