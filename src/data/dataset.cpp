#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "data/text_files.h"
#include "data/tokenize.h"

namespace octet {
namespace {

// "'a' and 3 more"
std::string quoted(const std::vector<std::string>& paths) {
  if (paths.empty()) return "no file";
  const std::string first = fmt::format("'{}'", paths.front());
  return paths.size() == 1 ? first : fmt::format("{} and {} more", first, paths.size() - 1);
}

// Beside shards stand the ends of their documents and what made them.
bool belongs_to_shards(const std::string& path) {
  return is_shard_name(path) || path.ends_with(".ends") || file_name(path) == kTokenizeManifest;
}

class Opener {
 public:
  Opener(const Files& files, const DatasetOptions& options, const Tokenizer& tokenizer)
      : files_(files),
        options_(options),
        tokenizer_(tokenizer),
        shards_(options.shards),
        n_bytes_left_(options.max_text_bytes) {
    if (shards_.vocab == 0) shards_.vocab = tokenizer.vocab_size();
    if (!shards_.eos) shards_.eos = tokenizer.eos();
  }

  TokenStream open(const std::vector<std::string>& paths) {
    std::vector<std::shared_ptr<const TokenSource>> sources;
    for (const std::string& path : paths) {
      if (!files_.exists(path)) {
        throw Error(ErrorCode::bad_data, "[data] '{}': expected a file or a folder, got neither",
                    path);
      }
      if (files_.is_directory(path)) {
        open_folder(path, sources);
      } else {
        open_file(path, sources);
      }
    }
    n_sources_ += static_cast<int64_t>(sources.size());
    return TokenStream(std::move(sources));
  }

  int64_t n_sources() const { return n_sources_; }
  int64_t n_skipped() const { return n_skipped_; }

 private:
  using Sources = std::vector<std::shared_ptr<const TokenSource>>;

  void add_text(TextBuilder& builder, std::string_view text) {
    n_bytes_left_ -= text.size();
    const std::string& separator = options_.document_separator;
    if (separator.empty()) {
      builder.add_document(text);
      return;
    }
    while (true) {
      const size_t n = text.find(separator);
      builder.add_document(stripped(text.substr(0, n)));
      if (n == text.npos) return;
      text.remove_prefix(n + separator.size());
    }
  }

  // Nothing where there is no cache, or where it cannot be written: the text goes into memory then.
  std::optional<CachedText> open_cached(const TextInput& input) {
    const bool is_kept = options_.cache != nullptr && options_.document_end == DocumentEnd::eos;
    if (!is_kept || input.files.empty()) return std::nullopt;
    try {
      return options_.cache->open(input);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io) throw;
      options_.log.warning("[data] '{}' is tokenized into memory, without a cache: {}", input.path,
                           error.what());
      return std::nullopt;
    }
  }

  void open_file(const std::string& path, Sources& sources) {
    if (is_shard_name(path)) {
      sources.push_back(shard_source(files_, path, shards_));
      return;
    }
    if (files_.kind(path) == EntryKind::file) {
      if (const auto cached = open_cached({TextInput::Origin::named, path, {path}})) {
        sources.push_back(cached->source);
        return;
      }
    }
    const std::string text = read_text_file(files_, path, n_bytes_left_);
    if (!is_readable_text(text)) {
      throw Error(ErrorCode::bad_data,
                  "[data] '{}': expected UTF-8 text, .gz, .xz, .zst, .npy or .bin, got other data",
                  path);
    }
    TextBuilder builder(tokenizer_, options_.document_end);
    add_text(builder, without_byte_order_mark(text));
    sources.push_back(builder.build());
  }

  // Nothing where the file is not text, or cannot be read.
  std::optional<std::string> text_of_folder(const std::string& path,
                                            std::vector<std::string>& problems) {
    try {
      std::string text = read_text_file(files_, path, options_.max_text_bytes);
      if (is_readable_text(text)) return text;
    } catch (const Error& error) {
      problems.push_back(fmt::format("[data] '{}' is left out: {}", path, error.what()));
    }
    return std::nullopt;
  }

  CachedText texts_in_memory(const TextInput& input, std::vector<std::string>& problems) {
    TextBuilder builder(tokenizer_, options_.document_end);
    CachedText texts;
    for (const std::string& path : input.files) {
      const std::optional<std::string> text = text_of_folder(path, problems);
      if (!text) continue;
      if (text->size() > n_bytes_left_) {
        throw Error(ErrorCode::bad_data, "[data] '{}': expected at most {} bytes of text, got more",
                    input.path, options_.max_text_bytes);
      }
      add_text(builder, without_byte_order_mark(*text));
      ++texts.n_texts;
    }
    texts.source = builder.build();
    return texts;
  }

  struct FolderContents {
    std::vector<std::string> texts, shards, beside_shards;
  };
  // The files of a folder by what they may be; those that belong to shards, in the folder or in one
  // within it, are none of them. Where its own shards are `octet tokenize`'s, nothing is text.
  FolderContents contents_of(const std::string& folder,
                             const std::vector<std::string>& paths) const {
    const bool holds_shards = files_.exists(join_path(folder, kTokenizeManifest));
    std::set<std::string> shard_folders;
    for (const std::string& path : paths) {
      if (is_shard_name(path)) shard_folders.insert(parent_path(path));
    }
    FolderContents contents;
    for (const std::string& path : paths) {
      const bool is_of_shards = belongs_to_shards(path) &&
                                shard_folders.contains(parent_path(path)) &&
                                files_.exists(join_path(parent_path(path), kTokenizeManifest));
      if (is_shard_name(path)) {
        contents.shards.push_back(path);
      } else if (!is_of_shards) {
        (holds_shards ? contents.beside_shards : contents.texts).push_back(path);
      }
    }
    return contents;
  }

