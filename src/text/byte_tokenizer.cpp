#include "base/error.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 256; }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  std::optional<int32_t> eos() const override { return std::nullopt; }
  void encode(std::string_view text, const EncodeTextOptions&,
              std::vector<int32_t>& ids) const override {
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  }
  std::string token_bytes(int32_t id) const override {
    if (id < 0 || id > 255) {
      throw Error(ErrorCode::bad_data, "[tokenizer] bytes: expected ids from 0 to 255, got {}", id);
    }
    return std::string(1, static_cast<char>(id));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id);
    return text;
  }
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace octet
