#include "data/token_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "data/cached_tokens.h"
#include "data/documents.h"
#include "data/text_files.h"

namespace octet {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr size_t kCacheBatchBytes = 8 << 20, kCacheBatchDocuments = 8192;

void add_content(Xxh64& hash, const FileReader& file) {
  hash.add(file.size());
  std::vector<std::byte> piece;
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min<uint64_t>(kPiece, file.size() - at));
    file.read_at(at, piece);
    const std::string_view text(reinterpret_cast<const char*>(piece.data()), piece.size());
    // A mark of the byte order is no part of a text: tokens with one are not taken for it.
    if (at == 0 && without_byte_order_mark(text).size() < text.size()) hash.add(int64_t{1});
    hash.update(piece);
  }
}

// True if all of a file is text, without holding it.
bool is_text_file(const Files& files, const std::string& path) {
  constexpr size_t kLongestSequence = 4;
  const auto stream = open_stream(files, path);
  std::string buffer;
  size_t n_kept = 0;
  while (true) {
    buffer.resize(n_kept + kPiece);
    const size_t n = stream->read(std::span(buffer).subspan(n_kept));
    buffer.resize(n_kept + n);
    if (n == 0) return is_readable_text(buffer);
    size_t end = buffer.size();  // less a character that the piece may cut
    while (end > 0 && buffer.size() - end < kLongestSequence && (buffer[end - 1] & 0x80) != 0) {
      --end;
      if ((buffer[end] & 0x40) != 0) break;
    }
    if (!is_readable_text(std::string_view(buffer).substr(0, end))) return false;
    buffer.erase(0, end);
    n_kept = buffer.size();
  }
}

// The documents of an input, one after the other.
class TextReader {
 public:
  TextReader(const Files& files, const TextInput& input, const TokenCacheOptions& options)
      : files_(files), input_(input), options_(options) {}

  // Empty documents are left out.
  std::optional<std::string> next() {
    while (true) {
      if (!reader_ && !open_next()) return std::nullopt;
      std::optional<Document> document = reader_->next();
      if (!document) {
        reader_.reset();
      } else if (document->dropped.empty()) {
        return std::move(document->text);
      } else if (document->dropped == "too long") {
        throw Error(ErrorCode::bad_data,
                    "[data] '{}': expected documents of at most {} bytes, got a longer one",
                    input_.files[at_ - 1], options_.max_document_bytes);
      } else if (document->dropped != "empty") {
        throw Error(ErrorCode::bad_data,
                    "[data] '{}': expected UTF-8 text, .gz, .xz, .zst, .npy or .bin, got other "
                    "data",
                    input_.files[at_ - 1]);
      }
    }
  }

  int64_t n_texts() const { return n_texts_; }

 private:
  bool open_next() {
    while (at_ < input_.files.size()) {
      const std::string& path = input_.files[at_++];
      if (input_.origin == TextInput::Origin::folder && !is_text(path)) continue;
      reader_.emplace(files_, path,
                      DocumentOptions{.separator = options_.separator,
                                      .max_document_bytes = options_.max_document_bytes,
                                      .json = JsonLines::as_text});
      ++n_texts_;
      return true;
    }
    return false;
  }

  bool is_text(const std::string& path) const {
    try {
      return is_text_file(files_, path);
    } catch (const Error& error) {
      options_.log.warning("[data] '{}' is left out: {}", path, error.what());
      return false;
    }
  }

  const Files& files_;
  const TextInput& input_;
  const TokenCacheOptions& options_;
  size_t at_ = 0;  // the next file
  int64_t n_texts_ = 0;
  std::optional<DocumentReader> reader_;
};

std::vector<std::string> next_batch(TextReader& reader) {
  std::vector<std::string> batch;
  for (size_t n_bytes = 0; n_bytes < kCacheBatchBytes && batch.size() < kCacheBatchDocuments;) {
    std::optional<std::string> text = reader.next();
    if (!text) break;
    n_bytes += text->size();
    batch.push_back(std::move(*text));
  }
  return batch;
}

void add_sample(Xxh64& hash, const Tokenizer& tokenizer, std::string_view sample) {
  try {
    for (const int32_t id : tokenizer.encode(sample)) hash.add(int64_t{id});
  } catch (const Error&) {
    hash.update_sized(std::string_view("cannot be encoded"));
  }
}

}  // namespace

void add_vocabulary(Xxh64& hash, const Tokenizer& tokenizer) {
  hash.add(tokenizer.vocab_size());
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id)
    hash.update_sized(tokenizer.token_bytes(static_cast<int32_t>(id)));
}