  // One source for all texts of the folder: /usr/include has tens of thousands.
  void open_folder(const std::string& folder, Sources& sources) {
    FolderFiles found = files_under(files_, folder);
    const FolderContents contents = contents_of(folder, found.paths);
    const std::vector<std::string>& shards = contents.shards;
    const TextInput input{TextInput::Origin::folder, folder, contents.texts};
    std::optional<CachedText> texts = open_cached(input);
    if (!texts) texts = texts_in_memory(input, found.problems);
    const auto tell = [&](std::vector<UnreadFiles> unread) {
      for (const UnreadFiles& one : unread) n_skipped_ += one.n;
      tell_unread(folder, found, unread, options_.log);
    };
    const UnreadFiles others{.n = std::ssize(contents.texts) - texts->n_texts,
                             .why = "are damaged or no UTF-8 text"};
    if (texts->n_texts > 0) {
      tell({others,
            {.n = std::ssize(shards), .why = "are token shards beside text", .names = shards}});
      sources.push_back(texts->source);
      return;
    }
    for (const std::string& path : shards) sources.push_back(shard_source(files_, path, shards_));
    tell({others,
          {.n = std::ssize(contents.beside_shards),
           .why = "are not token shards",
           .names = contents.beside_shards}});
    if (shards.empty()) {
      throw Error(ErrorCode::bad_data, "[data] '{}': expected text files or token shards, got none",
                  folder);
    }
  }

  const Files& files_;
  const DatasetOptions& options_;
  const Tokenizer& tokenizer_;
  ShardOptions shards_;
  uint64_t n_bytes_left_;
  int64_t n_sources_ = 0, n_skipped_ = 0;
};

// The start of a document nearest to `at`, the earlier of two as near; `at` where the stream has
// no start but its own.
int64_t nearest_start(const TokenStream& stream, int64_t at) {
  const int64_t n = stream.n_tokens();
  const auto starts = [&](int64_t first, int64_t end) {
    std::vector<int32_t> tokens(static_cast<size_t>(end - first));
    std::vector<uint8_t> flags(tokens.size());
    stream.read(first, tokens, flags);
    return flags;
  };
  constexpr int64_t kPiece = 1 << 16;
  int64_t before = 0, behind = n;
  for (int64_t end = std::min(at + 1, n); end > 1 && before == 0; end -= kPiece) {
    const int64_t first = std::max<int64_t>(end - kPiece, 1);
    const std::vector<uint8_t> flags = starts(first, end);
    for (int64_t i = end - first; i-- > 0 && before == 0;) {
      if ((flags[static_cast<size_t>(i)] & kDocumentStart) != 0) before = first + i;
    }
  }
  for (int64_t first = at + 1; first < n && behind == n; first += kPiece) {
    const std::vector<uint8_t> flags = starts(first, std::min(first + kPiece, n));
    const auto found =
        std::ranges::find_if(flags, [](uint8_t flag) { return (flag & kDocumentStart) != 0; });
    if (found != flags.end()) behind = first + (found - flags.begin());
  }
  if (before == 0 && behind == n) return at;
  if (before == 0) return behind;
  return behind == n || at - before <= behind - at ? before : behind;
}

}  // namespace

int64_t held_out_start(const TokenStream& stream, double fraction, HoldOut how) {
  const int64_t n = stream.n_tokens();
  const auto n_val = static_cast<int64_t>(std::floor(static_cast<double>(n) * fraction));
  const bool keeps_whole = how == HoldOut::documents && n_val > 0;
  return keeps_whole ? nearest_start(stream, n - n_val) : n - n_val;
}

Dataset open_dataset(const Files& files, const DatasetOptions& options,
                     const Tokenizer& tokenizer) {
  if (!(options.val_fraction >= 0 && options.val_fraction < 1)) {
    throw Error(ErrorCode::invalid_argument,
                "[data] val_fraction must be from 0 to below 1, got {}", options.val_fraction);
  }
  Opener opener(files, options, tokenizer);
  Dataset dataset;
  dataset.train = opener.open(options.train);
  const int64_t n = dataset.train.n_tokens();
  const int64_t cut = held_out_start(dataset.train, options.val_fraction, options.hold_out);
  dataset.val = options.val.empty() ? dataset.train.slice(cut, n) : opener.open(options.val);
  dataset.train = dataset.train.slice(0, cut);
  if (dataset.train.n_tokens() < 2) {
    throw Error(ErrorCode::bad_data, "[data] expected at least 2 tokens, got {} of {} in {}",
                dataset.train.n_tokens(), n, quoted(options.train));
  }
  dataset.n_sources = opener.n_sources();
  dataset.n_skipped = opener.n_skipped();
  return dataset;
}

namespace {

class NoTokenizer : public Tokenizer {
 public:
  explicit NoTokenizer(int64_t vocab) : vocab_(vocab) {}
  int64_t vocab_size() const override { return vocab_; }
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
