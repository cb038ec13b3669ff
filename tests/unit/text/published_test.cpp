// Published tokenizers against ids from elsewhere (shared data): whole texts, and edge cases.
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "base/json.h"
#include "text/tokenizer.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/gguf_file.h"

namespace octet::text_published_test {
namespace {

using Ids = std::vector<int32_t>;

const std::string kData = std::string(OCTET_TEST_DATA) + "/data/";
const std::string kGolden = kData + "tokenizers/golden/";

struct Published {
  const char *name, *path, *ids;
};
void PrintTo(const Published& row, std::ostream* out) {
  *out << row.name;
}

class PublishedTokenizer : public testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    const std::string path = kData + "tokenizers/" + GetParam().path;
    if (!posix_files().exists(path)) GTEST_SKIP() << "shared test data absent: " << path;
    tokenizer_ = make_tokenizer(posix_files(), path);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

Ids read_ids(const std::string& path) {
  const std::vector<std::byte> bytes = posix_files().read_bytes(path);
  const size_t width = path.ends_with(".u16") ? 2 : 4;
  Ids ids(bytes.size() / width);
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(&ids[i], &bytes[i * width], width);
  return ids;
}

TEST_P(PublishedTokenizer, meets_the_golden_ids_of_texts) {
  const struct {
    std::string name, path;
  } texts[] = {
      {"cpp_docs_100k", kGolden + "texts/cpp_docs_100k.txt"},
      {"gsm8k_test_qa", kGolden + "texts/gsm8k_test_qa.txt"},
      {"tinyshakespeare", kData + "text/tinyshakespeare/input.txt"},
      {"tinystories_100k", kGolden + "texts/tinystories_100k.txt"},
      {"wiki_val_100k", kGolden + "texts/wiki_val_100k.txt"},
      {"wikitext2_raw_test_hfjoined", kData + "text/wikitext2/wikitext2_raw_test.hfjoined.txt"},
  };
  if (GetParam().ids == nullptr) GTEST_SKIP() << "no golden ids of whole texts";
  WordCache words;
  for (const auto& [name, path] : texts) {
    std::string golden = kGolden + "ids/" + GetParam().ids + "." + name + ".u16";
    if (!posix_files().exists(golden)) golden.replace(golden.size() - 3, 3, "u32");
    if (!posix_files().exists(golden)) continue;  // Qwen's are only in the summary
    const std::string text = posix_files().read_text(path);
    const Ids ids = tokenizer_->encode(text, {.words = &words});
    EXPECT_TRUE(ids == read_ids(golden)) << name << ": " << ids.size() << " ids";
    EXPECT_TRUE(tokenizer_->decode(ids) == text) << name;
  }
}

TEST_P(PublishedTokenizer, meets_the_golden_ids_of_edge_cases) {
  if (GetParam().ids == nullptr) GTEST_SKIP() << "no golden ids of edge cases";
  const Json cases = parse_json(posix_files().read_text(kGolden + "edge_cases.json"), "edge cases");
  for (const Json& one : cases) {
    const auto text = one.at("text").get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text), one.at(GetParam().ids).get<Ids>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, PublishedTokenizer,
    testing::Values(Published{"gpt2", "gpt2", "gpt2"},
                    Published{"llama2", "llama2/tokenizer.model", "llama2"},
                    Published{"llama2_bin", "llama2/tokenizer.bin", "llama2"},
                    Published{"llama3", "llama3", "llama3"},
                    Published{"qwen", "qwen/qwen.tiktoken", "qwen"},
                    Published{"olmo1", "olmo/allenai_gpt-neox-olmo-dolma-v1_5.json", "olmo1"},
                    Published{"dolma2", "olmo/allenai_dolma2.json", "dolma2"}),
    [](const auto& row) { return row.param.name; });

// Texts between separators, and a line of ids for each.
struct LlamaCpp {
  const char *name, *path, *golden;
};
void PrintTo(const LlamaCpp& row, std::ostream* out) {
  *out << row.name;
}
// A GGUF file that names no pre-tokenizer, with this one as its first key.
std::string with_pre_tokenizer(const std::string& path, const std::string& name) {
  constexpr size_t kCount = 16, kFirstKey = 24;
  std::string bytes = posix_files().read_text(path);
  uint64_t n = 0;
  std::memcpy(&n, bytes.data() + kCount, sizeof n);
  bytes.replace(kCount, sizeof n, test::GgufFile::raw(n + 1));
  return bytes.insert(kFirstKey, test::GgufFile::text("tokenizer.ggml.pre") +
                                     test::GgufFile::raw<uint32_t>(8) + test::GgufFile::text(name));
}

class LlamaCppGolden : public testing::TestWithParam<LlamaCpp> {};

TEST_P(LlamaCppGolden, ids_are_met) {
  const std::string base = kGolden + "llamacpp/ggml-vocab-" + GetParam().golden + ".gguf";
  const std::string path = kData + "tokenizers/" + GetParam().path;
  if (!posix_files().exists(path)) GTEST_SKIP() << "shared test data absent: " << path;
  const test::ScratchFolder folder;
  const bool is_gguf = path.ends_with(".gguf");
  const auto tokenizer = make_tokenizer(
      posix_files(), is_gguf ? folder.put("m.gguf", with_pre_tokenizer(path, "mpt")) : path);
  const std::string texts = posix_files().read_text(base + ".inp");
  std::istringstream lines(posix_files().read_text(base + ".out"));
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  size_t at = 0;
  int n_texts = 0;
  for (std::string line; std::getline(lines, line); ++n_texts) {
    const size_t end = texts.find(kSeparator, at);
    const std::string text = texts.substr(at, end - at);
    at = end == texts.npos ? texts.size() : end + kSeparator.size();
    std::istringstream numbers(line);
    const Ids expected{std::istream_iterator<int32_t>(numbers), {}};
    EXPECT_EQ(tokenizer->encode(text), expected) << text;
  }
  EXPECT_GT(n_texts, 30);
}

INSTANTIATE_TEST_SUITE_P(
    Files, LlamaCppGolden,
    testing::Values(LlamaCpp{"gpt2", "gpt2", "gpt-2"}, LlamaCpp{"llama3", "llama3", "llama-bpe"},
                    LlamaCpp{"qwen", "qwen", "qwen2"},
                    LlamaCpp{"llama2", "llama2/tokenizer.model", "llama-spm"},
                    LlamaCpp{"phi3", "llama2/tokenizer.model", "phi-3"},
                    LlamaCpp{"gptneox", "gptneox/ggml-vocab-gpt-neox.gguf", "mpt"}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace octet::text_published_test
