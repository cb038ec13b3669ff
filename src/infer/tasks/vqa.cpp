#include "infer/tasks/vqa.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "data/json_values.h"
#include "infer/image_transforms.h"
#include "infer/model_texts.h"
#include "infer/picture_prompt.h"

namespace octet {
namespace {

constexpr std::string_view kKeys[] = {"image", "images", "question", "answer", "answers", "type"};

std::vector<std::string> texts_of(const JsonObject& json, const char* one, const char* many) {
  if (json.has(one) && json.has(many))
    throw Error(ErrorCode::bad_data, "expected '{}' or '{}', got both", one, many);
  if (json.has(one)) return {json.string(one)};
  std::vector<std::string> texts;
  if (json.has(many)) {
    for (const Json& text : json.at(many))
      if (text.is_string()) texts.push_back(text.get<std::string>());
    if (!json.at(many).is_array() || texts.size() != json.at(many).size()) texts.clear();
  }
  if (!texts.empty()) return texts;
  throw Error(ErrorCode::bad_data, "expected '{}', a text, or '{}', a list of texts, got neither",
              one, many);
}

PictureQuestion question_of(const Json& value, const std::string& place, const Files& files,
                            const std::string& folder) {
  const JsonObject json(value, place);
  PictureQuestion question{.pictures = texts_of(json, "image", "images"),
                           .question = json.string("question"),
                           .type = json.string_or("type", "other"),
                           .answers = texts_of(json, "answer", "answers")};
  for (std::string& path : question.pictures) {
    if (!path.starts_with('/')) path = join_path(folder, path);
    if (files.kind(path) == EntryKind::file) continue;
    throw Error(ErrorCode::bad_data, "expected a picture at '{}', got no such file", path);
  }
  return question;
}

bool is_number_sign(char c) {
  return c >= '0' && c <= '9';
}

// Lower case; a comma between digits goes, a period between them stays, apostrophes go, and all
// else that is no letter, digit or byte of a longer character is a space.
std::string without_punctuation(std::string_view answer) {
  std::string text;
  for (size_t i = 0; i < answer.size(); ++i) {
    const char c = answer[i];
    const bool is_within = i > 0 && i + 1 < answer.size() && is_number_sign(answer[i - 1]) &&
                           is_number_sign(answer[i + 1]);
    if (c == '\'' || (c == ',' && is_within)) continue;
    const auto byte = static_cast<unsigned char>(c);
    const bool stays = byte >= 0x80 || std::isalnum(byte) != 0 || (c == '.' && is_within);
    text += stays ? static_cast<char>(std::tolower(byte)) : ' ';
  }
  return text;
}

// A question's tokens, of which one stands for each picture, and how many these are in a row.
struct Asked {
  size_t place = 0;  // among the questions
  std::vector<int32_t> ids = {};
  int64_t n_tokens = 0;
};

}  // namespace

std::vector<PictureQuestion> read_picture_questions(const Files& files, const std::string& path,
                                                    int64_t limit, const Log& log) {
  JsonValues values(files, path);
  std::vector<PictureQuestion> questions;
  std::set<std::string> unread;
  while (const auto value = values.next()) {
    if (limit > 0 && std::ssize(questions) == limit) break;
    const std::string place = fmt::format("{}:{}", path, value->line);
    try {
      const Json json = parse_json(value->text, place);
      questions.push_back(question_of(json, place, files, parent_path(path)));
      for (const auto& [key, of_key] : json.items()) {
        if (std::ranges::count(kKeys, key) == 0 && !asks_nothing(of_key)) unread.insert(key);
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      throw Error(ErrorCode::bad_data, "[vqa] {}: {}", place, error.what());
    }
  }
  if (!unread.empty())
    log.warning("[vqa] {}: keys that are not read: {}", path, fmt::join(unread, ", "));
  if (!questions.empty()) return questions;
  throw Error(ErrorCode::bad_data, "[vqa] {}: expected a question at least, got none", path);
}

std::string vqa_answer(std::string_view answer) {
  constexpr std::array<std::string_view, 11> kNumbers = {
      "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"};
  const std::string text = without_punctuation(answer) + ' ';
  std::string result, word;
  for (const char c : text) {
    if (c != ' ') {
      word += c;
      continue;
    }
    const auto number = std::ranges::find(kNumbers, word);
    if (word == "none") word = "0";
    if (number != kNumbers.end()) word = std::to_string(number - kNumbers.begin());
    const bool is_article = word == "a" || word == "an" || word == "the";
    if (!word.empty() && !is_article) result += (result.empty() ? "" : " ") + word;
    word.clear();
  }
  return result;
}

bool is_right(const std::string& answer, const PictureQuestion& question) {
  const std::string given = vqa_answer(answer);
  return std::ranges::any_of(question.answers,
                             [&](const std::string& right) { return vqa_answer(right) == given; });
}

std::vector<std::string> answer_questions(const ModelSource& given,
                                          const std::vector<PictureQuestion>& questions,
                                          const VqaOptions& options, const TextMachine& machine) {
  ModelSource source = given;
  source.spec.images = 1;
  for (const PictureQuestion& one : questions)
    source.spec.images = std::max<int64_t>(source.spec.images, std::ssize(one.pictures));
  const Files& files = machine.files;
  const auto tokenizer = make_tokenizer(files, source.tokenizer);
  const ChatPrompts chat(chat_templates(files, source, *tokenizer), *tokenizer);
  GenerateOptions how{.max_tokens = options.max_tokens,
                      .stop_tokens = stop_tokens(files, source, *tokenizer)};
  if (chat.end_token()) how.stop_tokens.push_back(*chat.end_token());
  if (!chat.end_text().empty()) how.stop_texts.push_back(chat.end_text());
  const std::string mark = image_mark(*tokenizer, source.spec);
  const PictureRowsOptions rows =
      picture_options(source.spec, evaluation_images(files, source, machine.log), *tokenizer);
  std::vector<Asked> order;  // shortest first, as generate() gives out entries
  for (const PictureQuestion& one : questions) {
    std::vector<int32_t> ids =
        chat.tokens(rendered_question(chat, one.question, mark, one.pictures.size()));
    const auto n = std::ssize(placed_prompt(rows, ids, std::ssize(one.pictures)).ids);
    order.push_back({.place = order.size(), .ids = std::move(ids), .n_tokens = n});
  }
  std::ranges::stable_sort(order, {}, &Asked::n_tokens);
  const int64_t longest = order.back().n_tokens;
  if (longest + options.max_tokens > source.seq) how.max_tokens = source.seq - longest;
  if (how.max_tokens < 1) {
    throw Error(ErrorCode::invalid_argument,
                "[vqa] expected questions of fewer than the model's {} tokens, got one of {}",
                source.seq, longest);
  }
  const int64_t n_entries = std::min(options.batch, std::ssize(questions));
  const auto model = make_text_model(
      source, {.n_entries = n_entries, .capacity = longest + how.max_tokens}, machine);
  std::vector<std::string> answers(questions.size());
  for (size_t first = 0; first < order.size(); first += static_cast<size_t>(n_entries)) {
    const size_t n = std::min(static_cast<size_t>(n_entries), order.size() - first);
    std::vector<Prompt> prompts;
    for (size_t entry = 0; entry < n; ++entry) {
      const Asked& asked = order[first + entry];
      PicturePrompt one = picture_prompt(files, rows, asked.ids, questions[asked.place].pictures);
      model->read_pictures(static_cast<int64_t>(entry), std::move(one.pictures));
      prompts.push_back(std::move(one.prompt));
    }
    const std::vector<Completion> done = generate(*model, *tokenizer, prompts, how);
    for (size_t entry = 0; entry < n; ++entry)
      answers[order[first + entry].place] = done[entry].text;
  }
  return answers;
}

}  // namespace octet
