#include "data/chat_tokens.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "data/chat_messages.h"
#include "data/chat_pictures.h"
#include "data/token_stream.h"
#include "data/unread_keys.h"
#include "text/tokenizer_folder.h"

namespace octet {
namespace {

// A token is text, or an object with its text as `content`.
void take_token(const Json& json, std::set<std::string>& tokens) {
  if (json.is_string()) {
    tokens.insert(json.get<std::string>());
  } else if (json.is_object() && json.contains("content") && json["content"].is_string()) {
    tokens.insert(json["content"].get<std::string>());
  }
}

// Tokens that a tokenizer_config.json or special_tokens_map.json names.
std::set<std::string> named_tokens(const Json& config) {
  std::set<std::string> tokens;
  for (const char* name : kSpecialTokenNames) {
    if (config.contains(name)) take_token(config[name], tokens);
  }
  for (const char* name :
       {"added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"}) {
    if (!config.contains(name) || !config[name].is_structured()) continue;
    for (const Json& token : config[name]) take_token(token, tokens);
  }
  return tokens;
}

std::set<std::string> keys_of(const Json& json) {
  std::set<std::string> keys;
  for (const auto& [key, id] : json.items()) keys.insert(key);
  return keys;
}

size_t count_tokens(const Tokenizer& tokenizer, const std::string& text) {
  if (text.empty() || tokenizer.special_id(text)) return 1;
  const std::vector<int32_t> ids = tokenizer.encode(text, {.special = SpecialText::parse});
  const bool has_own =
      std::ranges::any_of(ids, [&](int32_t id) { return tokenizer.token_bytes(id) == text; });
  return has_own ? 1 : ids.size();
}

}  // namespace

std::vector<SplitToken> split_tokens(const Files& files, const std::vector<std::string>& folders,
                                     const Tokenizer& tokenizer) {
  std::vector<SplitToken> split;
  if (!tokenizer.eos() && tokenizer.vocab_size() == 256)
    return split;  // bytes: there are no others
  for (const std::string& folder : folders) {
    if (folder.empty() || !files.is_directory(folder)) continue;
    for (const char* name :
         {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
      const std::string path = join_path(folder, name);
      if (files.kind(path) != EntryKind::file) continue;
      const Json json = parse_json(files.read_text(path), path);
      if (!json.is_object()) continue;
      const bool is_list = std::string_view(name) == "added_tokens.json";
      for (const std::string& text : is_list ? keys_of(json) : named_tokens(json)) {
        const size_t n = count_tokens(tokenizer, text);
        if (n > 1) split.push_back({text, path, n});
      }
    }
  }
  return split;
}

namespace {

constexpr const char* kProbe = "Hello";

// 26 July 2024, a Friday.
std::tm still_clock() {
  std::tm clock{};
  clock.tm_year = 124;
  clock.tm_mon = 6;
  clock.tm_mday = 26;
  clock.tm_wday = 5;
  clock.tm_yday = 207;
  return clock;
}

bool is_prefix(const std::vector<int32_t>& ids, const std::vector<int32_t>& of) {
  return ids.size() <= of.size() && std::equal(ids.begin(), ids.end(), of.begin());
}

std::string_view last_word(std::string_view text) {
  const auto is_blank_at = [&](size_t at) { return is_blank(text.substr(at, 1)); };
  while (!text.empty() && is_blank_at(text.size() - 1)) text.remove_suffix(1);
  size_t begin = text.size();
  while (begin > 0 && !is_blank_at(begin - 1)) --begin;
  return text.substr(begin);
}

// Appends text as it goes on within a text: without the space that some vocabularies put before a
// text of its own, which a character in front takes upon itself.
void encode_on(const Tokenizer& tokenizer, const std::string& text,
               const EncodeTextOptions& options, std::vector<int32_t>& ids) {
  for (const char* front : {"\n", "."}) {
    const std::vector<int32_t> begin = tokenizer.encode(front, options);
    const std::vector<int32_t> all = tokenizer.encode(front + text, options);
    if (!is_prefix(begin, all)) continue;  // a token holds both
    ids.insert(ids.end(), all.begin() + static_cast<int64_t>(begin.size()), all.end());
    return;
  }
  tokenizer.encode(text, options, ids);
}

// The text in parts, those of the spans trained; `encode` appends the tokens of one.
template <typename Encode>
MaskedTokens join_parts(std::string_view text, const ByteSpans& spans, const Encode& encode) {
  MaskedTokens parts;
  size_t at = 0;
  const auto add = [&](size_t end, bool is_trained) {
    encode(text.substr(at, end - at), parts.ids);
    parts.is_trained.resize(parts.ids.size(), is_trained ? 1 : 0);
    at = end;
  };
  for (const auto& [begin, end] : spans) {
    CHECK(at <= begin && begin <= end && end <= text.size());
    add(begin, false);
    add(end, true);
  }
  add(text.size(), false);
  return parts;
}

// True if the last span has nothing behind its answer, whose last word tells: templates change
// texts within (Falcon's takes empty lines out).
bool ends_with_answer(const AnswerText& answers, const OrderedJson& messages) {
  const OrderedJson& message = messages[answers.messages.back()];
  const auto found = message.find("content");
  if (found == message.end()) return false;
  const bool is_list = found->is_array() && !found->empty();
  const OrderedJson* content = is_list ? find_text(found->back(), "text") : &*found;
  if (content == nullptr || !content->is_string()) return false;
  const auto [begin, end] = answers.spans.back();
  const std::string_view said = std::string_view(answers.text).substr(begin, end - begin);
  return said.ends_with(last_word(content->get_ref<const std::string&>()));
}

// A template's text of a conversation whose contents are texts, or lists of one part; nothing where
// it refuses.
std::optional<std::string> render_probe(const ChatTemplate& chat, bool has_parts,
                                        const std::tm& clock) {
  const auto content = [&](const char* text) {
    if (!has_parts) return OrderedJson(text);
    OrderedJson part = {{"type", "text"}, {"text", text}};
    return OrderedJson::array({part});
  };
  OrderedJson context;
  context["messages"] = OrderedJson::array(
      {make_message("user", content(kProbe)), make_message("assistant", content("Yes"))});
  try {
    return chat.render(context, clock);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

ChatEncoder::Contents contents_of(const ChatTemplate& chat, const std::tm& clock) {
  using enum ChatEncoder::Contents;
  const auto text = render_probe(chat, /*has_parts=*/false, clock);
  const auto parts = render_probe(chat, /*has_parts=*/true, clock);
  if (!parts) return texts;
  const bool takes_text = text && text->find(kProbe) != text->npos;
  if (takes_text) return *parts == *text ? both : texts;
  return parts->find(kProbe) != parts->npos ? parts_alone : texts;
}

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const ChatTemplates& templates,
                         TextEnd text_end)
    : tokenizer_(tokenizer),
      text_end_(text_end),
      name_(templates.name),
      plain_(templates.plain),
      with_tools_(templates.with_tools),
      clock_(still_clock()),
      plain_contents_(contents_of(plain_, clock_)),
      tools_contents_(contents_of(with_tools_, clock_)) {
  OrderedJson context;
  context["messages"] = OrderedJson::array({make_message("user", kProbe)});
  try {
    const std::string before = plain_.render(context, clock_);
    context["add_generation_prompt"] = true;
    const std::string after = plain_.render(context, clock_);
    if (!after.starts_with(before)) return;
    turn_begins_ = tokenizer.encode(after.substr(before.size()), {.special = SpecialText::parse});
  } catch (const jinja::BudgetExceeded&) {
    throw;
  } catch (const Error&) {  // a template may ask for more than one message
  }
}

bool ChatEncoder::is_special(int32_t id) const {
  if (tokenizer_.eos() == id || tokenizer_.bos() == id) return true;
  return tokenizer_.special_id(text_of(id)) == id;
}

MaskedTokens ChatEncoder::encode_text(const std::string& text, WordCache& words) const {
  MaskedTokens tokens;
  append_document(tokenizer_, text, {.words = &words}, tokens.ids);
  const std::optional<int32_t> eos = tokenizer_.eos();
  const bool ends = !tokens.ids.empty() && tokens.ids.back() == eos;
  if (text_end_ == TextEnd::eos && eos && !ends) tokens.ids.push_back(*eos);
  tokens.is_trained.assign(tokens.ids.size(), 1);
  return tokens;
}

MaskedTokens ChatEncoder::encode_parts(const std::string& text, const ByteSpans& spans,
                                       WordCache& words) const {
  const EncodeTextOptions options{.special = SpecialText::parse, .words = &words};
  const std::vector<int32_t> whole = tokenizer_.encode(text, options);
  MaskedTokens apart =
      join_parts(text, spans, [&](std::string_view part, std::vector<int32_t>& ids) {
        tokenizer_.encode(part, options, ids);
      });
  if (apart.ids == whole) return apart;
  MaskedTokens tokens{.ids = whole, .is_trained = std::vector<uint8_t>(whole.size(), 0)};
  bool are_prefixes = true;
  for (const auto& [begin, end] : spans) {
    const auto before = tokenizer_.encode(std::string_view(text).substr(0, begin), options);
    const auto after = tokenizer_.encode(std::string_view(text).substr(0, end), options);
    are_prefixes = is_prefix(before, whole) && is_prefix(after, whole);
    if (!are_prefixes) break;
    std::fill(tokens.is_trained.begin() + static_cast<int64_t>(before.size()),
              tokens.is_trained.begin() + static_cast<int64_t>(after.size()), uint8_t{1});
  }
  if (are_prefixes) return tokens;
  const std::string read = tokenizer_.decode(whole);
  const auto as_apart = [](MaskedTokens parts) {
    parts.is_apart = true;
    return parts;
  };
  if (tokenizer_.decode(apart.ids) == read) return as_apart(apart);
  // Behind a special token, some vocabularies begin a text of its own and others do not.
  for (const bool begins_anew : {true, false}) {
    MaskedTokens parts =
        join_parts(text, spans, [&](std::string_view part, std::vector<int32_t>& ids) {
          const bool is_begin = ids.empty() || (begins_anew && is_special(ids.back()));
          is_begin ? tokenizer_.encode(part, options, ids)
                   : encode_on(tokenizer_, std::string(part), options, ids);
        });
    if (tokenizer_.decode(parts.ids) == read) return as_apart(std::move(parts));
  }
  bad_record(
      "an answer that begins or ends within a token, and whose own tokens are another text (a "
      "data.chat.template whose prompt ends in a line feed helps)");
}

// The token behind an answer that ends its turn is trained; white space behind it is not.
void ChatEncoder::end_turns(MaskedTokens& tokens) const {
  const std::vector<int32_t>& ids = tokens.ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_end =
        tokens.is_trained[i] != 0 && (i + 1 == ids.size() || !tokens.is_trained[i + 1]);
    if (!is_end) continue;
    size_t last = i;
    while (last > 0 && tokens.is_trained[last - 1] != 0 && !is_special(ids[last]) &&
           is_blank(text_of(ids[last]))) {
      --last;
    }
    if (is_special(ids[last])) {
      for (size_t blank = last + 1; blank <= i; ++blank) tokens.is_trained[blank] = 0;
      continue;
    }
    const bool has_next = i + 1 < ids.size() && is_special(ids[i + 1]);
    if (!has_next || ids[i + 1] == tokenizer_.bos()) continue;
    const bool begins_turn =
        std::find(turn_begins_.begin(), turn_begins_.end(), ids[i + 1]) != turn_begins_.end();
    if (!begins_turn) tokens.is_trained[++i] = 1;
  }
}

MaskedTokens ChatEncoder::encode_answers(const AnswerText& answers, const OrderedJson& messages,
                                         WordCache& words) const {
  MaskedTokens tokens = encode_parts(answers.text, answers.spans, words);
  const auto n_said = std::count(tokens.is_trained.begin(), tokens.is_trained.end(), uint8_t{1});
  if (n_said == 0) bad_record("nothing would be trained: the template marks no answer");
  end_turns(tokens);
  const auto n = std::count(tokens.is_trained.begin(), tokens.is_trained.end(), uint8_t{1});
  if (n == static_cast<int64_t>(tokens.ids.size())) {
    bad_record("everything would be trained: the template marks all of the text");
  }
  size_t last = tokens.ids.size();
  while (last > 0 && tokens.is_trained[last - 1] == 0) --last;
  const bool has_end = last > 0 && is_special(tokens.ids[last - 1]);
  if (has_end || !ends_with_answer(answers, messages)) return tokens;
  const std::optional<int32_t> eos = tokenizer_.eos();
  if (!eos || text_end_ == TextEnd::none || last < tokens.ids.size()) {
    bad_record(std::string("no end of a turn would be trained: the template ends answers with "
                           "nothing, and ") +
               (!eos                         ? "the tokenizer has no EOS"
                : text_end_ == TextEnd::none ? "data.text_end is off"
                                             : "other text follows the last one"));
  }
  tokens.ids.push_back(*eos);
  tokens.is_trained.push_back(1);
  return tokens;
}

void ChatEncoder::check_special_tokens(const std::string& text) const {
  for (const SplitToken& token : split_tokens_) {
    if (text.find(token.text) == text.npos) continue;
    throw DataRefusal(fmt::format("expected '{}' to be one token, as {} says, got {}", token.text,
                                  token.where, token.n_tokens));
  }
}

namespace {

int64_t n_answers(const OrderedJson& messages) {
  return std::ranges::count_if(
      messages, [](const OrderedJson& message) { return message["role"] == "assistant"; });
}

}  // namespace

EncodedRecord ChatEncoder::encode(const ChatRecord& record, WordCache& words) const {
  if (record.context.is_null()) return {.samples = {encode_text(record.text, words)}};
  const bool has_tools = record.context.contains("tools");
  const ChatTemplate& chat = has_tools ? with_tools_ : plain_;
  OrderedJson context = record.context;
  OrderedJson& messages = context["messages"];
  const Contents contents = has_tools ? tools_contents_ : plain_contents_;
  if (contents == Contents::texts) join_parts(messages);
  if (contents == Contents::parts_alone && !record.image_mark.empty())
    split_into_parts(messages, record.image_mark);
  std::vector<size_t> untrained = record.masked;
  untrained.insert(untrained.end(), record.empty.begin(), record.empty.end());
  std::vector<LeftOutAnswer> wordless = wordless_answers(chat, context, untrained, clock_);
  for (const LeftOutAnswer& answer : wordless) untrained.push_back(answer.message);
  const bool has_words = std::ssize(untrained) < n_answers(messages);
  if (!has_words && !wordless.empty()) bad_record(wordless.front().why);
  AnswerTexts answers = answer_texts(chat, context, untrained, clock_);
  EncodedRecord result{.are_apart = answers.are_apart,
                       .prompt_end = std::move(answers.prompt_end),
                       .left_out = std::move(answers.left_out),
                       .unread = unread_keys(chat, context, untrained, answers.texts, clock_)};
  std::ranges::move(wordless, std::back_inserter(result.left_out));
  for (const size_t message : record.empty) result.left_out.push_back({message, "an empty answer"});
  for (const AnswerText& text : answers.texts) {
    check_special_tokens(text.text);
    try {
      result.samples.push_back(encode_answers(text, messages, words));
    } catch (const BadRecord& error) {
      if (answers.texts.size() == 1) throw;
      result.left_out.push_back({text.messages.front(), error.what()});
    }
  }
  if (result.samples.empty()) bad_record(result.left_out.front().why);
  return result;
}

}  // namespace octet
