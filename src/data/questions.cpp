#include "data/questions.h"

#include <utility>

#include "base/error.h"
#include "base/ordered_json.h"
#include "data/text_files.h"
#include "text/unicode.h"

namespace octet {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{4} << 30;  // of a file, unpacked

// Why a question is left out.
struct BadQuestion {
  std::string why;
};

const OrderedJson& list_of(const OrderedJson& json, const char* key, const std::string& path) {
  if (json.is_object()) {
    const auto at = json.find(key);
    if (at != json.end() && at->is_array()) return *at;
  }
  throw Error(ErrorCode::bad_data,
              "[data] {}: expected SQuAD's JSON (data, paragraphs, qas), got no list '{}'", path,
              key);
}

std::string text_of(const OrderedJson& json, const char* key) {
  const auto at = json.is_object() ? json.find(key) : json.end();
  if (at == json.end() || !at->is_string()) throw BadQuestion{fmt::format("no text '{}'", key)};
  return at->get<std::string>();
}

// The byte of the n-th character.
int64_t byte_of(const std::string& text, int64_t n_characters) {
  size_t at = 0;
  for (int64_t i = 0; i < n_characters && at < text.size(); ++i) at += decode_utf8(text, at).length;
  return static_cast<int64_t>(at);
}

Answer answer_of(const OrderedJson& json, const std::string& context, AnswerPlaces places) {
  Answer answer{.text = text_of(json, "text")};
  if (places == AnswerPlaces::unread) return answer;
  const auto start = json.find("answer_start");
  if (start == json.end() || !start->is_number_integer() || *start < 0)
    throw BadQuestion{"no number 'answer_start'"};
  answer.begin = byte_of(context, start->get<int64_t>());
  answer.end = answer.begin + std::ssize(answer.text);
  const bool is_there =
      !answer.text.empty() &&
      context.compare(static_cast<size_t>(answer.begin), answer.text.size(), answer.text) == 0;
  if (!is_there)
    throw BadQuestion{fmt::format("no '{}' at {} of the context", answer.text, start->dump())};
  return answer;
}

// The questions of one file.
class QuestionReader {
 public:
  QuestionReader(std::string path, AnswerPlaces places, Questions& to, LeftOut& left_out)
      : path_(std::move(path)), places_(places), to_(to), left_out_(left_out) {}

  void add_all(const OrderedJson& json) {
    for (const OrderedJson& article : list_of(json, "data", path_)) {
      for (const OrderedJson& paragraph : list_of(article, "paragraphs", path_))
        add_paragraph(paragraph);
    }
  }

 private:
  void add_paragraph(const OrderedJson& json) {
    const OrderedJson& questions = list_of(json, "qas", path_);
    try {
      to_.contexts.push_back(text_of(json, "context"));
    } catch (const BadQuestion& bad) {
      return left_out_.add(path_ + ": a paragraph", "expected a context, got " + bad.why);
    }
    for (const OrderedJson& question : questions) {
      try {
        add_question(question);
      } catch (const BadQuestion& bad) {
        left_out_.add(place_of(question), "expected a question with its answers, got " + bad.why);
      }
    }
  }

  void add_question(const OrderedJson& json) {
    Question question{.id = text_of(json, "id"),
                      .text = text_of(json, "question"),
                      .context = to_.contexts.size() - 1,
                      .place = place_of(json)};
    const auto impossible = json.find("is_impossible");
    const bool has_none = impossible != json.end() && *impossible == true;
    const auto answers = json.find("answers");
    if (!has_none && (answers == json.end() || !answers->is_array()))
      throw BadQuestion{"no list 'answers'"};
    if (!has_none) {
      for (const OrderedJson& answer : *answers)
        question.answers.push_back(answer_of(answer, to_.contexts.back(), places_));
    }
    to_.all.push_back(std::move(question));
  }

  std::string place_of(const OrderedJson& question) const {
    const auto id = question.is_object() ? question.find("id") : question.end();
    const bool has_id = id != question.end() && id->is_string();
    return fmt::format("{}: question '{}'", path_, has_id ? id->get<std::string>() : "");
  }

  std::string path_;
  AnswerPlaces places_;
  Questions& to_;
  LeftOut& left_out_;
};

}  // namespace

Questions read_questions(const Files& files, const std::vector<std::string>& paths,
                         AnswerPlaces places, LeftOut& left_out) {
  Questions questions;
  for (const std::string& path : files_named(files, paths, {".json"})) {
    QuestionReader(path, places, questions, left_out)
        .add_all(parse_ordered_json(read_text_file(files, path, kMaxBytes), path));
  }
  return questions;
}

}  // namespace octet
