#include "cli/data_chat.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/output.h"

namespace octet {
namespace {

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string way_text(const ChatReport& chat) {
  if (chat.n_rewritten == 0) return "one a record, with all of its answers";
  return fmt::format(
      "{} records have one for each answer, rendered as at inference, as the template rewrites "
      "earlier turns or its prompt does not begin the answer; the others one with all answers",
      chat.n_rewritten);
}

// Names of files may be no UTF-8, which JSON has to be.
std::vector<std::string> printable_places(const DroppedRecords& records) {
  std::vector<std::string> places;
  for (const std::string& place : records.places) places.push_back(printable(place));
  return places;
}

}  // namespace

void write_chat(const ChatReport& chat, int64_t n_samples) {
  for (const auto& [format, n] : chat.formats) {
    write_line("format         {}: {} records", format, n);
  }
  write_line("template       {}", chat.template_name);
  write_line("trained        {} of {} tokens, {:.1f} %", chat.n_trained, chat.n_tokens,
             percent(chat.n_trained, chat.n_tokens));
  write_line("samples        {} of {} records: {}", n_samples, chat.n_records, way_text(chat));
  for (const auto& [end, n] : chat.prompt_ends) {
    write_line(
        "prompt         {} records: answers stand behind {}, with which the "
        "template's prompt ends and an answer of its own does not begin",
        n, OrderedJson(end).dump());
  }
  write_line("duplicates     {}, kept", chat.n_duplicates);
  if (chat.n_apart > 0) {
    write_line(
        "seams          {} samples whose answer begins or ends within a token of "
        "the whole: encoded in parts",
        chat.n_apart);
  }
  for (const auto& [why, files] : chat.unread_files)
    write_line("not read       {} files: {} ({})", files.n, why, places_text(files));
  for (const auto& [key, n] : chat.ignored)
    write_line("ignored        key '{}' of {} records", key, n);
  for (const auto& [why, answers] : chat.left_out)
    write_line("not trained    {} answers: {} ({})", answers.n, why, places_text(answers));
  for (const auto& [why, records] : chat.dropped)
    write_line("dropped        {}: {} ({})", records.n, why, places_text(records));
}

OrderedJson chat_json(const ChatReport& chat) {
  using List = OrderedJson;
  List dropped = List::array(), left_out = List::array(), unread = List::array();
  for (const auto& [why, files] : chat.unread_files)
    unread.push_back({{"why", why}, {"files", files.n}, {"places", printable_places(files)}});
  for (const auto& [why, records] : chat.dropped)
    dropped.push_back(
        {{"why", why}, {"records", records.n}, {"places", printable_places(records)}});
  for (const auto& [why, answers] : chat.left_out)
    left_out.push_back(
        {{"why", why}, {"answers", answers.n}, {"places", printable_places(answers)}});
  return {{"template", chat.template_name},  {"files", chat.n_files},
          {"formats", chat.formats},         {"trained_tokens", chat.n_trained},
          {"duplicates", chat.n_duplicates}, {"encoded_in_parts", chat.n_apart},
          {"records", chat.n_records},       {"records_with_a_sample_per_answer", chat.n_rewritten},
          {"prompt_ends", chat.prompt_ends}, {"ignored_keys", chat.ignored},
          {"not_trained", left_out},         {"dropped", dropped},
          {"unread_files", unread}};
}

}  // namespace octet
