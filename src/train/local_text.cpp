#include "train/local_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/text_files.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

constexpr int64_t kMinBytes = 64 << 10;

struct Candidate {
  uint64_t key = 0;
  std::string path;
  bool is_named = false;  // itself, not as part of a folder
};

std::vector<Candidate> candidates(const Files& files, const LocalTextOptions& options) {
  const bool are_named = options.origin == PathOrigin::named;
  std::vector<Candidate> all;
  const auto add = [&](const std::string& path, bool is_named) {
    all.push_back({xxh64(std::as_bytes(std::span(path))), path, is_named});
  };
  for (const std::string& root : options.paths) {
    if (!files.exists(root)) {
      if (!are_named) continue;
      throw Error(ErrorCode::bad_data, "[data] '{}': expected a file or a folder, got neither",
                  root);
    }
    if (files.is_directory(root)) {
      for (const std::string& path : files_under(files, root).paths) add(path, /*is_named=*/false);
    } else {
      add(root, are_named);
    }
  }
  std::ranges::sort(all, {}, [](const Candidate& one) { return std::tie(one.key, one.path); });
  return all;
}

// The start of a text, without the character that its end cuts.
std::string start_of(std::string text, size_t n_bytes) {
  if (text.size() <= n_bytes) return text;
  while (n_bytes > 0 && (static_cast<unsigned char>(text[n_bytes]) & 0xC0) == 0x80) --n_bytes;
  text.resize(n_bytes);
  return text;
}

// "" for what is no text of ours: too long, another format, not readable by us.
std::string text_of(const Files& files, const Candidate& candidate, const LocalTextOptions& options,
                    int64_t n_bytes_left) {
  constexpr uint64_t kLongestStream = uint64_t{1} << 30;
  const bool is_cut = options.origin == PathOrigin::named;
  const auto limit = static_cast<uint64_t>(is_cut ? n_bytes_left : options.max_file_bytes);
  try {
    const auto file = candidate.is_named ? files.open_stream(candidate.path, kLongestStream)
                                         : files.open(candidate.path);
    if (file->size() > limit && !is_cut) return "";
    std::string text(std::min(file->size(), limit + 1), '\0');
    file->read_at(0, text);
    text = start_of(std::move(text), limit);
    return is_readable_text(text) ? text : "";
  } catch (const Error&) {
    if (candidate.is_named) throw;
    return "";
  }
}

// The end of the validation text within a document that begins `n_left` bytes before: at the end of
// a line, in a document that would make it more than twice as long; else behind it.
size_t end_of_validation(std::string_view document, size_t n_left) {
  if (document.size() <= 2 * n_left) return document.size();
  const size_t line = document.rfind('\n', n_left);
  if (line != document.npos && line > n_left / 2) return line + 1;
  while (n_left > 0 && (static_cast<unsigned char>(document[n_left]) & 0xC0) == 0x80) --n_left;
  return n_left;
}

}  // namespace

Dataset collect_local_text(const Files& files, const LocalTextOptions& options) {
  std::vector<std::string> texts;
  int64_t n_bytes = 0;
  for (const Candidate& candidate : candidates(files, options)) {
    const int64_t n_left = options.max_bytes - n_bytes;
    std::string text = text_of(files, candidate, options, n_left);
    if (text.empty() || std::ssize(text) > n_left) continue;
    n_bytes += std::ssize(text);
    texts.push_back(std::move(text));
  }
  if (n_bytes < kMinBytes) {
    throw Error(ErrorCode::bad_data, "[data] expected at least {} bytes of text under {}, got {}{}",
                kMinBytes, fmt::join(options.paths, ", "), n_bytes,
                options.origin == PathOrigin::suggested ? "; --data names others" : "");
  }
  const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer();
  TextBuilder train(*tokenizer), val(*tokenizer);
  auto n_val = static_cast<size_t>(options.val_fraction * static_cast<double>(n_bytes));
  for (const std::string_view text : texts) {
    const size_t end = n_val == 0 ? 0 : end_of_validation(text, n_val);
    if (end > 0) val.add_document(text.substr(0, end));
    if (end < text.size()) train.add_document(text.substr(end));
    n_val = end == 0 || end >= n_val ? 0 : n_val - end;
  }
  Dataset dataset;
  dataset.train = TokenStream({train.build()});
  dataset.val = TokenStream({val.build()});
  dataset.n_sources = std::ssize(texts);
  return dataset;
}

}  // namespace octet
