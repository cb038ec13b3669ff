#include "text/gguf_scored_vocabulary.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/unicode.h"

namespace octet {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

using ScoredIds = std::unordered_map<std::string_view, size_t>;  // places in the list

// Calls fn(left, right) for each way to cut a token into two others.
template <typename Fn>
void for_each_pair(std::string_view token, const ScoredIds& ids, Fn fn) {
  for (size_t at = 0; at < token.size();) {
    at += decode_utf8(token, at).length;
    if (at >= token.size()) return;
    const auto left = ids.find(token.substr(0, at)), right = ids.find(token.substr(at));
    if (left != ids.end() && right != ids.end()) fn(left->second, right->second);
  }
}

Json replace_step(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Json mark_steps(bool adds_space) {
  Json steps = Json::array();
  if (adds_space) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
  steps.push_back(replace_step(" ", kSpaceMark));
  return steps;
}

}  // namespace

Json scored_merges(std::span<const GgufScoredToken> tokens) {
  ScoredIds ids;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].score) ids.emplace(tokens[id].text, id);
  }
  struct Merge {
    float score;
    size_t left, right;
  };
  std::vector<Merge> merges;
  for (const GgufScoredToken& token : tokens) {
    if (!token.score) continue;
    for_each_pair(token.text, ids, [&](size_t left, size_t right) {
      merges.push_back({*token.score, left, right});
    });
  }
  std::ranges::stable_sort(merges, [&](const Merge& a, const Merge& b) {
    const size_t n_a = tokens[a.left].text.size(), n_b = tokens[b.left].text.size();
    return a.score != b.score ? a.score > b.score : n_a > n_b;
  });
  Json pairs = Json::array();
  for (const Merge& merge : merges)
    pairs.push_back({tokens[merge.left].text, tokens[merge.right].text});
  return pairs;
}

Json scored_tokenizer_json(GgufScoredParts parts) {
  Json decoders =
      Json::array({replace_step(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (parts.adds_space)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(parts.added_tokens)},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", mark_steps(parts.adds_space)}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", std::move(parts.around)},
          {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", parts.unknown},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"ignore_merges", false},
            {"vocab", std::move(parts.vocab)},
            {"merges", std::move(parts.merges)}}}};
}

std::optional<bool> scored_tokenizer_adds_space(const Json& tokenizer) {
  const Json model = tokenizer.value("model", Json::object());
  const auto text = [&](const char* key) {
    return model.contains(key) && model[key].is_string() ? model[key].get<std::string>() : "";
  };
  const bool is_plain = text("continuing_subword_prefix").empty() &&
                        text("end_of_word_suffix").empty() && model.value("byte_fallback", false) &&
                        !model.value("ignore_merges", false);
  if (text("type") != "BPE" || !is_plain) return std::nullopt;
  const Json normalizer = tokenizer.value("normalizer", Json()),
             words = tokenizer.value("pre_tokenizer", Json());
  if (words.is_null()) {
    for (const bool adds_space : {true, false}) {
      const Json steps = mark_steps(adds_space);
      if (normalizer == Json{{"type", "Sequence"}, {"normalizers", steps}}) return adds_space;
      if (steps.size() == 1 && normalizer == steps[0]) return adds_space;
    }
    return std::nullopt;
  }
  const bool is_mark = normalizer.is_null() && words.value("type", "") == "Metaspace" &&
                       words.value("replacement", "") == kSpaceMark && !words.value("split", true);
  const std::string scheme = words.value("prepend_scheme", "always");
  if (!is_mark || scheme == "first") return std::nullopt;
  return scheme == "always";
}

std::optional<std::vector<float>> scores_of_merges(const Json& tokenizer, size_t n_tokens) {
  const Json& model = tokenizer.at("model");
  std::vector<std::string> texts;
  std::vector<size_t> numbers;
  for (const auto& [token, id] : model.at("vocab").items()) {
    texts.push_back(token);
    numbers.push_back(id.get<size_t>());
  }
  ScoredIds ids;
  for (size_t i = 0; i < texts.size(); ++i) {
    const bool is_merged = byte_of_token(texts[i]) < 0 && texts[i].size() <= kLongestScoredToken;
    if (is_merged) ids.emplace(texts[i], i);
  }
  std::vector<int64_t> n_missing(texts.size(), 0), place(texts.size(), -1);
  for (const auto& [text, i] : ids)
    for_each_pair(text, ids, [&, at = i](size_t, size_t) { ++n_missing[at]; });
  int64_t n_places = 0;
  size_t last = texts.size();
  for (const Json& merge : model.at("merges")) {
    std::string joined;
    if (merge.is_string()) {
      joined = merge.get<std::string>();
      const size_t space = joined.find(' ');
      if (space == joined.npos) return std::nullopt;
      joined.erase(space, 1);
    } else {
      joined = merge.at(0).get<std::string>() + merge.at(1).get<std::string>();
    }
    const auto at = ids.find(joined);
    if (at == ids.end()) return std::nullopt;
    const size_t token = at->second;
    if (token != last && place[token] >= 0) return std::nullopt;
    if (token != last) place[token] = n_places++;
    --n_missing[token];
    last = token;
  }
  for (const Json& added : tokenizer.value("added_tokens", Json::array())) {
    const auto content = added.at("content").get<std::string>();
    if (const auto at = ids.find(content); at != ids.end()) n_missing[at->second] = 0;
  }
  if (std::ranges::any_of(n_missing, [](int64_t n) { return n != 0; })) return std::nullopt;
  std::vector<float> scores(n_tokens, -static_cast<float>(n_places));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (place[i] >= 0 && numbers[i] < n_tokens) scores[numbers[i]] = -static_cast<float>(place[i]);
  }
  return scores;
}

}  // namespace octet
