#include "train/local_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/text_files.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

constexpr int64_t kLeastBytes = 64 << 10;

std::vector<std::string> sampled_paths(const Files& files, const std::vector<std::string>& roots) {
  std::vector<std::pair<uint64_t, std::string>> keyed;
  const auto add = [&](const std::string& path) {
    keyed.emplace_back(xxh64(std::as_bytes(std::span(path))), path);
  };
  for (const std::string& root : roots) {
    if (!files.exists(root)) continue;
    if (files.is_directory(root)) {
      for (const std::string& path : files_under(files, root)) add(path);
    } else {
      add(root);
    }
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::string> paths;
  for (auto& [key, path] : keyed) paths.push_back(std::move(path));
  return paths;
}

// "" for what is no text of ours: too long, another format, not readable by us.
std::string text_of(const Files& files, const std::string& path, int64_t max_bytes) {
  try {
    const auto file = files.open(path);
    if (file->size() > static_cast<uint64_t>(max_bytes)) return "";
    std::string text(file->size(), '\0');
    file->read_at(0, std::as_writable_bytes(std::span(text)));
    return is_readable_text(text) ? text : "";
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) throw;
    return "";
  }
}

}  // namespace

Dataset collect_local_text(const Files& files, const LocalTextOptions& options) {
  std::vector<std::string> texts;
  int64_t n_bytes = 0;
  for (const std::string& path : sampled_paths(files, options.paths)) {
    std::string text = text_of(files, path, options.max_file_bytes);
    if (text.empty() || n_bytes + static_cast<int64_t>(text.size()) > options.max_bytes) continue;
    n_bytes += static_cast<int64_t>(text.size());
    texts.push_back(std::move(text));
  }
  if (n_bytes < kLeastBytes) {
    throw Error(ErrorCode::bad_data, "[data] expected at least {} bytes of text under {}, got {}",
                kLeastBytes, fmt::join(options.paths, ", "), n_bytes);
  }
  const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer();
  TextBuilder train("local text", *tokenizer), val("local text for validation", *tokenizer);
  const auto n_val = static_cast<int64_t>(options.val_fraction * static_cast<double>(n_bytes));
  int64_t n_done = 0;
  for (const std::string& text : texts) {
    (n_done < n_val ? val : train).add_document(text);
    n_done += static_cast<int64_t>(text.size());
  }
  Dataset dataset;
  dataset.train = TokenStream({train.build()});
  dataset.val = TokenStream({val.build()});
  dataset.n_sources = static_cast<int64_t>(texts.size());
  return dataset;
}

}  // namespace octet
