#include "train/data_entries.h"

#include <algorithm>
#include <utility>

#include "data/json_values.h"
#include "data/shards.h"
#include "data/text_files.h"
#include "train/run_setup.h"

namespace octet {
namespace {

// The last conversations, whole: at least one where there are two.
int64_t held_out_records(const ChatData& chat, double fraction) {
  const int64_t n = chat.report.n_records;
  auto n_val = static_cast<int64_t>(static_cast<double>(n) * fraction);
  if (fraction > 0 && n_val == 0 && n > 1) n_val = 1;
  const auto first = std::ranges::lower_bound(chat.samples, n - n_val, {}, &ChatSample::record);
  return first == chat.samples.end() ? chat.source->n_tokens() : first->first;
}

}  // namespace

bool holds_conversations(const Files& files, const std::string& path) {
  if (files.is_directory(path)) {
    const std::vector<std::string> inner = files_under(files, path).paths;
    return std::ranges::any_of(inner, is_json_name);
  }
  if (is_json_name(path) || files.kind(path) != EntryKind::file) return true;
  return !is_shard_name(path) && begins_with_objects(files, path);
}

std::vector<DataEntry> find_entries(const Files& files, const RunConfig& config,
                                    const std::vector<std::string>& paths,
                                    const std::vector<double>& weights) {
  std::vector<DataEntry> entries;
  for (size_t i = 0; i < paths.size(); ++i) {
    entries.push_back({.paths = {paths[i]},
                       .is_chat = has_conversations(config) && holds_conversations(files, paths[i]),
                       .weight = weights.empty() ? 1 : weights[i]});
  }
  const bool are_alike = std::ranges::all_of(entries, [&](const DataEntry& entry) {
    return entry.weight == 1 && entry.is_chat == entries.front().is_chat;
  });
  if (are_alike && !entries.empty()) {
    entries.resize(1);
    entries.front().paths = paths;
  }
  return entries;
}

TokenStream join_entries(const std::vector<DataEntry>& entries) {
  if (entries.size() == 1 && entries.front().weight == 1) return entries.front().stream;
  std::vector<std::pair<TokenStream, double>> streams;
  streams.reserve(entries.size());
  for (const DataEntry& entry : entries) streams.emplace_back(entry.stream, entry.weight);
  return TokenStream::weighted(streams);
}

int64_t held_out_start(const DataEntry& entry, double fraction, HoldOut how) {
  if (entry.is_chat) return held_out_records(entry.chat, fraction);
  return held_out_start(entry.stream, fraction, how);
}

}  // namespace octet
