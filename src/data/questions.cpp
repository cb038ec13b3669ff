#include "data/questions.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/input_limits.h"
#include "base/integer.h"
#include "base/ordered_json.h"
#include "base/thread_pool.h"
#include "data/text_files.h"
#include "text/unicode.h"

namespace octet {
namespace {

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
  for (const std::string& path : files_named(files, paths, {".json"}, left_out.log())) {
    QuestionReader(path, places, questions, left_out)
        .add_all(parse_ordered_json(read_text_file(files, path, input_limits().max_unpacked_bytes),
                                    path));
  }
  return questions;
}

namespace {

// f of each of [0, n), in parts that threads take.
template <typename F>
void for_all(ThreadPool& pool, size_t n, const F& f) {
  constexpr int64_t kPart = 64;
  const auto n_all = static_cast<int64_t>(n);
  pool.run(ceil_div(n_all, kPart), [&](int64_t part, int) {
    for (int64_t i = part * kPart; i < std::min(n_all, (part + 1) * kPart); ++i)
      f(static_cast<size_t>(i));
  });
}

}  // namespace

std::vector<AnswerWindow> answer_windows(const TextTemplate& around,
                                         std::span<const int32_t> question,
                                         std::span<const TokenSpan> context,
                                         const AnswerWindowOptions& options) {
  using Kind = TemplatePart::Kind;
  const std::vector<TemplatePart>& parts = around.pair;
  const int64_t n_own = std::ranges::count(parts, Kind::token, &TemplatePart::kind);
  const bool has_both = std::ranges::count(parts, Kind::first_text, &TemplatePart::kind) == 1 &&
                        std::ranges::count(parts, Kind::second_text, &TemplatePart::kind) == 1;
  if (!has_both) {
    throw Error(ErrorCode::invalid_argument,
                "[tokenizer] expected a tokenizer with a template of pairs, got one without");
  }
  const int64_t n_both = options.seq - n_own;
  if (n_both < 2) {
    throw Error(ErrorCode::invalid_argument,
                "model.seq: expected room for two tokens and the {} around them, got {}", n_own,
                options.seq);
  }
  const bool from_end = options.cut == CutSide::start;
  const auto n_asked = static_cast<size_t>(std::min<int64_t>(std::ssize(question), n_both / 2));
  question = from_end ? question.last(n_asked) : question.first(n_asked);
  const int64_t room = n_both - std::ssize(question), n = std::ssize(context);
  const int64_t step = room - std::min(options.stride, room / 2);
  std::vector<AnswerWindow> windows;
  for (int64_t at = 0;; at += step) {  // from where the windows begin
    AnswerWindow& window = windows.emplace_back();
    window.n = std::min(room, n - at);
    window.first = from_end ? n - at - window.n : at;
    std::vector<int32_t> ids;
    for (int64_t i = window.first; i < window.first + window.n; ++i)
      ids.push_back(context[static_cast<size_t>(i)].id);
    window.row = join_texts(parts, question, ids);
    for (const TemplatePart& part : parts) {
      if (part.kind == Kind::second_text) break;
      window.context_begin += part.kind == Kind::token ? 1 : std::ssize(question);
    }
    if (at + room >= n) return windows;
  }
}

AnswerPlace answer_place(const AnswerWindow& window, std::span<const TokenSpan> context,
                         int64_t begin, int64_t end) {
  const std::span<const TokenSpan> part =
      context.subspan(static_cast<size_t>(window.first), static_cast<size_t>(window.n));
  if (part.empty() || part.front().begin > begin || part.back().end < end) return {};
  // The last token that begins at or before the answer; the first that ends at or behind its end.
  const auto first = std::ranges::upper_bound(part, begin, {}, &TokenSpan::begin) - 1;
  const auto last = std::ranges::lower_bound(part, end, {}, &TokenSpan::end);
  const auto place = [&](auto at) {
    return static_cast<int32_t>(window.context_begin + (at - part.begin()));
  };
  return {place(first), place(last)};
}

QuestionWindows window_questions(const Questions& questions, const Tokenizer& tokenizer,
                                 const AnswerWindowOptions& options, LeftOut& left_out) {
  ThreadPool pool(options.threads);
  QuestionWindows result;
  result.contexts.resize(questions.contexts.size());
  std::vector<std::string> problems(questions.contexts.size());
  for_all(pool, questions.contexts.size(), [&](size_t i) {
    try {
      result.contexts[i] = tokenizer.encode_spans(questions.contexts[i]);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      problems[i] = error.what();
    }
  });
  const TextTemplate around = tokenizer.text_template();
  result.windows.resize(questions.all.size());
  for_all(pool, questions.all.size(), [&](size_t i) {
    const Question& question = questions.all[i];
    if (!problems[question.context].empty()) return;
    result.windows[i] = answer_windows(around, tokenizer.encode(question.text),
                                       result.contexts[question.context], options);
  });
  for (const Question& question : questions.all) {
    if (!problems[question.context].empty())
      left_out.add(question.place, problems[question.context]);
  }
  return result;
}

}  // namespace octet