uint64_t tokenizer_identity(const Files& files, const std::string& path,
                            const Tokenizer& tokenizer) {
  Xxh64 hash;
  add_vocabulary(hash, tokenizer);
  for (const std::string_view sample :
       {" Words, 1234 and\n\n\tspaces; it's <s> ABC_def(42) <|endoftext|>\r\n  done",
        "na\u00efve \u2014 e\u0301 \u4e2d\u6587 \u00a0\ufb01"}) {
    add_sample(hash, tokenizer, sample);
  }
  hash.add(int64_t{tokenizer.bos().value_or(-1)});
  hash.add(int64_t{tokenizer.eos().value_or(-1)});
  if (path == "bytes" || !files.exists(path)) return hash.digest();
  std::string file = path;
  if (files.is_directory(path)) file = find_tokenizer(files, path).value_or(path);
  std::vector<std::string> parts = {file};
  for (const std::string_view name : {"merges.txt", "vocab.bpe", "tokenizer_config.json",
                                      "added_tokens.json", "special_tokens_map.json"}) {
    parts.push_back(join_path(parent_path(file), name));
  }
  for (const std::string& part : parts) {
    if (files.kind(part) == EntryKind::file) add_content(hash, *files.open(part));
  }
  return hash.digest();
}

TokenCache::TokenCache(Files& files, const Tokenizer& tokenizer, const TokenCacheOptions& options)
    : files_(files),
      tokenizer_(tokenizer),
      options_(options),
      tokenizer_key_(tokenizer_identity(files, options.tokenizer_path, tokenizer)) {}

// By what is asked for, so that new content takes the old file's place.
std::string TokenCache::path_of(const TextInput& input) const {
  constexpr size_t kLongestName = 80;
  Xxh64 hash;
  hash.update_sized(input.path);
  hash.add(tokenizer_key_);
  hash.update_sized(options_.separator);
  std::string name = file_name(input.path).substr(0, kLongestName);
  for (char& ch : name) {
    const bool is_plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                          (ch >= '0' && ch <= '9') || ch == '.' || ch == '-';
    if (!is_plain) ch = '_';
  }
  return join_path(options_.folder, fmt::format("{}-{:016x}.tokens", name, hash.digest()));
}

// Hashes all content: sizes and times alone would let a changed text pass.
uint64_t TokenCache::content_key(const TextInput& input, uint64_t& n_bytes) const {
  Xxh64 hash;
  for (const std::string& path : input.files) {
    hash.update_sized(path);
    try {
      const auto file = files_.open(path);
      n_bytes += file->size();
      add_content(hash, *file);
    } catch (const Error&) {
      if (input.origin == TextInput::Origin::named) throw;
      hash.update_sized(std::string_view("not readable"));
    }
  }
  return hash.digest();
}

CachedText TokenCache::open(const TextInput& input) {
  const std::string path = path_of(input);
  TokenizeProgress progress{.name = file_name(input.path)};
  const CachedTokensHeader expected = {.key = content_key(input, progress.n_bytes_in_all),
                                       .width = token_bytes(tokenizer_.vocab_size())};
  if (files_.exists(path)) {
    try {
      return open_cached_tokens(files_, path, expected);
    } catch (const Error& error) {
      options_.log.warning("[data] {} is made again: {}", path, error.what());
    }
  }
  if (files_.entry_kind(path) == EntryKind::link) {
    throw Error(ErrorCode::io, "[data] '{}': expected a file to make again, got a link", path);
  }
  files_.create_directories(options_.folder);
  remove_left_overs(files_, options_.folder, file_name(path));
  CachedTokensWriter writer(files_, path, expected);
  TextReader reader(files_, input, options_);
  ThreadPool pool(options_.threads);
  std::vector<WordCache> words(static_cast<size_t>(pool.n_threads()));
  while (true) {
    const std::vector<std::string> batch = next_batch(reader);
    if (batch.empty()) break;
    std::vector<std::vector<int32_t>> ids(batch.size());
    pool.run(static_cast<int64_t>(batch.size()), [&](int64_t i, int thread) {
      const auto at = static_cast<size_t>(i);
      append_document(tokenizer_, batch[at], {.words = &words[static_cast<size_t>(thread)]},
                      ids[at]);
    });
    for (size_t i = 0; i < batch.size(); ++i) {
      writer.add_document(ids[i]);
      progress.n_bytes += batch[i].size();
    }
    progress.n_tokens = writer.n_tokens();
    if (options_.on_progress) options_.on_progress(progress);
  }
  progress.is_done = true;
  if (options_.on_progress) options_.on_progress(progress);
  writer.close(reader.n_texts());
  options_.log.info("[data] {}: {} tokens of {} bytes of text, kept in {}", input.path,
                    progress.n_tokens, progress.n_bytes, path);
  return open_cached_tokens(files_, path, expected);
}

}  // namespace octet
