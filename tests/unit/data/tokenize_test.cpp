#include "data/tokenize.h"

#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>

#include "base/json.h"
#include "data/dataset.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_tokenize_test {
namespace {

using test::error_of;
using test::ScratchFolder;

const std::string kTiny = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

std::string gzip(const std::string& text) {
  z_stream state = {};
  deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(packed.data());
  state.avail_out = static_cast<uInt>(packed.size());
  deflate(&state, Z_FINISH);
  packed.resize(state.total_out);
  deflateEnd(&state);
  return packed;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

std::string xz(const std::string& text) {
  std::string packed(lzma_stream_buffer_bound(text.size()), '\0');
  size_t n = 0;
  lzma_easy_buffer_encode(6, LZMA_CHECK_CRC32, nullptr,
                          reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                          reinterpret_cast<uint8_t*>(packed.data()), &n, packed.size());
  packed.resize(n);
  return packed;
}

std::string read_all(ByteStream& stream, size_t piece) {
  std::string all, part(piece, '\0');
  while (const size_t n = stream.read(part)) all.append(part, 0, n);
  return all;
}

std::string many_lines() {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += fmt::format("line {}\n", i);
  return text;
}

TEST(ByteStream, unpacks_one_stream_or_several) {
  const ScratchFolder folder;
  const std::string text = many_lines();
  for (const auto pack : {gzip, zstd, xz}) {
    const std::string path = folder.put("packed", pack(text) + pack("and more"));
    for (const size_t piece : {size_t{1000}, size_t{1} << 20}) {
      EXPECT_TRUE(read_all(*open_stream(posix_files(), path), piece) == text + "and more");
    }
  }
  EXPECT_EQ(read_all(*open_stream(posix_files(), folder.put("plain", "text")), 3), "text");
  EXPECT_EQ(read_all(*open_stream(posix_files(), folder.put("empty", "")), 3), "");
}

TEST(ByteStream, refuses_packed_data_that_is_damaged_or_cut_short) {
  const ScratchFolder folder;
  const std::string text = many_lines();
  const struct {
    std::string (*pack)(const std::string&);
    std::string kind;
  } rows[] = {{gzip, "gzip"}, {zstd, "zstd"}, {xz, "xz"}};
  for (const auto& [pack, kind] : rows) {
    const std::string whole = pack(text);
    std::string damaged = whole;
    for (size_t i = damaged.size() / 2; i < damaged.size() / 2 + 40; ++i) damaged[i] ^= 0x5A;
    for (const std::string& bytes : {whole.substr(0, whole.size() / 2), damaged, whole + "x"}) {
      const std::string path = folder.put("packed", bytes);
      EXPECT_EQ(
          error_of([&] { read_all(*open_stream(posix_files(), path), 1 << 16); }, folder.path()),
          "[data] DIR/packed: expected whole " + kind + " data, got damaged data or its start");
    }
  }
}

std::vector<std::string> texts_of(const std::string& path, const DocumentOptions& options = {}) {
  DocumentReader reader(posix_files(), path, options);
  std::vector<std::string> texts;
  while (auto document = reader.next()) {
    texts.push_back(document->dropped.empty() ? document->text : "!" + document->dropped);
  }
  return texts;
}

TEST(Documents, are_files_or_parts_between_separators) {
  const ScratchFolder folder;
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts_of(folder.put("a.txt", " one\n")), Texts{" one\n"});
  EXPECT_EQ(texts_of(folder.put("b.txt", "")), Texts{});
  EXPECT_EQ(texts_of(folder.put("c.txt", " one\n<|e|>\n two <|e|> \n"), {.separator = "<|e|>"}),
            (Texts{"one", "two", "!empty"}));
  EXPECT_EQ(texts_of(folder.put("d.txt", std::string("a\0b", 3))), Texts{"!has a NUL"});
  EXPECT_EQ(texts_of(folder.put("e.txt", "a\xff")), Texts{"!not UTF-8"});
  const std::string lines =
      "{\"text\": \"one\"}\n\n{\"text\": 1}\n[]\nnonsense\n{\"text\": \"\"}\n{\"text\": "
      "\"t\\u00e9\"}";
  const Texts expected = {"one", "!empty", "!no text", "!no text", "!not JSON", "!empty", "té"};
  EXPECT_EQ(texts_of(folder.put("f.jsonl", lines)), expected);
  EXPECT_EQ(texts_of(folder.put("f.jsonl.gz", gzip(lines))), expected);
  EXPECT_EQ(texts_of(folder.put("g.json", "{\"body\": \"x\"}"), {.text_key = "body"}), Texts{"x"});
  EXPECT_EQ(texts_of(folder.put("i.jsonl",
                                R"({"text": "a", "id": 18446744073709551616, "id": NaN}
{"text": "b", "other": "\ud800"}
{"text": "\ud83d\ude00"}
{"text": "c\ud800"}
{"text": "d", "text": "e"})")),
            (Texts{"a", "b", "\U0001F600", "!has half of a surrogate pair", "!a key given twice"}));
  EXPECT_EQ(texts_of(folder.put("h.txt", std::string(900'000, 'x') + "|short|"),
                     {.separator = "|", .max_document_bytes = 300'000}),
            (Texts{"!too long", "short"}));
  EXPECT_EQ(error_of([&] { texts_of(folder.put("t.parquet", "PAR1....")); }, folder.path()),
            "[data] DIR/t.parquet: Parquet is not supported; expected text or JSON lines");
}

// Documents of all lengths in several files.
void put_corpus(const ScratchFolder& folder) {
  std::string lines, text;
  for (int i = 0; i < 300; ++i) {
    std::string words;
    for (int j = 0; j < i % 17; ++j) words += fmt::format("word{} of {} ", i * j, i);
    lines += fmt::format("{{\"text\": \"{}\"}}\n", words);
    text += words + "<|e|>";
  }
  folder.put("in/a.jsonl.zst", zstd(lines));
  folder.put("in/b.txt", text);
  folder.put("in/c/d.txt.xz", xz(text));
}

std::string all_bytes(const std::string& folder) {
  std::string all;
  for (const DirectoryEntry& entry : posix_files().list(folder)) {
    all += entry.name + ":" + posix_files().read_text(join_path(folder, entry.name));
  }
  return all;
}

class TokenizeFiles : public testing::Test {
 protected:
  TokenizeFiles() { put_corpus(folder_); }
  TokenizeReport run(const std::string& out, int threads, const TokenizeHooks& hooks = {}) {
    return tokenize_files(posix_files(), *tokenizer_,
                          {.paths = {folder_ / "in"},
                           .out = folder_ / out,
                           .documents = {.separator = "<|e|>"},
                           .shard_tokens = 5000,
                           .threads = threads},
                          hooks);
  }
  ScratchFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer(posix_files(), kTiny + "llama.json");
};

TEST_F(TokenizeFiles, gives_the_same_bytes_for_any_number_of_threads) {
  const TokenizeReport one = run("one", 1), four = run("four", 4);
  EXPECT_TRUE(one.is_done && four.is_done);
  EXPECT_GT(one.n_shards, 3);
  EXPECT_TRUE(all_bytes(folder_ / "one") == all_bytes(folder_ / "four"));
  EXPECT_EQ(one.n_documents, 3 * 282);
  EXPECT_EQ(one.dropped, (std::map<std::string, int64_t>{{"empty", 3 * 18}}));
}

TEST_F(TokenizeFiles, goes_on_where_it_was_stopped) {
  run("whole", 2);
  int n_batches = 0;
  EXPECT_FALSE(run("parts", 2, {.stops = [&] { return ++n_batches > 1; }}).is_done);
  const std::string lost = folder_ / "parts/shard-00001.npy";
  if (posix_files().exists(lost)) {
    EXPECT_GT(posix_files().size(lost), 0u);
  }
  EXPECT_TRUE(run("parts", 1).is_done);
  EXPECT_TRUE(all_bytes(folder_ / "whole") == all_bytes(folder_ / "parts"));
  EXPECT_TRUE(run("parts", 1).is_done);  // nothing is left to do
  folder_.put("in/b.txt", "another text");
  EXPECT_EQ(error_of([&] { run("parts", 1); }, folder_.path()),
            "[tokenize] DIR/parts: expected shards of the same files, tokenizer and options, got "
            "others: give another --out");
}

// Between the shard and the note of it, and within the shard.
TEST_F(TokenizeFiles, takes_its_own_shard_after_a_kill_and_nobody_elses) {
  run("whole", 2);
  int n_batches = 0;
  run("parts", 2, {.stops = [&] { return ++n_batches > 1; }});
  const Json manifest = parse_json(posix_files().read_text(folder_ / "parts/tokenize.json"), "");
  const auto name = fmt::format("/shard-{:05}.npy", manifest.at("shards").get<int64_t>());
  const std::string bytes = posix_files().read_text(folder_ / "whole" + name);
  folder_.put("parts" + name, "other bytes");
  EXPECT_EQ(error_of([&] { run("parts", 1); }, folder_.path()),
            "[tokenize] --out: expected a name that is free, got 'DIR/parts" + name +
                "', which this command did not write: choose another folder");
  EXPECT_EQ(posix_files().read_text(folder_ / "parts" + name), "other bytes");
  folder_.put("parts" + name, bytes);
  EXPECT_TRUE(run("parts", 1).is_done);
  EXPECT_TRUE(all_bytes(folder_ / "whole") == all_bytes(folder_ / "parts"));
}

TEST_F(TokenizeFiles, keeps_the_ends_of_documents_for_training) {
  const TokenizeReport report = run("out", 2);
  const Dataset dataset =
      open_dataset(posix_files(), {.train = {folder_ / "out"}, .val_fraction = 0}, *tokenizer_);
  EXPECT_EQ(dataset.train.n_tokens(), report.n_tokens);
  EXPECT_EQ(dataset.n_sources, report.n_shards);
  EXPECT_EQ(dataset.n_skipped, 0);
  std::vector<int32_t> tokens(static_cast<size_t>(report.n_tokens));
  std::vector<uint8_t> starts(tokens.size());
  dataset.train.read(0, tokens, starts);
  int64_t n_starts = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    n_starts += starts[i];
    ASSERT_EQ(starts[i] == 1, tokens[i] == *tokenizer_->bos()) << i;
  }
  EXPECT_EQ(n_starts, report.n_documents);
}

TEST_F(TokenizeFiles, refuses_ends_that_do_not_fit_the_tokens) {
  run("out", 1);
  const std::string ends = folder_ / "out/shard-00000.ends";
  std::string bytes = posix_files().read_text(ends);
  bytes.pop_back();
  folder_.put("out/shard-00000.ends", bytes);
  const std::string error =
      error_of([&] { open_dataset(posix_files(), {.train = {folder_ / "out"}}, *tokenizer_); },
               folder_.path());
  EXPECT_TRUE(error.starts_with("[shard] DIR/out/shard-00000.ends: expected ascending ends"))
      << error;
}

}  // namespace
}  // namespace octet::data_tokenize_test
